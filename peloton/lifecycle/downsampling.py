"""Downsampling of time series: minutes to hours, and both to the steps of a chart.

An interval without records is left out, so that a gap remains a gap. Counts are summed up, configured values are the
last ones, and all other columns keep the mean, weighted by the duration of each value, and the maximum. ``covered_s``
shows intervals that cover only a part of their step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from peloton.model.history import Column, Preemption, Quantity, Series

COUNTED = frozenset({Quantity.ADMITTED, Quantity.PREEMPTED})
CONFIGURED = frozenset({Quantity.RESERVATION, Quantity.LIMIT})
MARKS_MAX = 8
"""Maximum pools named as the cause of preemptions in one interval; further ones are counted together."""

_Spans = Sequence[tuple[int, int]]
"""Start and end index of each interval."""


def downsample(series: Series, step_s: int) -> Series:
    """Return the series in intervals of ``step_s`` that start at its multiples."""
    times = series.times_s
    if all(at_s % step_s == 0 for at_s in times):
        return series  # has this step already
    begins = [
        (begin_s, [index for index, _ in group])
        for begin_s, group in groupby(enumerate(times), lambda one: one[1] - one[1] % step_s)
    ]
    spans = [(indices[0], indices[-1] + 1) for _, indices in begins]
    coarse = Series([begin_s for begin_s, _ in begins], [sum(series.covered_s[a:b]) for a, b in spans])
    for column, values in series.columns.items():
        if column.quantity in COUNTED:
            coarse.columns[column] = [sum(values[a:b]) for a, b in spans]
        elif column.quantity in CONFIGURED:
            coarse.columns[column] = [values[b - 1] for _, b in spans]
        else:
            coarse.columns[column] = _average(values, series.covered_s, spans)
            maxima = series.maxima_of(column)
            coarse.maxima[column] = [max(maxima[a:b]) for a, b in spans]
    coarse.preemptions = merge_marks(mark._replace(at_s=mark.at_s - mark.at_s % step_s) for mark in series.preemptions)
    return coarse


def _average(values: Sequence[int], covered_s: Sequence[int], spans: _Spans) -> list[int]:
    """Return the weighted means, rounded half up, and always between the least and the greatest value."""
    means = []
    for a, b in spans:
        if b - a == 1 or min(values[a:b]) == max(values[a:b]):
            means.append(values[a])
            continue
        time_s = sum(covered_s[a:b])
        total = sum(map(int.__mul__, values[a:b], covered_s[a:b]))
        means.append((2 * total + time_s) // (2 * time_s))
    return means


def merge_marks(marks: Iterable[Preemption]) -> list[Preemption]:
    """Return preemptions in order of time, one per interval and pool; at most MARKS_MAX pools of each are named."""
    found = []
    for at_s, group in groupby(sorted(marks), lambda mark: mark.at_s):
        pods: dict[str, int] = {}
        for mark in group:
            pods[mark.for_pool] = pods.get(mark.for_pool, 0) + mark.pod_count
        others = pods.pop("", 0)
        named = sorted(pods, key=lambda path: (-pods[path], path))
        others += sum(pods[path] for path in named[MARKS_MAX:])
        found += [Preemption(at_s, path, pods[path]) for path in named[:MARKS_MAX]]
        found += [Preemption(at_s, "", others)] if others else []
    return found


def merge(*parts: Series) -> Series:
    """Merge series in order of time. If several have an interval, the first series takes precedence."""
    places: dict[int, tuple[int, int]] = {}
    for number, part in enumerate(parts):
        for index, at_s in enumerate(part.times_s):
            places.setdefault(at_s, (number, index))
    chosen = [places[at_s] for at_s in sorted(places)]

    def of_all(lists: Sequence[Sequence[int] | None]) -> list[int]:
        return [values[index] if (values := lists[number]) else 0 for number, index in chosen]

    merged = Series(of_all([part.times_s for part in parts]), of_all([part.covered_s for part in parts]))
    for column in dict.fromkeys(column for part in parts for column in part.columns):
        merged.columns[column] = of_all([part.columns.get(column) for part in parts])
    for column in dict.fromkeys(column for part in parts for column in part.maxima):
        merged.maxima[column] = of_all([part.maxima.get(column) or part.columns.get(column) for part in parts])
    marks = ((number, mark) for number, part in enumerate(parts) for mark in part.preemptions)
    standing = (mark for number, mark in marks if places.get(mark.at_s, (number,))[0] == number)
    merged.preemptions = sorted(standing, key=lambda mark: mark.at_s)
    return merged


def cut(series: Series, start_s: int, end_s: int, columns: Iterable[Column] | None = None) -> Series:
    """Return the intervals that start in ``start_s <= t < end_s``, with these columns or all."""
    kept = [index for index, at_s in enumerate(series.times_s) if start_s <= at_s < end_s]
    wanted = list(series.columns) if columns is None else [column for column in columns if column in series.columns]

    def of(values: Sequence[int]) -> list[int]:
        return [values[index] for index in kept]

    return Series(
        of(series.times_s),
        of(series.covered_s),
        {column: of(series.columns[column]) for column in wanted},
        {column: of(series.maxima[column]) for column in wanted if column in series.maxima},
        [mark for mark in series.preemptions if start_s <= mark.at_s < end_s],
    )
