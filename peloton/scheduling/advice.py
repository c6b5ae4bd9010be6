"""Marks of hosts by their load, and of services by the latencies that their pods report.

Each measure has two bounds, one for orange and one for red. A mark rises when several samples in a row are at its bound
or above it, and falls when all samples of a while were below the bound by a margin. A measure that is constant, or
varies by less than the margin, changes its mark once at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from peloton.model.advice import LatencyBounds, Mark, PodLatency
from peloton.scheduling.qos import HostLoad


class Kind(StrEnum):
    """The measures that are compared with bounds."""

    CPU = "cpu"
    MEMORY = "memory"
    P50 = "p50"
    P95 = "p95"
    P99 = "p99"


UNITS = {Kind.CPU: "%", Kind.MEMORY: "%", Kind.P50: "ms", Kind.P95: "ms", Kind.P99: "ms"}


@dataclass(frozen=True, slots=True)
class AdvicePolicy:
    orange_percent: int = 80  # percent of a host's cpu or memory in use
    red_percent: int = 90
    bounds: LatencyBounds = LatencyBounds()  # noqa: RUF009 - of services that have none of their own
    sample_count: int = 3  # samples in a row at a bound or above it that set a mark
    margin_percent: int = 10  # percent of a bound by which samples must be below it
    hold_s: float = 60.0  # seconds below the margin that clear a mark


@dataclass(frozen=True, slots=True)
class Measure:
    """One sample with its bounds; 0 stands for no bound."""

    kind: Kind
    value: int  # percent, or milliseconds
    orange: int
    red: int

    def bounds(self) -> tuple[tuple[Mark, int], ...]:
        return tuple((mark, bound) for mark, bound in ((Mark.RED, self.red), (Mark.ORANGE, self.orange)) if bound > 0)


@dataclass(frozen=True, slots=True)
class Latch:
    """The state of one bound: set by samples in a row at it or above it, cleared after ``hold_s`` below it."""

    is_set: bool = False
    high_count: int = 0  # samples in a row at the bound or above it
    low_since_s: float | None = None  # start of the present run of samples below the bound by the margin


@dataclass(frozen=True, slots=True)
class MarkWatch:
    """The state of a host or a service between samples."""

    latches: Mapping[tuple[Kind, Mark], Latch] = field(default_factory=dict)
    measures: tuple[Measure, ...] = ()  # of the last sample

    @property
    def mark(self) -> Mark:
        held = {mark for (_, mark), latch in self.latches.items() if latch.is_set}
        return next((mark for mark in (Mark.RED, Mark.ORANGE) if mark in held), Mark.GREEN)


def observe(watch: MarkWatch, measures: Sequence[Measure], now_s: float, policy: AdvicePolicy) -> MarkWatch:
    """Return the watch after one more sample; ``now_s`` is monotonic."""
    latches = {
        (one.kind, mark): _next(watch.latches.get((one.kind, mark), Latch()), one.value, bound, now_s, policy)
        for one in measures
        for mark, bound in one.bounds()
    }
    return MarkWatch(latches, tuple(measures))


def _next(latch: Latch, value: int, bound: int, now_s: float, policy: AdvicePolicy) -> Latch:
    if value >= bound:
        count = latch.high_count + 1
        return Latch(latch.is_set or count >= policy.sample_count, count)
    if value >= _low(bound, policy):
        return Latch(latch.is_set)
    since_s = now_s if latch.low_since_s is None else latch.low_since_s
    return Latch(latch.is_set and now_s - since_s < policy.hold_s, 0, since_s)


def _low(bound: int, policy: AdvicePolicy) -> float:
    return bound * (100 - policy.margin_percent) / 100


def host_measures(load: HostLoad, policy: AdvicePolicy) -> tuple[Measure, ...]:
    """Return the percentage of the whole host's cpu and memory in use, by pods and by other processes."""
    amounts = (
        (Kind.CPU, load.used.cpu_milli, load.total.cpu_milli),
        (Kind.MEMORY, load.used.memory_mib, load.total.memory_mib),
    )
    return tuple(
        Measure(kind, used * 100 // total, policy.orange_percent, policy.red_percent)
        for kind, used, total in amounts
        if total > 0
    )


def service_measures(latencies: Sequence[PodLatency], bounds: LatencyBounds) -> tuple[Measure, ...]:
    """Return the mean latencies over the pods of a service, weighted by requests; 0 without requests.

    Percentiles of a whole service cannot be computed from those of its pods.
    """
    total = max(sum(one.requests for one in latencies), 1)
    p50 = round(sum(one.p50_ms * one.requests for one in latencies) / total)
    p95 = round(sum(one.p95_ms * one.requests for one in latencies) / total)
    p99 = round(sum(one.p99_ms * one.requests for one in latencies) / total)
    return (
        Measure(Kind.P50, p50, 0, 0),
        Measure(Kind.P95, p95, bounds.p95_orange_ms, bounds.p95_red_ms),
        Measure(Kind.P99, p99, bounds.p99_orange_ms, bounds.p99_red_ms),
    )


def mark_text(watch: MarkWatch, policy: AdvicePolicy) -> str:
    """Return the reason of the mark with the numbers of the last sample."""
    mark, unset = watch.mark, Latch()
    texts = []
    for one in watch.measures:
        unit = UNITS[one.kind]
        if mark is Mark.GREEN:
            texts.append(f"{one.kind} {one.value} {unit}")
        elif watch.latches.get((one.kind, mark), unset).is_set:
            bound = dict(one.bounds())[mark]
            text = f"{one.kind} {one.value} {unit}, {mark.lower()} from {bound} {unit}"
            if one.value < bound:
                text += f" until it was below {_low(bound, policy):g} {unit} for {policy.hold_s:g} s"
            texts.append(text)
    return "; ".join(texts)
