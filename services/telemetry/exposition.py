"""Metrics in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from opentelemetry.sdk.metrics.export import Histogram, MetricsData, NumberDataPoint

from peloton.model.text import escape
from services.telemetry.table import TABLE, Row

LABEL_CHARS_MAX = 200
LINES_MAX = 500_000
"""Limit of the lines of one answer; the last line says when there are more."""
OVERFLOW = "otel.metric.overflow"
"""Label of the SDK for all label values beyond the limit of an instrument."""


def expose(data: MetricsData | None, own: Mapping[str, str]) -> bytes:
    """Return the metrics of the table as text; ``own`` are labels of every line."""
    lines: list[str] = []
    for line in _lines(data, own):
        if len(lines) == LINES_MAX:
            lines.append(f"# more than {LINES_MAX} lines are left out")
            break
        lines.append(line)
    return "\n".join([*lines, ""]).encode()


def _lines(data: MetricsData | None, own: Mapping[str, str]) -> Iterator[str]:
    for resource in data.resource_metrics if data is not None else ():
        for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
            row = TABLE.get(metric.name)
            if row is None or not metric.data.data_points:
                continue
            name = row.prometheus_name
            yield f"# HELP {name} {row.help}"
            yield f"# TYPE {name} {row.kind.value}"
            points: Iterable[Any] = metric.data.data_points
            yield from _buckets(row, points, own) if isinstance(metric.data, Histogram) else _values(row, points, own)


def _values(row: Row, points: Iterable[NumberDataPoint], own: Mapping[str, str]) -> Iterator[str]:
    for point in points:
        yield f"{row.prometheus_name}{_labels(own, point.attributes)} {_number(point.value)}"


def _buckets(row: Row, points: Iterable[Any], own: Mapping[str, str]) -> Iterator[str]:
    for point in points:
        count = 0
        for bound, more in zip((*point.explicit_bounds, math.inf), point.bucket_counts, strict=True):
            count += more
            yield f"{row.prometheus_name}_bucket{_labels(own, point.attributes, le=_number(bound))} {count}"
        labels = _labels(own, point.attributes)
        yield f"{row.prometheus_name}_sum{labels} {_number(point.sum)}"
        yield f"{row.prometheus_name}_count{labels} {point.count}"


def _labels(own: Mapping[str, str], found: Mapping[str, Any] | None, **more: str) -> str:
    pairs = {**own, **{_label(name): str(value) for name, value in (found or {}).items()}, **more}
    return "{" + ",".join(f'{name}="{quote(text)}"' for name, text in pairs.items()) + "}" if pairs else ""


def _label(name: str) -> str:
    return "overflow" if name == OVERFLOW else name


def quote(text: str) -> str:
    """Return a label's value of bounded length, without control characters, with Prometheus' escapes."""
    shown = escape(text[:LABEL_CHARS_MAX])
    return shown.replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.10g}" if isinstance(value, float) and not value.is_integer() else str(int(value))
