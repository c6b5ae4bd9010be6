"""``peloton top``: the cluster on a terminal, live."""

from __future__ import annotations

import sys

import click

from cli.command import Command
from cli.errors import Failed
from cli.params import DURATION
from cli.settings import Settings, pass_settings

NO_TERMINAL = (
    "peloton top needs a terminal; for programs there are `peloton overview -o json`, `peloton respool tree -o json`, "
    "`peloton job table -o json` and `peloton host query -o json`"
)


@click.command(cls=Command)
@click.option("--period", type=DURATION, default="2s", show_default=True, help="The interval of polling the API.")
@pass_settings
def top(settings: Settings, period: float) -> None:
    """Show the cluster live: problems, pools, jobs, hosts.

    Keys: 1 to 4 are the tabs, arrows or j and k move, enter opens, esc goes back, / filters, s sorts, c copies the
    command with the same result, ? shows all keys, q quits.

    \b
    Examples:
      peloton top
      peloton top --period 10s
    """
    if settings.is_for_programs or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failed(NO_TERMINAL)
    from cli.top.app import TopApp
    from cli.top.reading import Reader

    TopApp(Reader(settings), period).run()
