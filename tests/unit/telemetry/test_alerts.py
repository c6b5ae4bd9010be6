"""Alerts and dashboards are made of the tables, name metrics that exist, and fire when they should."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from services.telemetry import alerts, dashboards
from services.telemetry.alerts import ALERTS
from services.telemetry.dashboards import DASHBOARDS
from services.telemetry.table import ROWS, Kind
from tests.nightly import NIGHTLY
from tests.promtool import run_promtool

pytestmark = pytest.mark.slow

NAME = re.compile(r"\bpeloton_[a-z0-9_]+")
NAMES = {
    row.prometheus_name + suffix
    for row in ROWS
    for suffix in (("_bucket", "_sum", "_count") if row.kind is Kind.HISTOGRAM else ("",))
}
HEALTHY = {
    'up{job="peloton"}': "1x180",
    'peloton_leader_leads{lease="resmgr"}': "1x180",
    'peloton_hosts_registered{cluster="a",state="up"}': "20x180",
    'peloton_hosts_registered{cluster="a",state="unavailable"}': "1x180",
    'peloton_pool_queue_length{pool="/a",queue="ordinary"}': "5x180",
    'peloton_pool_admitted_total{pool="/a"}': "0+10x180",
    'peloton_pool_allocation{pool="/a",kind="cpu"}': "9x180",
    'peloton_pool_entitlement{pool="/a",kind="cpu"}': "10x180",
    'peloton_pool_demand{pool="/a",kind="cpu"}': "5x180",
    'peloton_launch_pods_total{cluster="a",outcome="launched"}': "0+100x180",
    'peloton_launch_pods_total{cluster="a",outcome="failed"}': "0+1x180",
    'peloton_process_started_seconds{role="api"}': "100x180",
    'peloton_tls_certificate_expiry_seconds{role="api"}': "5000000x180",
    'peloton_grpc_calls_total{method="S/M",code="OK"}': "0+100x180",
    'peloton_db_errors_total{role="api",error="conflict"}': "0+100x180",
    'peloton_activity_duration_seconds_count{activity="settle",outcome="done"}': "0+100x180",
    'peloton_activity_duration_seconds_count{activity="settle",outcome="failed"}': "0+1x180",
    "peloton_status_waiting": "100x180",
    "peloton_wakeups_waiting": "10x180",
}
"""Three hours of a cluster at work, one value a minute."""


def slow(name: str, labels: str = "") -> dict[str, str]:
    """Return a histogram whose values are all above its last but one bound."""
    return {
        f'{name}_bucket{{{labels}le="1"}}': "0x180",
        f'{name}_bucket{{{labels}le="10"}}': "0+100x180",
        f'{name}_bucket{{{labels}le="+Inf"}}': "0+100x180",
    }


FAULTS: dict[str, dict[str, str]] = {
    "PelotonNoLeader": {'peloton_leader_leads{lease="resmgr"}': "1x150 0x30"},
    "PelotonProcessDown": {'up{job="peloton"}': "1x150 0x30"},
    "PelotonProcessRestarts": {'peloton_process_started_seconds{role="api"}': "100x170 1 2 3 4 5 6 7 8 9 10"},
    "PelotonLeaseLate": {'peloton_leader_late_renewals_total{lease="resmgr"}': "0+1x180"},
    "PelotonBrokenInvariant": {"peloton_resmgr_broken_invariants_total": "0x175 1x5"},
    "PelotonQueueStuck": {'peloton_pool_admitted_total{pool="/a"}': "0+10x60 600x120"},
    "PelotonAllocationLow": {'peloton_pool_allocation{pool="/a",kind="cpu"}': "1x180"},
    "PelotonAdmissionSlow": slow("peloton_resmgr_cycle_time_seconds"),
    "PelotonNoHosts": {'peloton_hosts_registered{cluster="b",state="up"}': "0x180"},
    "PelotonHostsUnavailable": {'peloton_hosts_registered{cluster="a",state="unavailable"}': "10x180"},
    "PelotonLaunchesFail": {'peloton_launch_pods_total{cluster="a",outcome="failed"}': "0+50x180"},
    "PelotonReportsWait": {"peloton_status_waiting": "20000x180"},
    "PelotonReconcileFails": {'peloton_reconcile_rounds_total{cluster="a",outcome="failed"}': "0+1x180"},
    "PelotonDisruptionsRefused": {"peloton_sla_refused_total": "0+1x180"},
    "PelotonDatabaseErrors": {'peloton_db_errors_total{role="api",error="unavailable"}': "0+60x180"},
    "PelotonDatabaseSlow": slow("peloton_db_duration_seconds", 'role="api",'),
    "PelotonTemporalErrors": {'peloton_temporal_errors_total{role="api"}': "0+60x180"},
    "PelotonSignalsWait": {"peloton_wakeups_waiting": "5000x180"},
    "PelotonActivitiesFail": {
        'peloton_activity_duration_seconds_count{activity="settle",outcome="failed"}': "0+50x180"
    },
    "PelotonCertificateExpires": {'peloton_tls_certificate_expiry_seconds{role="api"}': "100000x180"},
    "PelotonCallsFail": {'peloton_grpc_calls_total{method="S/M",code="INTERNAL"}': "0x175 1x5"},
    "PelotonCallsRefused": {'peloton_api_refused_total{rule="jobs_waiting"}': "0+10x180"},
}
"""Series that differ from the healthy ones when an alert must fire."""


def test_generated_files_are_current() -> None:
    """The files in deploy and the page of runbooks are what the tables make."""
    assert alerts.render_rules() == alerts.RULES.read_text(encoding="utf-8")
    assert alerts.render_runbooks() == alerts.RUNBOOKS.read_text(encoding="utf-8")
    made = {f"{one.name}.json": dashboards.render(one) for one in DASHBOARDS}
    assert made == {path.name: path.read_text(encoding="utf-8") for path in dashboards.FOLDER.iterdir()}


def test_each_alert_has_a_runbook() -> None:
    """The annotation of each alert leads to a section that says what it means and what to do."""
    found = alerts.RUNBOOKS.read_text(encoding="utf-8").split("\n## ")[1:]
    sections = {f"docs/alerts.md#{section.splitlines()[0].lower()}": section for section in found}

    assert {one.runbook for one in ALERTS} == sections.keys()
    assert [name for name, section in sections.items() if "\n1. " not in section] == []


def test_alerts_and_dashboards_name_metrics_of_the_table() -> None:
    """A metric that is renamed takes its alerts and dashboards along, and every metric is in a dashboard."""
    shown = [
        name
        for one in DASHBOARDS
        for panel in json.loads(dashboards.render(one))["panels"]
        for target in panel["targets"]
        for name in NAME.findall(target["expr"])
    ]

    assert {name for one in ALERTS for name in NAME.findall(one.expr)} | set(shown) <= NAMES
    families = {row.prometheus_name for row in ROWS}
    assert [name for name in families if not any(found.startswith(name) for found in shown)] == []


def test_each_alert_has_a_case() -> None:
    """No alert is added without series that make it fire."""
    assert [one.name for one in ALERTS] == list(FAULTS)


def write_case(folder: Path, faults: dict[str, str], expected: list[str]) -> Path:
    """Write a test of rules: which alerts fire after three hours."""
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in expected]
    case = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in {**HEALTHY, **faults}.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "179m",
                "exp_samples": samples,
            }
        ],
    }
    path = folder / "case.yaml"
    path.write_text(
        json.dumps({"rule_files": [str(alerts.RULES)], "evaluation_interval": "1m", "tests": [case]}), encoding="utf-8"
    )
    return path


@NIGHTLY
def test_no_alert_fires_on_a_healthy_cluster(tmp_path: Path) -> None:
    """A cluster at work, with some waiting pods, conflicts and failures, asks nothing of a person."""
    run_promtool("check", "rules", str(alerts.RULES))
    run_promtool("test", "rules", str(write_case(tmp_path, {}, [])))


@NIGHTLY
@pytest.mark.parametrize("name", FAULTS)
def test_an_alert_fires_alone(name: str, tmp_path: Path) -> None:
    """The alert of a fault fires, and no other one does."""
    run_promtool("test", "rules", str(write_case(tmp_path, FAULTS[name], [name])))
