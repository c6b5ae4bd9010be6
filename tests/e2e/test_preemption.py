"""Preemption from end to end: a pool gets back what it lent, and urgent work goes before the rest of its pool."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peloton.api.v0.task import task_pb2
from services.storage.gateway import Gateway
from tests.e2e.local import Cluster, shell, temporary

pytestmark = pytest.mark.xdist_group("preemption")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(temporary(tmp_path_factory.mktemp("preemption"), simulate=5)) as running:
        yield running


def pods(count: int, seconds: float, **config: object) -> dict[str, object]:
    """``count`` pods of one cpu that run for so long."""
    return {"instanceCount": count, "defaultConfig": shell(f"sleep {seconds}", cpu=1, memory=1), **config}


def evicted(cluster: Cluster, job: str) -> list[int]:
    """Instances whose events tell of an eviction, each once; asserts that no failure was counted."""
    gateway = Gateway(cluster.local.database)
    try:
        found = []
        for pod in gateway.pods(job):  # type: ignore[arg-type]
            told = [e for e in gateway.pod_events(pod.job_id, pod.instance_id, None, 0) if e.state == "PREEMPTING"]
            assert pod.failure_count == 0
            found += [pod.instance_id] * len(told)
        return found
    finally:
        gateway.close()


@pytest.mark.parametrize("victim", ["", "resmgr"])
def test_a_pool_gets_back_what_it_lent(victim: str, cluster: Cluster) -> None:
    """One pool's pods fill the cluster; the other's get their half while those still run, and they come back after
    it, none evicted twice, whether resmgr is killed in between or not."""
    cpus = int(cluster.capacity())
    half = cpus // 2
    lender = cluster.pool(f"lender-{victim}", own_cpu=half)
    borrower = cluster.pool(f"borrower-{victim}", own_cpu=cpus - half)
    big = cluster.submit(borrower, **pods(cpus, 25))
    cluster.wait(lambda: cluster.counts(big) == {"RUNNING": cpus}, "a full cluster")

    own = cluster.submit(lender, **pods(half, 4))
    if victim:
        cluster.wait(lambda: bool(evicted(cluster, big)), "the first evictions")
        cluster.kill(victim)

    cluster.wait(lambda: cluster.counts(own).get("RUNNING", 0) == half, "the lender's pods running")
    assert cluster.counts(big)["RUNNING"] == cpus - half
    assert cluster.finish(own) == "SUCCEEDED"
    assert cluster.finish(big) == "SUCCEEDED"
    assert sorted(evicted(cluster, big)) == list(range(cpus - half, cpus))
    assert cluster.run_ids(big) == {i: 1 if i < cpus - half else 2 for i in range(cpus)}
    events = cluster.client.tasks.GetPodEvents(
        task_pb2.GetPodEventsRequest(jobId={"value": big}, instanceId=cpus - 1, runId=f"{big}-{cpus - 1}-1")
    ).result
    told = next(event for event in events if event.actualState == "PREEMPTING")
    assert told.reason == "EvictionReason_PREEMPTION"
    assert told.message.startswith(f"evicting running task: preempted for job {own} of /lender-{victim}, which wants")
    delete_pools(cluster, f"/lender-{victim}", f"/borrower-{victim}")


def test_urgent_gang_goes_first_in_its_pool(cluster: Cluster) -> None:
    """A gang of four takes the place of the gang of three below it and of one single pod, no more; all succeed, and
    the evicted gang comes back whole."""
    pool = cluster.pool("priority", cpu=6)
    low = cluster.submit(pool, **pods(3, 20))
    gang = cluster.submit(pool, **pods(3, 20, sla={"minimumRunningInstances": 3, "priority": 1}))
    cluster.wait(lambda: [cluster.counts(job) for job in (low, gang)] == [{"RUNNING": 3}] * 2, "a full pool")

    urgent = cluster.submit(pool, **pods(4, 3, sla={"minimumRunningInstances": 4, "priority": 9}))

    cluster.wait(lambda: cluster.counts(urgent) == {"RUNNING": 4}, "the urgent gang running")
    assert [cluster.finish(job) for job in (urgent, low, gang)] == ["SUCCEEDED"] * 3
    assert (evicted(cluster, low), evicted(cluster, gang)) == ([2], [0, 1, 2])
    assert evicted(cluster, urgent) == []
    assert cluster.run_ids(gang) == {0: 2, 1: 2, 2: 2}
    delete_pools(cluster, "/priority")


def delete_pools(cluster: Cluster, *paths: str) -> None:
    from peloton.api.v0.respool import respool_pb2

    for path in paths:
        request = respool_pb2.DeleteRequest(path={"value": path})
        answer = cluster.client.respools.DeleteResourcePool(request)
        assert not answer.HasField("error"), answer.error
