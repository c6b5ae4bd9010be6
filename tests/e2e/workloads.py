"""A job of each kind on a cluster from which pods are deleted by others, and the states they end in."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId
from services.storage.storage import Storage
from tests.e2e.local import Cluster, shell
from tests.e2e.service import SLEEP, Service


def stop(cluster: Cluster, job: str) -> None:
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert cluster.finish(job) == "KILLED"


def failures_of(cluster: Cluster, job: str) -> int:
    storage = Storage(cluster.local.database)
    try:
        return sum(pod.failure_count for pod in storage.pods.page(JobId(job)))
    finally:
        storage.close()


def again(cluster: Cluster, job: str) -> bool:
    """Return whether all of the job's pods run, none of them for the first time."""
    return 1 not in cluster.run_ids(job).values() and {"RUNNING"} == cluster.counts(job).keys()


@dataclass
class Workloads:
    """A service, a batch job that allows failures, and one that allows none."""

    cluster: Cluster
    service: Service
    batch: str
    strict: str

    @staticmethod
    def running(cluster: Cluster, pool: str) -> Workloads:
        patient = shell(SLEEP, restartPolicy={"maxFailures": 2})
        made = Workloads(
            cluster,
            Service(cluster, pool, 4).create(),
            cluster.submit(pool, instanceCount=4, defaultConfig=patient),
            cluster.submit(pool, instanceCount=2, defaultConfig=shell(SLEEP)),
        )
        made.service.wait_running()
        cluster.wait(lambda: cluster.counts(made.batch) == {"RUNNING": 4}, "the batch job running")
        cluster.wait(lambda: cluster.counts(made.strict) == {"RUNNING": 2}, "the job without retries running")
        return made

    def check_removed(self) -> None:
        """All of their pods were."""
        assert "KILLED" == self.cluster.finish(self.strict)
        self.cluster.wait(lambda: again(self.cluster, self.batch), "the batch job running again")
        self.service.wait(lambda: min(self.service.runs().values()) > 1, "other runs of the service")
        self.service.wait_running()
        assert dict.fromkeys(range(2), 1) == self.cluster.run_ids(self.strict)
        assert 0 == failures_of(self.cluster, self.batch)

    def end(self) -> None:
        stop(self.cluster, self.batch)
        self.service.delete(force=True)
        self.service.wait(lambda: not self.service.pods(), "the end of its pods")
