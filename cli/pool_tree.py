"""``peloton respool tree``: all pools with what they were given, may use, hold and want."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cli.command import Command
from cli.errors import is_rpc_error
from cli.output import as_json, print_table
from cli.params import DURATION
from cli.settings import Settings, pass_settings

if TYPE_CHECKING:
    from rich.table import Table

    from peloton.api.v0.explain import explain_pb2

HEADER = ("Pool", "Kind", "Reservation", "Limit", "Share", "Entitlement", "Allocation", "Demand")
BAR_WIDTH = 24
LEGEND = "[green]█[/] allocation  [yellow]▓[/] demand  [cyan]│[/] entitlement; the bar ends at the limit or capacity"


@click.command("tree", cls=Command)
@click.option("--watch", is_flag=True, help="Show it again and again until Ctrl-C.")
@click.option("--every", type=DURATION, default="2s", show_default=True, help="How often, with --watch.")
@pass_settings
def tree(settings: Settings, watch: bool, every: float) -> None:
    """Show the tree of pools: reservation, limit, share, entitlement, allocation and demand of each kind of resource.

    On a terminal with bars; elsewhere as a table. With --json and --watch each answer is one line.

    \b
    Examples:
      peloton respool tree
      peloton respool tree --watch
    """
    if not watch:
        show(settings, ask(settings))
        return
    try:
        if sys.stdout.isatty() and not settings.json:
            watch_bars(settings, every)
        else:
            watch_lines(settings, every)
    except KeyboardInterrupt:
        click.echo("Stopped watching.", err=True)
        sys.exit(130)


def ask(settings: Settings) -> explain_pb2.PoolTreeResponse:
    from peloton.api.v0.explain import explain_pb2

    return settings.client.explain.PoolTree(explain_pb2.PoolTreeRequest())


def show(settings: Settings, answer: explain_pb2.PoolTreeResponse) -> None:
    if settings.json:
        click.echo(as_json(answer))
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        console.print(bars(answer))
        console.print(LEGEND)
    else:
        print_table(HEADER, (row for pool in answer.pools for row in rows(pool)))


def watch_bars(settings: Settings, every_s: float) -> None:
    """Redraws in place; an API that is away for a moment is waited for, with the last picture left as it is."""
    from rich.console import Console
    from rich.live import Live

    with Live(bars(ask(settings)), console=Console(highlight=False), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(every_s)
            try:
                live.update(bars(ask(settings)), refresh=True)
            except Exception as error:
                if not is_rpc_error(error):
                    raise


def watch_lines(settings: Settings, every_s: float) -> None:
    """One table, or one line of JSON, each time."""
    while True:
        answer = ask(settings)
        if settings.json:
            from google.protobuf import json_format

            click.echo(json_format.MessageToJson(answer, preserving_proto_field_name=True, indent=None))
        else:
            show(settings, answer)
            click.echo()
        time.sleep(every_s)


def rows(pool: explain_pb2.PoolNode) -> Iterator[tuple[str, ...]]:
    """A line for each kind that the pool has, holds or wants."""
    for each in shown_kinds(pool):
        numbers = (each.reservation, each.limit, each.share, each.entitlement, each.allocation, each.demand)
        yield (pool.path, each.kind, *(number(value) for value in numbers))


def shown_kinds(pool: explain_pb2.PoolNode) -> list[explain_pb2.PoolAmounts]:
    return [each for each in pool.amounts if each.limit or each.reservation or each.allocation or each.demand]


def bars(answer: explain_pb2.PoolTreeResponse) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("Pool", "Queued", "Kind", "", "Allocation", "Entitlement", "Demand", "Reservation", "Limit", "Share"):
        table.add_column(title, justify="left" if title in ("Pool", "Kind", "") else "right", no_wrap=True)
    capacity = {each.kind: each.limit for pool in answer.pools[:1] for each in pool.amounts}
    for pool in answer.pools:
        name = "  " * pool.depth + (pool.path.rpartition("/")[2] or "/")
        queued = str(pool.queuedInstances or "")
        kinds = shown_kinds(pool)
        if not kinds:
            table.add_row(name, queued)
        for each in kinds:
            values = (each.allocation, each.entitlement, each.demand, each.reservation, each.limit, each.share)
            bar = Text.from_markup(bar_of(each, min(each.limit, capacity.get(each.kind, each.limit))))
            table.add_row(name, queued, each.kind, bar, *(number(value) for value in values))
            name = queued = ""
    return table


def bar_of(each: explain_pb2.PoolAmounts, whole: float) -> str:
    """Markup of BAR_WIDTH cells that stand for ``whole``: allocation, then demand, and a mark at the entitlement."""

    def cells(amount: float) -> int:
        return min(round(amount / whole * BAR_WIDTH), BAR_WIDTH) if whole > 0 else 0

    held, wanted = cells(each.allocation), cells(each.allocation + each.demand)
    mark = max(cells(each.entitlement) - 1, 0)
    painted = []
    for cell in range(BAR_WIDTH):
        if cell == mark and each.entitlement > 0:
            painted.append("[cyan]│[/]")
        elif cell < held:
            painted.append("[green]█[/]")
        else:
            painted.append("[yellow]▓[/]" if cell < wanted else "[dim]·[/]")
    return "".join(painted)


def number(value: float) -> str:
    return "unlimited" if math.isinf(value) else f"{value:.2f}".rstrip("0").rstrip(".")
