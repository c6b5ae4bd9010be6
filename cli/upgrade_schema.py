"""``peloton admin upgrade-schema``: upgrade the database schema, before roles of a new release start."""

from __future__ import annotations

import click

from cli.command import Command
from cli.serve import config_option
from cli.terminal import echo


@click.command("upgrade-schema", cls=Command)
@config_option
def upgrade_schema(config: str) -> None:
    """Create or upgrade the schema of the database that PELOTON_DATABASE names.

    Roles of the release before work on the new schema: upgrade it before the first role of a new release starts.
    `peloton serve --upgrade-schema` does it at the start of a role.

    \b
    Example:
      PELOTON_DATABASE=postgresql+psycopg://peloton@db/peloton peloton admin upgrade-schema
    """
    from services import runtime

    before, after = runtime.upgrade_schema(config)
    if before == after:
        echo(f"The schema is at version {after}: nothing to upgrade")
    else:
        echo(f"The schema was upgraded from version {before} to {after}" if before else f"Created schema {after}")
