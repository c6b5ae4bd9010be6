"""Metrics and logs of all processes, through a job, changes of leaders and a clean stop."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.telemetry.table import ROWS, Row
from tests.e2e.local import Cluster, shell, temporary

pytestmark = pytest.mark.xdist_group("observability")
ROLES = ("api", "worker", "resmgr", "hostmgr")
LEADERS = ("resmgr", "hostmgr")
RARE = {
    "peloton.api.refused",
    "peloton.db.errors",
    "peloton.db.retries",
    "peloton.leader.late_renewals",
    "peloton.pod.retries",
    "peloton.pool.preempted",
    "peloton.pool.requeued",
    "peloton.qos.evicted",
    "peloton.resmgr.broken_invariants",
    "peloton.sla.refused",
    "peloton.status.dropped",
    "peloton.sweep.jobs",
    "peloton.temporal.errors",
    "peloton.wakeups.failed",
}
"""Metrics of trouble, which one job that succeeds does not have."""

SELDOM = {
    ("hostmgr", "peloton.grpc.peer_calls"),
    ("hostmgr", "peloton.grpc.peer_duration"),
    ("resmgr", "peloton.temporal.duration"),
}
"""Metrics that other roles have after one job."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("observed")
    environment = {"PELOTON_LOG_FORMAT": "json"}
    with Cluster(temporary(folder, simulate=4, metrics=True, environment=environment)) as running:
        yield running


def scrape(cluster: Cluster, part: str) -> set[str]:
    """Return the names that a role exposes."""
    url = f"http://127.0.0.1:{cluster.local.metrics_ports[part]}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split()[2] for line in lines if line.startswith("# TYPE")}


def is_usual(row: Row, role: str) -> bool:
    return role in row.roles.split() and row.name not in RARE and (role, row.name) not in SELDOM


def run_job(cluster: Cluster, pool: str) -> str:
    job = cluster.submit(cluster.pool(pool), instanceCount=3, defaultConfig=shell("sleep 1"))
    assert cluster.finish(job) == "SUCCEEDED"
    return job


def test_each_role_exposes_its_metrics(cluster: Cluster) -> None:
    """Every role exposes, after one job, the metrics that the table promises of it, except those of trouble."""
    run_job(cluster, "scraped")

    def missing() -> set[tuple[str, str]]:
        found = {role: scrape(cluster, role) for role in ROLES}
        return {
            (role, row.name)
            for role in ROLES
            for row in ROWS
            if is_usual(row, role) and row.prometheus_name not in found[role]
        }

    cluster.wait(lambda: not missing(), f"the metrics {missing()}")
    assert "temporal_request" in scrape(cluster, "worker, Temporal's SDK")


def test_start_change_of_leaders_and_stop_log_no_error(cluster: Cluster) -> None:
    """A job, the death and the clean stop of each leader, and a stop of all are no errors: no person must act."""
    for role in LEADERS:
        cluster.kill(role)
        run_job(cluster, f"after-{role}")
        cluster.stop_part(role)
        cluster.start_part(role)
        run_job(cluster, f"again-{role}")
    for role in ROLES:
        cluster.stop_part(role)

    lines = [json.loads(text) for part, _, text in (line.partition(": ") for line in cluster.log) if text[:1] == "{"]
    assert [line for line in lines if line["level"] not in ("DEBUG", "INFO", "WARNING")] == []
    assert [line for line in cluster.log if "ERROR" in line and "{" not in line] == []
    assert {line["role"] for line in lines} == set(ROLES)
