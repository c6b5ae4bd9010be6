"""A kill -9 of each process, and a pause of all, in the middle of a job: it finishes, and nothing is launched twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId
from services.storage.storage import Storage
from tests.e2e.local import Cluster, shell
from tests.e2e.service import Service
from tests.e2e.shared import SIMULATED, Lend
from tests.nightly import nightly

pytestmark = pytest.mark.xdist_group("faults")
PODS = 160
"""Twice what the hosts hold."""
LEASES = {"resmgr": "resmgr", "hostmgr": "hostmgr/local"}
"""The lease of each role that has a leader."""


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(SIMULATED) as running:
        yield running


@pytest.mark.parametrize("victim", ["api", "worker", "resmgr", "hostmgr", "temporal"])
def test_a_job_survives_the_death_of(victim: str, cluster: Cluster) -> None:
    """Every instance runs to success although the process is killed half-way, and no run is launched twice."""
    pool = cluster.pool(f"victim-{victim}")
    job = cluster.submit(pool, instanceCount=PODS, defaultConfig=shell("sleep 1", cpu=0.5, memory=16))
    cluster.wait(lambda: cluster.counts(job).get("SUCCEEDED", 0) >= PODS // 5, "a fifth of the pods done")

    cluster.kill(victim)

    assert cluster.finish(job) == "SUCCEEDED"
    assert cluster.counts(job) == {"SUCCEEDED": PODS}
    assert list_launched_twice(cluster, job) == []


def test_a_job_survives_a_machine_that_sleeps(cluster: Cluster) -> None:
    """All processes are stopped until every lease has run out; then the job continues as before."""
    pool = cluster.pool("sleeper")
    job = cluster.submit(pool, instanceCount=PODS, defaultConfig=shell("sleep 1", cpu=0.5, memory=16))
    cluster.wait(lambda: cluster.counts(job).get("SUCCEEDED", 0) >= PODS // 5, "a fifth of the pods done")
    storage = Storage(cluster.local.database)

    with cluster.asleep():
        assert all(storage.leases.leader(lease, 0) for lease in LEASES.values())
        cluster.wait(
            lambda: not any(storage.leases.leader(x, time.time()) for x in LEASES.values()), "the end of the leases"
        )
    storage.close()

    assert cluster.finish(job) == "SUCCEEDED"
    assert cluster.counts(job) == {"SUCCEEDED": PODS}
    assert list_launched_twice(cluster, job) == []


def test_nothing_is_lost_with_the_store_of_temporal(cluster: Cluster) -> None:
    """The store is deleted amid running jobs, a queue and a rollout: all of them end, and no run is launched twice."""
    service = Service(cluster, cluster.pool("store-services"), 6).create().wait_running()
    service.replace("sleep 2000", batch_size=1)
    nap = shell("sleep 4", cpu=0.25, memory=16)
    few = [cluster.submit(cluster.pool(f"store-{i}"), instanceCount=3, defaultConfig=nap) for i in range(3)]
    queue = cluster.submit(cluster.pool("store", cpu=5), instanceCount=60, defaultConfig=nap)
    cluster.wait(lambda: cluster.counts(queue).keys() >= {"RUNNING", "PENDING"}, "pods that run, and others that wait")

    cluster.lose_temporal_store()

    assert ["SUCCEEDED"] * 4 == [cluster.finish(job) for job in (queue, *few)]
    service.wait_update("SUCCEEDED").wait_running()
    assert [2] * 6 == service.versions()
    pods = {queue: 60, few[0]: 3, service.id: 6}
    assert {job: [] for job in pods} == {job: list_launched_twice(cluster, job, count) for job, count in pods.items()}


@pytest.mark.parametrize("role", ["resmgr", nightly("hostmgr")])
def test_a_leader_that_was_replaced_while_it_slept_ends(role: str, cluster: Cluster) -> None:
    """Stopped in the middle of a job until its standby leads, it ends itself on waking, and the job does not notice."""
    pool = cluster.pool(f"replaced-{role}")
    job = cluster.submit(pool, instanceCount=PODS, defaultConfig=shell("sleep 1", cpu=0.5, memory=16))
    cluster.wait(lambda: cluster.counts(job).get("SUCCEEDED", 0) >= PODS // 5, "a fifth of the pods done")
    storage, lease, starts = Storage(cluster.local.database), LEASES[role], cluster.local.part(role).starts
    before = storage.leases.leader(lease, 0)

    with cluster.standby(role):
        with cluster.asleep(role):
            cluster.wait(lambda: storage.leases.leader(lease, time.time()) not in (None, "", before), "another leader")
        cluster.wait(lambda: cluster.local.part(role).starts > starts, "the end of the old one")
        assert cluster.finish(job) == "SUCCEEDED"
    storage.close()

    assert cluster.counts(job) == {"SUCCEEDED": PODS}
    assert list_launched_twice(cluster, job) == []
    cluster.wait(lambda: cluster.takes_pods(pool, next(iter(pod_hosts(cluster, job).values()))), "a leader again")


def list_launched_twice(cluster: Cluster, job: str, pods: int = PODS) -> list[str]:
    """Pod ids with more than one launch in storage, or that Mesos saw as duplicates."""
    storage = Storage(cluster.local.database)
    try:
        launches: Counter[str] = Counter()
        duplicates = []
        for instance in range(pods):
            for event in storage.pods.events(JobId(job), instance, None, 10):
                if event.state == "LAUNCHED":
                    launches[f"{instance}-{event.run_id}"] += 1
                if "duplicate" in event.message:
                    duplicates.append(f"{instance}-{event.run_id}")
        return duplicates + [pod for pod, count in launches.items() if count > 1]
    finally:
        storage.close()


def test_a_host_that_dies_and_returns_is_used_again(cluster: Cluster) -> None:
    """Pods of a killed host are LOST and retried elsewhere when the job allows failures; the others are not touched.
    Once it is back it takes pods."""
    pool = cluster.pool("host-loss")
    job = cluster.submit(
        pool, instanceCount=30, defaultConfig=shell("sleep 1000", cpu=1, memory=16, restartPolicy={"maxFailures": 3})
    )
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 30}, "all pods running")
    before = pod_hosts(cluster, job)
    host = before[0]

    control(cluster, "stop", host)

    cluster.wait(lambda: host not in pod_hosts(cluster, job).values(), "no pod there")
    cluster.wait(lambda: set(cluster.states(job).values()) == {"RUNNING"}, "all pods running elsewhere")
    assert {i for i, run in cluster.run_ids(job).items() if run > 1} == {i for i, at in before.items() if at == host}
    control(cluster, "start", host)
    assert cluster.takes_pods(pool, host)
    (lost, back) = [event for event in cluster.host_events(host) if event[0] in ("LEFT", "JOINED")][-2:]
    assert ("LEFT", True) == (lost[0], lost[1].endswith("its agent is no longer registered"))
    assert ("JOINED", True) == (back[0], back[1].startswith("Came back after "))
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert cluster.finish(job) == "KILLED"


def pod_hosts(cluster: Cluster, job: str) -> dict[int, str]:
    return {i: task.runtime.host for i, task in cluster.tasks(job).items()}


def control(cluster: Cluster, action: str, host: str) -> None:
    cluster.drill(f"agents/{host}/{action}", {"now": True})
