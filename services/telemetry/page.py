"""The text of docs/metrics.md, which ``python -m services.telemetry.page`` writes."""

from __future__ import annotations

from pathlib import Path

from services.telemetry.table import LABELS, ROWS, SERIES_MAX, Kind, Row

TARGET = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
OPENING = """# Metrics

Generated from the table of metrics by `python -m services.telemetry.page`; do not edit.
[Observability](observability.md) says how to get them.

The first name is that of Prometheus, the second that of OpenTelemetry. A histogram has the series `_bucket`, `_sum` and
`_count`. Every series that Prometheus scrapes has the label `role`, and `cluster` where the process is a host manager.
Amounts of resources are in cores, MiB and gpus. Only leaders report pools and hosts.

| metric | kind | unit | labels | roles | meaning |
|---|---|---|---|---|---|
"""
LABELS_OPENING = f"""
## Labels

Values of labels come from the table of pools, from the API and from code, never from the text of a request. A process
keeps at most {SERIES_MAX:,} series of one metric apart, and adds up further ones in a series with the label `overflow`.

| label | values | meaning |
|---|---|---|
"""


def page() -> str:
    labels = (f"| `{name}` | at most {most:,} | {text} |" for name, (most, text) in sorted(LABELS.items()))
    return "\n".join([OPENING + "\n".join(map(describe, ROWS)), LABELS_OPENING + "\n".join(labels), ""])


def describe(row: Row) -> str:
    """Return the line of a metric."""
    unit = {"s": "seconds", "By": "bytes"}.get(row.unit, row.unit.strip("{}") + "s")
    kind = row.kind.value
    if row.kind is Kind.HISTOGRAM:
        kind += f", {len(row.bounds)} bounds from {row.bounds[0]:g} to {row.bounds[-1]:g}"
    labels = ", ".join(f"`{label}`" for label in row.labels)
    names = f"`{row.prometheus_name}`<br>`{row.name}`"
    return f"| {names} | {kind} | {unit} | {labels} | {row.roles.replace(' ', ', ')} | {row.help} |"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
