"""Time series in a terminal: one line for each quantity, with a bar for each part of the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Protocol

import click

from cli.params import DURATION, SINCE, together
from cli.pools import UNITS, number
from cli.times import parse_time
from cli.wire import v0

BARS = "▁▂▃▄▅▆▇█"
GAP = "·"
BARS_MAX = 48
HEADS = ("Kind", "Quantity", "First", "Last", "Mean", "Max", "Over time")
WHOLE = ("Kind", "Quantity", "Last", "Over time")
SPARE = ("First", "Mean", "Max")


class Answer(Protocol):
    start: str
    step_s: int
    count: int


def history_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a time series, which the command receives as ``span``: fields of a request."""

    @wraps(function)
    def command(
        *args: Any, since: datetime, until: datetime | None, kinds: tuple[str, ...], step: float | None, **given: Any
    ) -> None:
        span = {
            "start": since.isoformat(timespec="seconds"),
            "end": until.isoformat(timespec="seconds") if until else "",
            "step_s": math.ceil(step) if step else 0,
            "kinds": kinds,
        }
        function(*args, span=span, **given)

    return together(
        click.option(
            "--since",
            type=SINCE,
            default="6h",
            show_default=True,
            help="The start: a time, or a duration before now such as 6h.",
        ),
        click.option("--until", type=SINCE, help="The end; now if absent."),
        click.option("--kind", "kinds", multiple=True, help="Only cpu, memory, disk, gpu or license/NAME; repeatable."),
        click.option("--step", type=DURATION, help="The length of an interval such as 5m; if absent, one that fits."),
    )(command)


def rows(columns: Iterable[v0.history.Column], covered_s: Sequence[int], counts: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table. ``counts``: the unit of columns that are of no kind."""
    there = [index for index, covered in enumerate(covered_s) if covered]
    for column in columns:
        name = v0.history.Quantity.Name(column.quantity).removeprefix("QUANTITY_").lower().replace("_", " ")
        kind = UNITS.get(column.kind, column.kind) or counts
        values = [column.values[index] for index in there]
        highest = max([*values, *(column.maxima[index] for index in there if column.maxima)])
        if math.isinf(values[-1]):
            yield (kind, name, number(values[0]), number(values[-1]), "", number(highest), "")
            continue
        mean = sum(value for value in values if math.isfinite(value)) / len(values)
        line = sparkline(column.values, covered_s)
        yield (kind, name, number(values[0]), number(values[-1]), number(mean), number(highest), line)


def sparkline(values: Sequence[float], covered_s: Sequence[int]) -> str:
    """Return at most BARS_MAX bars, each the highest of its intervals; the tallest is the highest of all."""
    per_bar = math.ceil(len(values) / BARS_MAX)
    highest = max((value for value in values if math.isfinite(value)), default=0) or 1
    bars = []
    for begin in range(0, len(values), per_bar):
        own = [values[at] for at in range(begin, min(begin + per_bar, len(values))) if covered_s[at]]
        level = min(max(own, default=0) / highest, 1)
        bars.append(BARS[round(level * (len(BARS) - 1))] if own else GAP)
    return "".join(bars)


def intervals_text(answer: Answer) -> str:
    return f"{answer.count} intervals of {span_text(answer.step_s)} from {clock(answer, 0)} on"


def clock(answer: Answer, index: int) -> str:
    start = parse_time(answer.start) or datetime.fromtimestamp(0, UTC)
    return f"{start + timedelta(seconds=index * answer.step_s):%Y-%m-%d %H:%M} UTC"


def span_text(seconds: int) -> str:
    if seconds % 3_600 == 0:
        return f"{seconds // 3_600} h"
    return f"{seconds // 60} min"
