"""Metrics and logs of all processes, through a job, changes of leaders and a clean stop."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.api.v0.job import job_pb2
from services.telemetry.table import ROWS, Row
from tests.e2e.local import Cluster, job_config, shell, temporary
from tests.otlp_traces import Traces, receiving_traces

pytestmark = pytest.mark.xdist_group("observability")
ROLES = ("api", "worker", "resmgr", "hostmgr")
LEADERS = ("resmgr", "hostmgr")
RARE = {
    "peloton.api.refused",
    "peloton.audit.entries",
    "peloton.audit.lost",
    "peloton.db.errors",
    "peloton.db.retries",
    "peloton.leader.late_renewals",
    "peloton.pod.retries",
    "peloton.pool.preempted",
    "peloton.pool.requeued",
    "peloton.qos.evicted",
    "peloton.retention.archived",
    "peloton.retention.deleted",
    "peloton.retention.failures",
    "peloton.retention.transaction",
    "peloton.resmgr.broken_invariants",
    "peloton.sla.refused",
    "peloton.status.dropped",
    "peloton.sweep.jobs",
    "peloton.temporal.errors",
    "peloton.tls.certificate_expiry",
    "peloton.wakeups.failed",
}
"""Metrics of trouble and of TLS, which one job that succeeds does not have."""

HOPS = {
    ("peloton-api", "peloton.api.job.JobManager/Create"),
    ("peloton-api", "StartWorkflow:Job"),
    ("peloton-worker", "RunWorkflow:Job"),
    ("peloton-worker", "RunActivity:settle"),
    ("peloton-worker", "call resource manager"),
    ("peloton-resmgr", "peloton.private.resmgr.Admission/Enqueue"),
    ("peloton-resmgr", "admission"),
    ("peloton-worker", "call host manager"),
    ("peloton-hostmgr", "peloton.private.hostmgr.Hosts/PlaceAndLaunch"),
    ("peloton-hostmgr", "reports of pods"),
}
"""Services and spans on the way of a job."""
SELDOM = {
    ("worker", "peloton.job.duration"),
    ("hostmgr", "peloton.grpc.peer_calls"),
    ("hostmgr", "peloton.grpc.peer_duration"),
    ("resmgr", "peloton.temporal.duration"),
}
"""Metrics that other roles have after one job."""


@pytest.fixture(scope="module")
def traces() -> Iterator[Traces]:
    with receiving_traces() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, traces: Traces) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("observed")
    environment = {
        "PELOTON_LOG_FORMAT": "json",
        "PELOTON_OTLP": traces.address,
        "PELOTON_TRACE_RATIO": "1e-9",  # of calls whose callers decide nothing
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
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


def test_one_trace_has_all_hops_of_a_job(cluster: Cluster, traces: Traces) -> None:
    """The trace that a client names goes through api, workflow, activities, admission and launch to the reports of the
    pods, and has no more spans than there are batches.
    """
    config = job_config(cluster.pool("traced"), instanceCount=50, defaultConfig=shell("sleep 1", cpu=0.01))
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    metadata = (("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01"),)

    job = cluster.client.jobs.Create(job_pb2.CreateRequest(config=config), metadata=metadata).jobId.value
    assert cluster.finish(job) == "SUCCEEDED"

    cluster.wait(lambda: HOPS <= traces.hops(trace_id), f"{HOPS} in {traces.hops(trace_id)}")
    assert len(traces.spans[trace_id]) < 40
    assert traces.spans.keys() == {trace_id}
    assert traces.orphans(trace_id) == {"00f067aa0ba902b7"}


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
