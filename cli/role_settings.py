"""``peloton settings``: the settings of roles that hold, and their sources."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from cli.command import Command
from cli.output import Table, print_rows_for_programs, print_table
from cli.serve import ROLE_NAMES, config_option
from cli.settings import Settings, pass_settings

EMPTY = '""'


class Row(NamedTuple):
    variable: str
    value: str
    source: str


TABLE: Table[Row] = Table("Setting", "Value", "Source", whole=["Setting"])


@click.command("settings", cls=Command)
@click.option("--role", type=click.Choice(ROLE_NAMES), help="Only the settings that this role reads, and their files.")
@config_option
@pass_settings
def settings(settings: Settings, role: str | None, config: str) -> None:
    """Print each setting of the roles, its value here, and its source: default, environment, or a file.

    Passwords in URLs are masked. Invalid settings are reported instead, with exit code 2, as a role reports them at its
    start. With --role, the files that the role reads at its start are checked as well.

    \b
    Examples:
      peloton settings
      peloton settings --role hostmgr --config /etc/peloton.toml
      peloton settings --json
    """
    from services import role_settings
    from services.setting_rules import mask
    from services.settings import find
    from services.settings_table import SETTINGS

    found = find(config=config)
    if role:
        role_settings.check_found(found, [role])
    rows: list[dict[str, Any]] = [
        {"name": name, "variable": row.variable, "value": mask(found[name].value), "source": found[name].source}
        | {"default": row.default, "type": row.kind, "unit": row.unit, "wanted": row.wanted}
        | {"readers": list(row.rule.readers), "help": row.plain_help}
        for name, row in SETTINGS.items()
        if role is None or role in row.rule.readers
    ]
    if not print_rows_for_programs(settings, rows, [row["variable"] for row in rows]):
        shown = [Row(row["variable"], shown_value(row["value"]), row["source"]) for row in rows]
        print_table(TABLE, shown, is_wide=settings.output == "wide")


def shown_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or EMPTY
