"""Gangs from end to end: all of one runs or nothing of it does, in placement, launch, failure and stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId
from services.storage.storage import Storage
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import FOUR_HOSTS, Lend
from tests.messages import instance_range
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("gangs")

HOSTS, CPUS = 4, 4.0


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(FOUR_HOSTS) as running:
        yield running


def gang(size: int, seconds: float, cpu: float = 1, count: int = 0, **config: object) -> dict[str, Any]:
    """Pods that run for so long, the first ``size`` of which are a gang."""
    task: dict[str, Any] = {"defaultConfig": shell(f"sleep {seconds}", cpu=cpu, memory=1), **config}
    return {"instanceCount": count or size, "sla": {"minimumRunningInstances": size}, **task}


def why(cluster: Cluster, job: str) -> str:
    return str(cluster.client.explain.JobWhy(explain_pb2.JobWhyRequest(jobId=peloton_pb2.JobID(value=job))).text)


def launches(cluster: Cluster, job: str, size: int) -> dict[int, list[int]]:
    """Run -> members of the gang that were launched in it, each as often as it was."""
    storage = Storage(cluster.local.database)
    try:
        found: dict[int, list[int]] = {}
        for instance in range(size):
            for event in storage.pods.events(JobId(job), instance, None, 0):
                if event.state == "LAUNCHED":
                    found.setdefault(event.run_id, []).append(instance)
        return found
    finally:
        storage.close()


@NIGHTLY
def test_a_gang_without_hosts_for_all_is_passed_by(cluster: Cluster) -> None:
    """A gang of four does not run while only three hosts have free resources; after the timeout its allocation is
    released, other pods use it, and when there are hosts all of the gang runs."""
    pool = cluster.pool("fragmented")
    filler = cluster.submit(pool, instanceCount=1, defaultConfig=shell("sleep 600", cpu=2, memory=1))
    cluster.wait(lambda: cluster.counts(filler) == {"RUNNING": 1}, "the filler running")
    four = cluster.submit(pool, **gang(4, 5, cpu=3))
    cluster.wait(lambda: "gang of 4 waits for hosts for all of it" in why(cluster, four), "a gang that waits for hosts")
    others = cluster.submit(pool, instanceCount=3, defaultConfig=shell("sleep 2", cpu=3, memory=1))

    cluster.wait(lambda: "in backoff for" in why(cluster, four), "the gang in backoff")
    reported = cluster.task(four, 3).runtime.message
    assert reported.startswith("queued again: no hosts for all 4 members of the gang in 5 s: ")
    assert cluster.finish(others) == "SUCCEEDED"
    assert set(cluster.counts(four)) == {"PENDING"}
    assert launches(cluster, four, 4) == {}

    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=filler)))
    assert cluster.finish(four) == "SUCCEEDED"  # it is in backoff for a minute the second time
    assert launches(cluster, four, 4) == {1: [0, 1, 2, 3]}


def test_a_gang_is_retried_and_fails_as_one(cluster: Cluster) -> None:
    """A failed member ends the others, which run again with it; when it may not be retried all end, and the job has
    failed. The pod outside the gang is not affected."""
    pool = cluster.pool("retried")
    again = {"restartPolicy": {"maxFailures": 2}}
    task: dict[str, Any] = shell("sleep 60", cpu=1, memory=1, **again)
    bad: dict[str, Any] = {
        "instanceConfig": {"1": shell("sleep 3; exit 3", cpu=1, memory=1), "4": shell("sleep 1", cpu=1, memory=1)}
    }
    job = cluster.submit(pool, **gang(4, 60, count=5, **bad) | {"defaultConfig": task})

    assert cluster.finish(job) == "FAILED"
    assert cluster.states(job) == {0: "KILLED", 1: "FAILED", 2: "KILLED", 3: "KILLED", 4: "SUCCEEDED"}
    assert cluster.run_ids(job) == {0: 2, 1: 2, 2: 2, 3: 2, 4: 1}
    assert [cluster.task(job, i).runtime.failureCount for i in range(4)] == [0, 2, 0, 0]
    assert launches(cluster, job, 4) == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}
    assert cluster.task(job, 0).runtime.reason == "Gang ends: instance 1 is FAILED"


def test_who_stops_a_member_stops_the_gang(cluster: Cluster) -> None:
    """The answer names all pods that were stopped; the pod outside the gang runs on."""
    pool = cluster.pool("stopped")
    job = cluster.submit(pool, **gang(3, 600, count=4))
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 4}, "all running")

    request = task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job), ranges=[instance_range(1, 2)])
    assert list(cluster.client.tasks.Stop(request).stoppedInstanceIds) == [0, 1, 2]

    cluster.wait(lambda: cluster.counts(job) == {"KILLED": 3, "RUNNING": 1}, "the gang stopped")
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert cluster.finish(job) == "KILLED"


@pytest.mark.parametrize("victim", ["worker", "resmgr", "hostmgr"])
def test_a_launch_survives_the_death_of(victim: str, cluster: Cluster) -> None:
    """Killed as soon as it is admitted, the gang still starts whole, no member twice in one run."""
    cluster.wait(lambda: cluster.capacity() == HOSTS * CPUS, "everybody back after the last death")
    pool = cluster.pool(f"launch-{victim}")
    size = 12
    job = cluster.submit(pool, **gang(size, 2))
    cluster.wait(lambda: bool(set(cluster.states(job).values()) - {"INITIALIZED", "PENDING"}), "the admission")

    cluster.kill(victim)

    assert cluster.finish(job) == "SUCCEEDED"
    found = launches(cluster, job, size)
    assert found == {run: list(range(size)) for run in found}
    assert cluster.counts(job) == {"SUCCEEDED": size}
