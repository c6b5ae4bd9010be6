"""Hosts on which nothing runs well: pods go elsewhere, and do not pay."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.local import Cluster, bound_to, shell
from tests.e2e.shared import SIMULATED, Lend
from tests.e2e.test_faults import control

pytestmark = pytest.mark.xdist_group("faults")  # its last module: the degraded host is avoided for some minutes
HOSTS, PER_HOST = 10, 10


@pytest.fixture(scope="module")
def farm(lend: Lend) -> Iterator[Cluster]:
    with lend(SIMULATED) as running:
        yield running


@pytest.fixture
def degraded(farm: Cluster) -> Iterator[str]:
    """A host on which every pod fails at once."""
    control(farm, "degrade", "sim-00001")
    yield "sim-00001"
    control(farm, "restore", "sim-00001")


def failures(cluster: Cluster, job: str) -> list[int]:
    """Return the failures of each pod."""
    return [task.runtime.failureCount for task in cluster.tasks(job).values()]


def hosts_used(cluster: Cluster, job: str) -> set[str]:
    return {task.runtime.host for task in cluster.tasks(job).values()}


def test_a_degraded_host_does_not_burn_a_job(farm: Cluster, degraded: str) -> None:
    """Pods fail once where everything fails, a tenth of them at most; then the job avoids that host, although the other
    hosts are full for longer than its retries wait."""
    pool, host_cpus = farm.pool("burnt"), farm.capacity() / HOSTS
    task = shell("sleep 12", cpu=host_cpus / PER_HOST, restartPolicy={"maxFailures": 3})

    job = farm.submit(pool, instanceCount=HOSTS * PER_HOST, defaultConfig=task)

    assert "SUCCEEDED" == farm.finish(job)
    assert {0, 1} == set(failures(farm, job))
    assert PER_HOST >= sum(failures(farm, job))
    assert degraded not in hosts_used(farm, job)


def test_a_host_on_which_several_jobs_fail_is_avoided(farm: Cluster, degraded: str) -> None:
    """Jobs that have never been there avoid the host, with the reason; pods that can run on no other host still run
    there."""
    pool = farm.pool("avoiding")
    there = bound_to("hostname", degraded)
    for _ in range(2):
        job = farm.submit(pool, instanceCount=3, defaultConfig=shell("true", **there))
        assert "FAILED" == farm.finish(job)

    assert re.match(r"after \d+ pods of \d jobs failed there within 1 s, until 2", farm.list_avoided()[degraded])
    farm.wait(lambda: any(kind == "AVOIDED" for kind, _ in farm.host_events(degraded)), "an event of that")
    reported = [text for kind, text in farm.host_events(degraded) if kind == "AVOIDED"]
    assert re.match(r"Avoided for \d+ (s|min) after \d+ pods of \d jobs failed there within 1 s$", reported[-1])
    elsewhere = farm.submit(pool, instanceCount=20, defaultConfig=shell("sleep 1", cpu=0.1))
    assert "SUCCEEDED" == farm.finish(elsewhere)
    assert degraded not in hosts_used(farm, elsewhere)

    control(farm, "restore", degraded)
    bound = farm.submit(pool, instanceCount=1, defaultConfig=shell("true", **there))
    assert "SUCCEEDED" == farm.finish(bound)
    assert [degraded] == [*farm.list_avoided()]
