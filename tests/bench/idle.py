"""Start time of the first pod after an idle period in which Mesos makes no offers, and of the next one."""

from __future__ import annotations

import time
from typing import Any

from services.lab.local.cluster import LocalSettings
from tests.bench.cluster import Cluster
from tests.e2e.local import shell

ROUNDS = 3
POLL_S = 0.01
TIMEOUT_S = 120.0
SUPPRESSED = "suppressed offers"


def first_launch() -> dict[str, Any]:
    """One pod from submit to RUNNING on 1,000 idle hosts."""
    hosts = 1_000
    first_s: list[float] = []
    next_s: list[float] = []
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        pool = cluster.pool("bench")
        _launch(cluster, pool)  # the first of a new worker is another story
        for count in range(1, ROUNDS + 1):
            _wait_suppressed(cluster, count)
            first_s.append(_launch(cluster, pool))
            next_s.append(_launch(cluster, pool))
    return {"hosts": hosts, "first_running_seconds": max(first_s), "next_running_seconds": max(next_s)}


def _wait_suppressed(cluster: Cluster, times: int) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while sum(SUPPRESSED in line for line in cluster.log) < times:
        assert time.monotonic() < deadline_s, "hostmgr still wants offers"
        time.sleep(POLL_S)


def _launch(cluster: Cluster, pool: str) -> float:
    began_s = time.monotonic()
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("sleep 1", cpu=1, memory=64))
    while not any(cluster.runtime(job).taskStats[name] for name in ("RUNNING", "SUCCEEDED")):
        assert time.monotonic() - began_s < TIMEOUT_S, f"job {job} does not run"
        time.sleep(POLL_S)
    seconds = round(time.monotonic() - began_s, 2)
    cluster.finish(job)
    return seconds
