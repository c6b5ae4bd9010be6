"""Idle jobs cost nothing, and a wake-up that dies with its process is found: by the sweep, and by roles that start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from peloton.api import convert
from peloton.model.ids import JobId, job_workflow_id, new_job_id
from peloton.model.job import JobState
from services.storage.storage import Storage
from services.wakers.sweep import PERIOD_S, SIGNAL_GRACE_S
from tests.e2e.local import Cluster, job_config, shell
from tests.e2e.shared import SIMULATED, Lend
from tests.nightly import NIGHTLY
from tests.waiting import QUIET_S

pytestmark = pytest.mark.xdist_group("faults")
WOKEN = "whose workflows had missed changes"


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(SIMULATED) as running:
        yield running


@pytest.fixture(scope="module")
def pool(cluster: Cluster) -> str:
    return cluster.pool("wakes")


@pytest.fixture
def storage(cluster: Cluster) -> Iterator[Storage]:
    """The storage by which a test writes like a process that is killed before it signals."""
    opened = Storage(cluster.local.database)
    yield opened
    opened.close()


def idle_job(cluster: Cluster, pool: str, storage: Storage) -> JobId:
    """A job whose pods run, which its workflow has seen."""
    job = JobId(cluster.submit(pool, instanceCount=2, defaultConfig=shell("sleep 10000")))
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 2}, "pods that run")
    cluster.wait(lambda: not list_noted(storage), "a quiet cluster")
    return job


def list_noted(storage: Storage) -> list[JobId]:
    return [job_id for _, job_id in storage.wakes.due(time.time_ns() * 2, 10)]


def events(cluster: Cluster, job: JobId) -> int:
    async def ask() -> int:
        from temporalio.client import Client

        client = await Client.connect(cluster.local.temporal)
        return (await client.get_workflow_handle(job_workflow_id(job)).describe()).history_length

    return asyncio.run(ask())


def woken_by(cluster: Cluster, role: str, since: int) -> bool:
    return any(line.startswith(f"{role}:") and WOKEN in line for line in cluster.log[since:])


def test_roles_that_start_wake_no_idle_job(cluster: Cluster, pool: str, storage: Storage) -> None:
    """An api, a resource manager and a host manager that start, the last one with a reconciliation of all pods, add no
    event to the history of an idle job."""
    job = idle_job(cluster, pool, storage)
    before = events(cluster, job)
    for role, said in (("api", "API at"), ("resmgr", "became leader"), ("hostmgr", "reconciliation complete")):
        since = len(cluster.log)
        cluster.kill(role)
        cluster.wait(
            lambda role=role, said=said, since=since: any(
                line.startswith(f"{role}:") and said in line for line in cluster.log[since:]
            ),
            f"a {role} that has started again",
        )
    other = cluster.submit(pool, instanceCount=1, defaultConfig=shell("true"))
    assert "SUCCEEDED" == cluster.finish(other)

    assert before == events(cluster, job)


def test_a_lost_creation_is_found_by_a_role_that_starts(cluster: Cluster, pool: str, storage: Storage) -> None:
    """The api is killed between the job's rows and its workflow."""
    idle_job(cluster, pool, storage)
    config, job = job_config(pool, instanceCount=1, defaultConfig=shell("true")), new_job_id()
    storage.jobs.create(convert.new_job_record(job, config, time.time_ns()), config, time.time_ns())
    since = len(cluster.log)
    cluster.kill("hostmgr")

    assert "SUCCEEDED" == cluster.finish(job)
    assert woken_by(cluster, "hostmgr", since) or woken_by(cluster, "resmgr", since)


@NIGHTLY
def test_a_lost_stop_is_found_by_the_sweep(cluster: Cluster, pool: str, storage: Storage) -> None:
    """The api is killed between the goal and the signal, and no role starts."""
    job, since, began_s = idle_job(cluster, pool, storage), len(cluster.log), time.monotonic()
    storage.jobs.set_goal(job, JobState.KILLED, time.time_ns())

    assert "KILLED" == cluster.finish(job, PERIOD_S + SIGNAL_GRACE_S + QUIET_S)
    assert woken_by(cluster, "resmgr", since)
    assert time.monotonic() - began_s < 2 * (PERIOD_S + SIGNAL_GRACE_S)
