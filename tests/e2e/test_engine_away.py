"""Workers and Temporal stand still: the overview and ``job why`` say so until they are back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.peloton_pb2 import JobID
from services.temporal.worker_fleet import POLL_S
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import SIMULATED, Lend
from tests.nightly import NIGHTLY
from tests.waiting import QUIET_S

pytestmark = pytest.mark.xdist_group("faults")
NO_WORKER, NO_TEMPORAL = "No worker takes work from Temporal", "Temporal at"


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(SIMULATED) as running:
        yield running


def is_wrong(cluster: Cluster, beginning: str) -> bool:
    problems = cluster.client.overview.GetOverview(overview_pb2.GetOverviewRequest()).problems
    return any(problem.text.startswith(beginning) for problem in problems)


def why(cluster: Cluster, job: str) -> str:
    return cluster.client.explain.JobWhy(explain_pb2.JobWhyRequest(jobId=JobID(value=job))).text


def test_problems_name_temporal_while_it_is_away(cluster: Cluster) -> None:
    """The overview names Temporal and not its workers, which have no server to ask; a job that waits says so, and runs
    later."""
    pool = cluster.pool("temporal")
    with cluster.asleep("worker"):
        job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("sleep 10000"))
        with cluster.asleep("temporal"):
            cluster.wait(lambda: is_wrong(cluster, NO_TEMPORAL), "a problem that names Temporal")
            assert not is_wrong(cluster, NO_WORKER)
            cluster.wait(lambda: NO_TEMPORAL in why(cluster, job), "job why that names Temporal")
    cluster.wait(lambda: not is_wrong(cluster, NO_TEMPORAL), "no problem of Temporal")
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 1}, "a pod that runs")


@NIGHTLY
def test_problems_name_workers_while_they_are_away(cluster: Cluster) -> None:
    """A worker that stands still is missed when its last poll is over; a job that is created meanwhile starts later."""
    pool = cluster.pool("workers")
    with cluster.asleep("worker"):
        cluster.wait(lambda: is_wrong(cluster, NO_WORKER), "a problem that names the workers", POLL_S + QUIET_S)
        job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("sleep 10000"))
        cluster.wait(lambda: "no worker takes its work" in why(cluster, job), "job why that names the workers")
    cluster.wait(lambda: not is_wrong(cluster, NO_WORKER), "no problem of the workers")
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 1}, "a pod that runs")
