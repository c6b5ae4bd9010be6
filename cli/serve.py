"""``peloton serve``: run roles of Peloton in this process, by settings from the environment or a file."""

from __future__ import annotations

import click

from cli.command import Command

ROLE_NAMES = ("api", "worker", "resmgr", "hostmgr", "web", "aurorabridge")
config_option = click.option(
    "--config", metavar="FILE", default="", help="The TOML file of settings. PELOTON_CONFIG names it, too."
)


@click.command(cls=Command)
@click.argument("roles", nargs=-1, required=True, type=click.Choice(ROLE_NAMES))
@click.option("--upgrade-schema", is_flag=True, help="Upgrade the database schema first.")
@config_option
@click.option("--migrate", is_flag=True, hidden=True)  # its old name
def serve(roles: tuple[str, ...], upgrade_schema: bool, config: str, migrate: bool) -> None:
    """Run one or more ROLES in this process, in the foreground, until SIGTERM or Ctrl-C.

    Settings in the environment or in a file say where Temporal (PELOTON_TEMPORAL), the database (PELOTON_DATABASE,
    required) and Mesos (PELOTON_MESOS) are; `peloton settings` and docs/settings.md have all of them. Roles web
    and aurorabridge need only PELOTON_API. Invalid settings end the command with exit code 2 before any role starts.

    \b
    Examples:
      PELOTON_DATABASE=postgresql+psycopg://peloton@db/peloton peloton serve --upgrade-schema api
      PELOTON_DATABASE=postgresql+psycopg://peloton@db/peloton peloton serve worker
      PELOTON_API=peloton.example.com:5397 peloton serve web
      peloton serve --config /etc/peloton.toml hostmgr
    """
    import gc

    gc.disable()  # until the roles are loaded
    from services import runtime

    runtime.run(roles, upgrade=upgrade_schema or migrate, config=config)
