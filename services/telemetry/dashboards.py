"""Dashboards of Grafana, made of the table of metrics: ``python -m services.telemetry.dashboards`` writes
deploy/observability/dashboards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.telemetry.table import ROWS, TABLE, Kind, Row

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "observability" / "dashboards"
WIDTH, HEIGHT, COLUMNS = 12, 8, 2
QUANTILES = (0.5, 0.95, 0.99)
WINDOW = "$__rate_interval"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Dashboard:
    """A page of panels. ``begins``: beginnings of the names of its metrics; ``names``: those of an overview."""

    name: str
    title: str
    filters: tuple[str, ...]  # labels by which people choose
    begins: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def rows(self) -> list[Row]:
        if self.names:
            return [TABLE[name] for name in self.names]
        return [row for row in ROWS if row.name.startswith(self.begins)]


OVERVIEW = (
    "peloton.pool.queue_length",
    "peloton.pool.admitted",
    "peloton.pool.allocation",
    "peloton.hosts.free",
    "peloton.hosts.registered",
    "peloton.job.duration",
    "peloton.job.admission_time",
    "peloton.pod.launch_time",
    "peloton.grpc.calls",
    "peloton.db.duration",
    "peloton.leader.leads",
    "peloton.wakeups.waiting",
)
HOSTS = ("hosts", "placement", "launch", "pod", "status", "reconcile", "qos", "sla")
ROLES = (
    "job.duration",
    "api",
    "audit",
    "retention",
    "watch",
    "grpc",
    "db",
    "temporal",
    "activity",
    "wakeups",
    "sweep",
    "leader",
    "tls",
    "process",
)
DASHBOARDS = (
    Dashboard("overview", "Peloton: overview", (), names=OVERVIEW),
    Dashboard("pools", "Peloton: pools", ("pool",), ("peloton.pool.", "peloton.job.admission", "peloton.resmgr.")),
    Dashboard("hosts", "Peloton: hosts and pods", ("cluster",), tuple(f"peloton.{name}." for name in HOSTS)),
    Dashboard("roles", "Peloton: roles", ("role",), tuple(f"peloton.{name}" for name in ROLES)),
)


def render(dashboard: Dashboard) -> str:
    """Return the JSON that Grafana imports."""
    panels = [
        _panel(number, row, dashboard.filters, is_overview=bool(dashboard.names))
        for number, row in enumerate(dashboard.rows)
    ]
    whole = {
        "title": dashboard.title,
        "uid": f"peloton-{dashboard.name}",
        "tags": ["peloton"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [*_variables(dashboard)]},
        "panels": panels,
    }
    return json.dumps(whole, indent=1) + "\n"


def queries(row: Row, filters: Sequence[str], is_overview: bool = False) -> list[tuple[str, str]]:
    """Return the queries of a panel, each with the legend of its series."""
    chosen = _selector(row, filters)
    name = row.prometheus_name
    if row.kind is Kind.HISTOGRAM:
        by = "le" if is_overview or not row.labels else f"le, {row.labels[0]}"
        series = f"sum by ({by}) (rate({name}_bucket{chosen}[{WINDOW}]))"
        legend = "" if by == "le" else f" {{{{{row.labels[0]}}}}}"
        shares = QUANTILES if by == "le" else QUANTILES[-1:]
        return [(f"histogram_quantile({share}, {series})", f"p{share * 100:g}{legend}") for share in shares]
    labels = [label for label in row.labels if not (is_overview and label in ("pool", "method", "waker", "database"))]
    by = f" by ({', '.join(labels)})" if labels else ""
    value = f"rate({name}{chosen}[{WINDOW}])" if row.kind is Kind.COUNTER else f"{name}{chosen}"
    legend = " ".join(f"{{{{{label}}}}}" for label in labels) or row.help
    return [(f"sum{by} ({value})", legend)]


def _selector(row: Row, filters: Sequence[str]) -> str:
    found = [f'{label}=~"${label}"' for label in filters if label in (*row.labels, "role", "cluster")]
    return "{" + ", ".join(found) + "}" if found else ""


def _panel(number: int, row: Row, filters: Sequence[str], is_overview: bool) -> dict[str, Any]:
    unit = {"s": "s", "By": "bytes"}.get(row.unit, "short")
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": row.help[:1].upper() + row.help[1:] + (" per second" if row.kind is Kind.COUNTER else ""),
        "description": f"{row.prometheus_name}, of {row.roles.replace(' ', ', ')}",
        "datasource": SOURCE,
        "gridPos": {
            "h": HEIGHT,
            "w": WIDTH,
            "x": WIDTH * (number % COLUMNS),
            "y": HEIGHT * (number // COLUMNS),
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for index, (expr, legend) in enumerate(queries(row, filters, is_overview))
        ],
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    for label in dashboard.filters:
        metric = "peloton_pool_limit" if label == "pool" else "peloton_process_started_seconds"
        query = f"label_values({metric}, {label})"
        yield {
            "name": label,
            "type": "query",
            "label": label.capitalize(),
            "datasource": SOURCE,
            "query": {"query": query, "refId": label},
            "definition": query,
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
        }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(render(dashboard), encoding="utf-8")
