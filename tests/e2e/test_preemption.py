"""Preemption from end to end: a pool reclaims the capacity that it lent, and urgent work goes before the rest of its
pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.gang import gang_pb2
from peloton.api.v0.history import history_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId
from services.storage.storage import Storage
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import SIMULATED, Lend
from tests.nightly import nightly

pytestmark = pytest.mark.xdist_group("simulated")


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(SIMULATED) as running:
        yield running


def pods(count: int, **config: object) -> dict[str, Any]:
    """``count`` pods of one cpu that run until they are stopped."""
    return {"instanceCount": count, "defaultConfig": shell("sleep 1000", cpu=1, memory=1), **config}


def stop(cluster: Cluster, job: str) -> None:
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert cluster.finish(job) == "KILLED"


def wait_running(cluster: Cluster, job: str, count: int, what: str) -> None:
    cluster.wait(lambda: list(cluster.states(job).values()).count("RUNNING") == count, what)


def list_evicted(cluster: Cluster, job: str) -> list[int]:
    """Instances that have an eviction among their events, each once; asserts that no failure was counted."""
    storage = Storage(cluster.local.database)
    try:
        found = []
        for pod in storage.pods.page(JobId(job)):
            reported = [e for e in storage.pods.events(pod.job_id, pod.instance_id, None, 0) if e.state == "PREEMPTING"]
            assert pod.failure_count == 0
            found += [pod.instance_id] * len(reported)
        return found
    finally:
        storage.close()


@pytest.mark.parametrize("victim", [nightly(""), "resmgr"])
def test_a_pool_gets_back_what_it_lent(victim: str, cluster: Cluster) -> None:
    """One pool's pods fill the cluster; the other's take their half while the first ones still run, and these come back
    after it, none evicted twice, whether resmgr is killed in between or not."""
    cpus = int(cluster.capacity())
    half = cpus // 2
    lender = cluster.pool(f"lender-{victim}", own_cpu=half)
    borrower = cluster.pool(f"borrower-{victim}", own_cpu=cpus - half)
    big = cluster.submit(borrower, **pods(cpus))
    wait_running(cluster, big, cpus, "a full cluster")

    own = cluster.submit(lender, **pods(half), name="owner")
    if victim:
        cluster.wait(lambda: bool(list_evicted(cluster, big)), "the first evictions")
        cluster.kill(victim)

    wait_running(cluster, own, half, "the lender's pods running")
    assert list(cluster.states(big).values()).count("RUNNING") == cpus - half
    stop(cluster, own)
    wait_running(cluster, big, cpus, "the evicted pods running again")
    assert sorted(list_evicted(cluster, big)) == list(range(cpus - half, cpus))
    assert cluster.run_ids(big) == {i: 1 if i < cpus - half else 2 for i in range(cpus)}
    events = cluster.client.tasks.GetPodEvents(
        task_pb2.GetPodEventsRequest(
            jobId=peloton_pb2.JobID(value=big), instanceId=cpus - 1, runId=f"{big}-{cpus - 1}-1"
        )
    ).result
    reported = next(event for event in events if event.actualState == "PREEMPTING")
    assert reported.reason == "EvictionReason_PREEMPTION"
    assert reported.message.startswith(
        f"evicting running task: preempted for job {own} of /lender-{victim}, which wants"
    )
    if not victim:  # a leader takes what it counted within the last period with it
        cluster.wait(
            lambda: count_preempted(cluster, f"/borrower-{victim}") == {f"/lender-{victim}": half}, "the marks"
        )
    stop(cluster, big)
    delete_pools(cluster, f"/lender-{victim}", f"/borrower-{victim}")


def count_live(cluster: Cluster, job: str) -> tuple[int, int]:
    """Return the live members of a gang with consecutive ranks, and its generation, as its pods see them."""
    gang = cluster.client.gangs.GetGang(gang_pb2.GetGangRequest(jobId=peloton_pb2.JobID(value=job)))
    ranks = [member.rank for member in gang.members if member.isLive]
    extras = [rank for rank in ranks if rank >= gang.minimum]
    assert extras == list(range(gang.minimum, gang.minimum + len(extras)))
    return len(ranks), gang.generation


def test_an_elastic_gang_shrinks_to_its_minimum_and_grows_back(cluster: Cluster) -> None:
    """A pool takes its reservation back: the pods beyond the gang of another pool leave, and return afterwards. The
    gang runs on in its first generation, and those that ask see the members that are left."""
    cpus, size = int(cluster.capacity()), 4
    owner, borrower = cluster.pool("owner", own_cpu=cpus - size), cluster.pool("elastic", own_cpu=size)
    elastic = cluster.submit(borrower, **pods(cpus, sla={"minimumRunningInstances": size}))
    cluster.wait(lambda: count_live(cluster, elastic) == (cpus, 1), "a gang at its maximum")

    own = cluster.submit(owner, **pods(cpus - size))
    wait_running(cluster, own, cpus - size, "the owner's pods running")
    cluster.wait(lambda: count_live(cluster, elastic) == (size, 1), "a gang at its minimum")
    stop(cluster, own)

    cluster.wait(lambda: count_live(cluster, elastic) == (cpus, 1), "a gang at its maximum again")
    assert sorted(list_evicted(cluster, elastic)) == list(range(size, cpus))
    stop(cluster, elastic)
    delete_pools(cluster, "/owner", "/elastic")


def test_urgent_gang_goes_first_in_its_pool(cluster: Cluster) -> None:
    """A gang of four takes the place of the gang of three below it and of one single pod, no more; when it has ended
    the evicted gang comes back whole, and so does the pod."""
    pool = cluster.pool("priority", cpu=6)
    low = cluster.submit(pool, **pods(3))
    gang = cluster.submit(pool, **pods(3, sla={"minimumRunningInstances": 3, "priority": 1}))
    for job in (low, gang):
        wait_running(cluster, job, 3, "a full pool")

    urgent = cluster.submit(pool, **pods(4, sla={"minimumRunningInstances": 4, "priority": 9}))

    wait_running(cluster, urgent, 4, "the urgent gang running")
    assert [list(cluster.states(job).values()).count("RUNNING") for job in (low, gang)] == [2, 0]
    stop(cluster, urgent)
    for job in (low, gang):
        wait_running(cluster, job, 3, "the evicted pods running again")
    assert (list_evicted(cluster, low), list_evicted(cluster, gang)) == ([2], [0, 1, 2])
    assert list_evicted(cluster, urgent) == []
    assert cluster.run_ids(gang) == {0: 2, 1: 2, 2: 2}
    for job in (low, gang):
        stop(cluster, job)
    delete_pools(cluster, "/priority")


def count_preempted(cluster: Cluster, path: str) -> dict[str, int]:
    """Preempted instances by the time series, by pool; asserts that they agree with the counted sums, and that no pool
    ever held more than the clusters had."""
    history = cluster.client.history
    (pool,) = history.GetPoolHistory(history_pb2.GetPoolHistoryRequest(paths=[path], step_s=60, kinds=["cpu"])).pools
    (local,) = history.GetClusterHistory(history_pb2.GetClusterHistoryRequest(step_s=60, kinds=["cpu"])).clusters
    columns = {column.quantity: column for column in pool.columns}
    sums = columns.get(history_pb2.QUANTITY_PREEMPTED, history_pb2.Column()).values
    found = {mark.for_pool: 0 for mark in pool.preemptions}
    for mark in pool.preemptions:
        found[mark.for_pool] += mark.instances
    assert sum(found.values()) == sum(sums)
    held = columns.get(history_pb2.QUANTITY_ALLOCATION, history_pb2.Column()).values
    (capacity,) = (each for each in local.columns if each.quantity == history_pb2.QUANTITY_CAPACITY)
    assert max(held, default=0) <= max([*capacity.values, *capacity.maxima]) == cluster.capacity()
    return found


def delete_pools(cluster: Cluster, *paths: str) -> None:
    from peloton.api.v0.respool import respool_pb2

    for path in paths:
        request = respool_pb2.DeleteRequest(path=respool_pb2.ResourcePoolPath(value=path))
        refused = respool_pb2.DeleteResponse.Error()

        def is_deleted(request: respool_pb2.DeleteRequest = request, refused: Any = refused) -> bool:
            """The resource manager sees the last end a little later than the test."""
            refused.CopyFrom(cluster.client.respools.DeleteResourcePool(request).error)
            return not refused.HasField("isBusy")

        cluster.wait(is_deleted, f"pool {path} idle")
        assert refused == respool_pb2.DeleteResponse.Error(), refused
