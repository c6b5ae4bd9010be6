"""``peloton respool tree``: all pools with their reservation, entitlement, allocation and demand."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from cli import output
from cli.command import Command
from cli.errors import is_rpc_error
from cli.output import as_json_line, print_for_programs, print_table
from cli.params import DURATION
from cli.pools import UNITS, number
from cli.settings import Settings, pass_settings
from cli.terminal import Visible, console, echo
from cli.watching import Retrier, WatchPace
from cli.wire import v0

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

TABLE: output.Table[output.Row] = output.Table(
    "Pool", "Kind", "Reservation", "Limit", "Share", "Entitlement", "Allocation", "Demand",
    whole=["Pool", "Kind", "Entitlement", "Allocation", "Demand"],
    spare=["Share", "Limit", "Reservation"],
)  # fmt: skip
NUMBERS = ("allocation", "entitlement", "demand", "reservation", "limit", "share")
PART_COLUMNS = ("allocation", "entitlement", "demand", "limit")
"""Columns of a part of a pool, which is confined to some host pools."""
SHORT = {"queued": "Que", "allocation": "Alloc", "entitlement": "Entitl", "demand": "Demand", "reservation": "Reserv"}
DROPPED_FIRST = ("queued", "share", "limit", "reservation")  # of the columns, on a terminal that is too narrow
RESTORE_SCREEN = "\x1b[?25h\x1b[?1049l"  # show the cursor, leave the alternate screen
BAR_WIDTH, BAR_WIDTH_MIN = 24, 8
NAME_WIDTH_MIN = 10
LEGEND = (
    "[green]█[/] allocation  [yellow]▓[/] demand  [cyan]│[/] entitlement  [magenta]┆[/] reservation; "
    "it ends at the limit"
)


@click.command("tree", cls=Command)
@click.option("--watch", is_flag=True, help="Repeat the output until Ctrl-C.")
@click.option("--every", type=DURATION, default="2s", show_default=True, help="The interval of --watch.")
@pass_settings
def tree(settings: Settings, watch: bool, every: float) -> None:
    """Show the tree of pools: reservation, limit, share, entitlement, allocation and demand of each kind of resource.

    On a terminal the tree has bars; elsewhere it is a table. With --json and --watch each answer is one line.

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
        echo("Stopped watching.", err=True)
        sys.exit(130)


def ask(settings: Settings) -> v0.explain.PoolTreeResponse:
    return settings.client.explain.PoolTree(v0.explain.PoolTreeRequest())


def show(settings: Settings, answer: v0.explain.PoolTreeResponse) -> None:
    if print_for_programs(settings, answer, (pool.path for pool in answer.pools)):
        return
    if sys.stdout.isatty() and not settings.output:
        drawn_on = console()
        drawn_on.print(Visible(bars(answer, drawn_on.width)))
        drawn_on.print(LEGEND)
    else:
        print_table(TABLE, (row for pool in answer.pools for row in rows(pool)), settings.output == "wide")


def watch_bars(settings: Settings, every_s: float) -> None:
    """Redraw the tree in place. The last answer stays on the screen during outages of the API."""
    from rich.live import Live

    terminal, drawn_on = sys.stdout, console()
    answer, note = ask(settings), f"{time.strftime('%H:%M:%S')}  Ctrl-C ends"
    try:
        with Live(console=drawn_on, auto_refresh=False, screen=True) as live:
            while True:
                live.update(Visible(screen(answer, note, drawn_on.width, drawn_on.height)), refresh=True)
                time.sleep(every_s)
                try:
                    answer, note = ask(settings), f"{time.strftime('%H:%M:%S')}  Ctrl-C ends"
                except Exception as error:
                    if not is_rpc_error(error):
                        raise
                    note = f"{note.partition(' ')[0]}  no answer since, retrying"
    finally:  # rich does not restore the screen when it is interrupted while drawing
        terminal.write(RESTORE_SCREEN)
        terminal.flush()


def screen(answer: v0.explain.PoolTreeResponse, note: str, width: int, height: int) -> Group:
    """Return the lines that fit on the terminal and the number of the others, because an alternate screen does not
    scroll."""
    from rich.console import Group
    from rich.text import Text

    legend = Text.from_markup(LEGEND)
    legend.truncate(width, overflow="ellipsis")
    lines_max = height - 3  # header, legend, note
    lines = [line for pool in answer.pools for line in bar_lines(pool)]
    if len(lines) > lines_max:
        note = f"{note}  {len(lines) - max(lines_max, 0)} more lines do not fit on the screen"
    return Group(
        table_of(answer, lines[: max(lines_max, 0)], width), legend, Text(note, no_wrap=True, overflow="ellipsis")
    )


def watch_lines(settings: Settings, every_s: float) -> None:
    """Print a table, or a line of JSON, at each interval. Once the API has answered, outages are waited for."""
    pace = WatchPace(interval_s=every_s)
    retrier = Retrier(settings.client, pace, "cluster with its pools", "peloton respool tree --watch")
    answer = ask(settings)
    while True:
        if settings.json:
            echo(as_json_line(answer))
        else:
            show(settings, answer)
            echo()
        pace.sleep(every_s)
        answer = retrier.ask(partial(echo, err=True), lambda: ask(settings))


def rows(pool: v0.explain.PoolNode) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of resource that the pool has or uses, or one row without numbers."""
    kinds = shown_kinds(pool.amounts)
    if not kinds:
        yield (pool.path, *[""] * (len(TABLE.header) - 1))
    for each in kinds:
        numbers = (each.reservation, each.limit, each.share, each.entitlement, each.allocation, each.demand)
        yield (pool.path, UNITS.get(each.kind, each.kind), *(number(value) for value in numbers))
    for part in pool.onHosts:
        for each in shown_kinds(part.amounts):
            shown = (each.entitlement, each.allocation, each.demand)
            name = f"{pool.path} in {part.hostPools}"
            yield (name, UNITS.get(each.kind, each.kind), "", number(each.limit), "", *map(number, shown))


def shown_kinds(amounts: Iterable[v0.explain.PoolAmounts]) -> list[v0.explain.PoolAmounts]:
    return [each for each in amounts if each.limit or each.reservation or each.allocation or each.demand]


@dataclass(frozen=True)
class BarLine:
    """A line of the tree. The name and the queue of a pool are on its first line."""

    cells: dict[str, str]
    amounts: v0.explain.PoolAmounts | None


def bar_lines(pool: v0.explain.PoolNode) -> Iterator[BarLine]:
    name = "  " * pool.depth + (pool.path.rpartition("/")[2] or "/")
    first = {"pool": name, "queued": str(pool.queuedInstances or "")}
    kinds = shown_kinds(pool.amounts)
    if not kinds:
        yield BarLine(first, None)
    for each in kinds:
        yield BarLine({**first, **_cells(each, NUMBERS)}, each)
        first = {}
    for part in pool.onHosts:
        first = {"pool": f"{'  ' * (pool.depth + 1)}in {part.hostPools}"}
        for each in shown_kinds(part.amounts):
            yield BarLine({**first, **_cells(each, PART_COLUMNS)}, each)
            first = {}


def _cells(each: v0.explain.PoolAmounts, names: Iterable[str]) -> dict[str, str]:
    return {"kind": UNITS.get(each.kind, each.kind), **{name: number(getattr(each, name)) for name in names}}


def bars(answer: v0.explain.PoolTreeResponse, width: int) -> Table:
    return table_of(answer, [line for pool in answer.pools for line in bar_lines(pool)], width)


def table_of(answer: v0.explain.PoolTreeResponse, lines: Sequence[BarLine], width: int) -> Table:
    """Build a table that fits the width: with shorter bars, then shorter titles, fewer columns, truncated names.
    Numbers stay whole."""
    from rich.table import Table
    from rich.text import Text

    layout = fitting_layout(lines, width)
    table = Table(box=None, pad_edge=False, padding=(0, layout.gap, 0, 0), header_style="bold")
    for name, title in layout.titles.items():
        is_text = name in ("pool", "kind", "bar")
        column_width = layout.bar if name == "bar" else layout.name if name == "pool" else None
        table.add_column(title, justify="left" if is_text else "right", no_wrap=True, width=column_width)
    capacity = {each.kind: each.limit for pool in answer.pools[:1] for each in pool.amounts}
    for line in lines:
        cells = [Text(line.cells.get(name, "")) for name in layout.titles]
        if line.amounts is not None:
            whole = min(line.amounts.limit, capacity.get(line.amounts.kind, line.amounts.limit))
            cells[list(layout.titles).index("bar")] = Text.from_markup(bar_of(line.amounts, whole, layout.bar))
        table.add_row(*cells)
    return table


@dataclass(frozen=True)
class Layout:
    titles: dict[str, str]  # of the columns that are shown
    gap: int
    bar: int
    name: int


def fitting_layout(lines: Sequence[BarLine], width: int) -> Layout:
    from rich.cells import cell_len

    columns = ["pool", "queued", "kind", "bar", *NUMBERS]
    titles = {name: name.capitalize() for name in columns} | {"bar": ""}
    name = max([len("Pool"), *(cell_len(line.cells.get("pool", "")) for line in lines)])

    def rest(shown: Mapping[str, str], gap: int) -> int:
        """Return the width that the other columns leave for bars and names."""
        fixed = [column for column in shown if column not in ("bar", "pool")]
        taken = sum(max([len(shown[c]), *(len(line.cells.get(c, "")) for line in lines)]) for c in fixed)
        return width - taken - gap * (len(shown) - 1)

    gap, dropped = 2, list(DROPPED_FIRST)
    if rest(titles, gap) < name + BAR_WIDTH_MIN:
        gap, titles = 1, {name: SHORT.get(name, title) for name, title in titles.items()}
    while dropped and rest(titles, gap) < min(name, NAME_WIDTH_MIN) + BAR_WIDTH_MIN:
        del titles[dropped.pop(0)]
    left = rest(titles, gap)
    bar = max(min(left - name, BAR_WIDTH), BAR_WIDTH_MIN)
    return Layout(titles, gap, bar, max(min(name, left - bar), 1))


def bar_of(each: v0.explain.PoolAmounts, whole: float, width: int = BAR_WIDTH) -> str:
    """Return a bar of ``width`` cells for ``whole`` as markup: allocation and demand, with marks at entitlement and
    reservation."""

    def cells(amount: float) -> int:
        return min(round(amount / whole * width), width) if whole > 0 else 0

    held, wanted = cells(each.allocation), cells(each.allocation + each.demand)
    marks = {max(cells(each.reservation) - 1, 0): "[magenta]┆[/]"} if each.reservation > 0 else {}
    if each.entitlement > 0:
        marks[max(cells(each.entitlement) - 1, 0)] = "[cyan]│[/]"
    painted = []
    for cell in range(width):
        if cell in marks:
            painted.append(marks[cell])
        elif cell < held:
            painted.append("[green]█[/]")
        else:
            painted.append("[yellow]▓[/]" if cell < wanted else "[dim]·[/]")
    return "".join(painted)
