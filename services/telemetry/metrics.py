"""Instruments by the names of the table. Without an exporter they record nothing and cost a call that returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation

from services.telemetry.table import TABLE, Kind, Row

METER = metrics.get_meter("peloton")
Observe = Callable[[CallbackOptions], Iterable[Observation]]


def counter(name: str, meter: Meter | None = None) -> Counter:
    """Return the counter of this name. Raises KeyError when the table has none."""
    row = _row(name, Kind.COUNTER)
    return (meter or METER).create_counter(row.name, row.unit, row.help)


def histogram(name: str, meter: Meter | None = None) -> Histogram:
    """Return the histogram of this name. Raises KeyError when the table has none."""
    row = _row(name, Kind.HISTOGRAM)
    make = (meter or METER).create_histogram
    return make(row.name, row.unit, row.help, explicit_bucket_boundaries_advisory=row.bounds)


def register_gauge(name: str, read: Observe, meter: Meter | None = None) -> None:
    """Read a gauge by ``read`` whenever metrics are collected. Raises KeyError when the table has none."""
    row = _row(name, Kind.GAUGE)
    (meter or METER).create_observable_gauge(row.name, [read], row.unit, row.help)


@contextmanager
def timing(durations: Histogram, labels: Mapping[str, str] | None = None) -> Iterator[None]:
    """Record the seconds of the block, also when it raises."""
    began_s = time.perf_counter()
    try:
        yield
    finally:
        durations.record(time.perf_counter() - began_s, labels)


def _row(name: str, kind: Kind) -> Row:
    row = TABLE[name]
    if row.kind is not kind:
        raise KeyError(f"metric {name} is a {row.kind}, not a {kind}")
    return row
