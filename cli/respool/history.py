"""``peloton respool history``: what a pool was given, could use, held and wanted over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import click

from cli import output
from cli.command import Command
from cli.output import print_for_programs, print_table
from cli.params import DURATION, POOL_PATH, SINCE
from cli.pools import UNITS
from cli.settings import Settings, pass_settings
from cli.times import parse_time
from cli.wire import v0

TABLE = output.Table(
    ("Kind", "Quantity", "First", "Last", "Mean", "Max", "Over time"),
    whole=("Kind", "Quantity", "Last", "Over time"),
    spare=("First", "Mean", "Max"),
)
BARS = "▁▂▃▄▅▆▇█"
GAP = "·"
BARS_MAX = 48
MARKS_MAX = 20
KINDS = ("cpu", "memory", "disk", "gpu")


@click.command("history", cls=Command)
@click.argument("path", metavar="POOL", type=POOL_PATH, default="/")
@click.option("--since", type=SINCE, default="6h", show_default=True, help="From when on: 6h, 30m, or a time.")
@click.option("--until", type=SINCE, help="Until when; if absent, now.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind; repeatable.")
@click.option("--step", type=DURATION, help="Length of an interval, such as 5m or 1h; if absent, what fits.")
@pass_settings
def history(
    settings: Settings,
    path: str,
    since: datetime,
    until: datetime | None,
    kinds: tuple[str, ...],
    step: float | None,
) -> None:
    """Show what POOL was given, could use, held and wanted over time, and what was preempted. Without POOL the whole
    cluster.

    Minutes are kept for a day, hours for a year. A dot in a line is a time in which nothing was recorded.

    \b
    Examples:
      peloton respool history /eng/maps --since 24h --kind cpu
      peloton respool history / --since 720h --step 24h -o json
    """
    request = v0.history.GetPoolHistoryRequest(
        paths=[path],
        kinds=kinds,
        start=since.isoformat(timespec="seconds"),
        end=until.isoformat(timespec="seconds") if until else "",
        step_s=math.ceil(step) if step else 0,
    )
    answer = settings.client.history.GetPoolHistory(request)
    if print_for_programs(settings, answer, (pool.path for pool in answer.pools)):
        return
    (pool,) = answer.pools
    if not any(pool.covered_s):
        click.echo(f"Nothing of {path} was recorded in that time: the leading resource manager does it once a minute")
        return
    print_table(TABLE, rows(pool), settings.output == "wide")
    click.echo(f"{answer.count} intervals of {span_text(answer.step_s)} from {clock(answer, 0)} on")
    for line in mark_lines(answer, pool):
        click.echo(line)


def rows(pool: v0.history.PoolHistory) -> Iterator[tuple[str, ...]]:
    there = [index for index, covered_s in enumerate(pool.covered_s) if covered_s]
    for column in pool.columns:
        name = v0.history.Quantity.Name(column.quantity).removeprefix("QUANTITY_").lower().replace("_", " ")
        kind = UNITS.get(column.kind, column.kind) or "instances"
        values = [column.values[index] for index in there]
        highest = max([*values, *(column.maxima[index] for index in there if column.maxima)])
        if math.isinf(values[-1]):
            yield (kind, name, number(values[0]), number(values[-1]), "", number(highest), "")
            continue
        mean = sum(value for value in values if math.isfinite(value)) / len(values)
        line = sparkline(column.values, pool.covered_s)
        yield (kind, name, number(values[0]), number(values[-1]), number(mean), number(highest), line)


def sparkline(values: Sequence[float], covered_s: Sequence[int], width: int = BARS_MAX) -> str:
    """At most ``width`` bars, each the highest of its intervals; the tallest is the highest of all."""
    per_bar = math.ceil(len(values) / width)
    highest = max((value for value in values if math.isfinite(value)), default=0) or 1
    bars = []
    for begin in range(0, len(values), per_bar):
        own = [values[at] for at in range(begin, min(begin + per_bar, len(values))) if covered_s[at]]
        level = min(max(own, default=0) / highest, 1)
        bars.append(BARS[round(level * (len(BARS) - 1))] if own else GAP)
    return "".join(bars)


def mark_lines(answer: v0.history.GetPoolHistoryResponse, pool: v0.history.PoolHistory) -> Iterator[str]:
    """The last preemptions."""
    if len(pool.preemptions) > MARKS_MAX:
        yield f"The last {MARKS_MAX} of {len(pool.preemptions)} preemptions:"
    for mark in pool.preemptions[-MARKS_MAX:]:
        cause = f"{mark.for_pool} got room" if mark.for_pool else "several pools got room"
        if mark.for_pool == pool.path:
            cause = "gangs of a higher priority in the same pool got room"
        yield f"{clock(answer, mark.index)}  {mark.instances} instances preempted: {cause}"


def clock(answer: v0.history.GetPoolHistoryResponse, index: int) -> str:
    start = parse_time(answer.start) or datetime.fromtimestamp(0, UTC)
    return f"{start + timedelta(seconds=index * answer.step_s):%Y-%m-%d %H:%M} UTC"


def span_text(seconds: int) -> str:
    if seconds % 3_600 == 0:
        return f"{seconds // 3_600} h"
    return f"{seconds // 60} min"


def number(value: float) -> str:
    return "unlimited" if math.isinf(value) else f"{value:.2f}".rstrip("0").rstrip(".")
