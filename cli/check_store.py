"""``peloton admin check``: look for rows of the database that break the rules between tables."""

from __future__ import annotations

from typing import Any

import click

from cli.command import Command
from cli.errors import Failed
from cli.output import Table, print_rows_for_programs, print_table
from cli.serve import config_option
from cli.settings import Settings, pass_settings
from cli.terminal import echo

TABLE: Table[dict[str, Any]] = Table(
    ("Table", lambda found: found["table"]),
    ("Rule", lambda found: found["rule"]),
    ("Rows", lambda found: str(found["count"])),
    ("First", lambda found: " ".join(found["first_ids"])),
    ("", lambda found: "note" if found["is_note"] else "broken"),
)


@click.command("check", cls=Command)
@config_option
@pass_settings
def check_store(settings: Settings, config: str) -> None:
    """Check the database that PELOTON_DATABASE names: orphaned rows, and numbers that differ from rows.

    It only reads, a few thousand rows at a time, also while Peloton runs. The exit code is 1 when a rule is
    broken; notes, on which a person decides, do not count.

    \b
    Example:
      PELOTON_DATABASE=postgresql+psycopg://peloton@db/peloton peloton admin check --json
    """
    from services import runtime

    found, rules = runtime.check_store(config)
    if not print_rows_for_programs(settings, found, [one["rule"] for one in found]):
        if found:
            print_table(TABLE, found, settings.output == "wide")
        else:
            echo(f"{rules} rules hold")
    if broken := [one for one in found if not one["is_note"]]:
        rows = sum(one["count"] for one in broken)
        raise Failed(f"{rows} rows break {len(broken)} of {rules} rules")
