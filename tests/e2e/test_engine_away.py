"""Workers and Temporal stand still: the overview and ``job why`` say so until they are back."""

from __future__ import annotations

from pathlib import Path

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.peloton_pb2 import JobID
from tests.e2e.local import Cluster, shell, temporary

NO_WORKER, NO_TEMPORAL = "No worker takes work from Temporal", "Temporal at"


def is_wrong(cluster: Cluster, beginning: str) -> bool:
    problems = cluster.client.overview.GetOverview(overview_pb2.GetOverviewRequest()).problems
    return any(problem.text.startswith(beginning) for problem in problems)


def why(cluster: Cluster, job: str) -> str:
    return cluster.client.explain.JobWhy(explain_pb2.JobWhyRequest(jobId=JobID(value=job))).text


def test_problems_name_workers_and_temporal_while_they_are_away(tmp_path: Path) -> None:
    """A job that was created meanwhile starts when they are back."""
    with Cluster(temporary(tmp_path / "data", simulate=2)) as cluster:
        pool = cluster.pool("away")
        with cluster.asleep("worker"):
            cluster.wait(lambda: is_wrong(cluster, NO_WORKER), "a problem that names the workers")
            job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("sleep 10000"))
            cluster.wait(lambda: "no worker takes its work" in why(cluster, job), "job why that names the workers")
        cluster.wait(lambda: not is_wrong(cluster, NO_WORKER), "no problem of the workers")
        with cluster.asleep("temporal"):
            cluster.wait(lambda: is_wrong(cluster, NO_TEMPORAL), "a problem that names Temporal")
            assert not is_wrong(cluster, NO_WORKER)
            cluster.wait(lambda: NO_TEMPORAL in why(cluster, job), "job why that names Temporal")
        cluster.wait(lambda: not is_wrong(cluster, NO_TEMPORAL), "no problem of Temporal")
        cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 1}, "a pod that runs")
