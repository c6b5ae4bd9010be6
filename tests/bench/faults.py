"""Speed at no cost of safety: under full load each process is killed, and no pod is lost or run twice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlmodel import col

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.api.v0.respool import respool_pb2
from peloton.model.pod import PodState
from services.local.cluster import LocalSettings
from services.storage.tables import Pod, PodEventRow
from tests.bench.cluster import PATIENCE_S, Cluster, cpu_seconds, peak_memory_mib
from tests.e2e.local import JOB_END, shell

VICTIMS = ("worker", "hostmgr", "resmgr", "api", "temporal")
BETWEEN_S = 4.0


def throughput_faults(
    pods: int = 100_000, hosts: int = 1_000, rounds: int = 3, between_s: float = BETWEEN_S
) -> dict[str, Any]:
    """100,000 empty pods on 1,000 simulated hosts, while each process is killed three times, one after the other, and
    the resource manager checks its books after each cycle (a broken one fails the case).
    """
    settings = LocalSettings(port=0, simulate=hosts, environment={"PELOTON_CHECK_INVARIANTS": "true"})
    with Cluster(settings) as cluster:
        pool = cluster.pool("bench")
        started_s = time.monotonic()
        job = cluster.submit(pool, instanceCount=pods, defaultConfig=shell("true", cpu=1, memory=64))
        kills = _killed(cluster, job, VICTIMS * rounds, between_s)
        state = cluster.finish(job, PATIENCE_S)
        seconds = time.monotonic() - started_s
        return {
            "hosts": hosts,
            "pods": pods,
            "kills": kills,
            "state": state,
            "seconds": round(seconds, 2),
            "pods_per_second": round(pods / seconds, 1),
            **_judged(cluster, job),
            "allocation_left": _allocation(cluster, pool),
            "peak_memory_mib": peak_memory_mib(cluster),
            "cpu_seconds": cpu_seconds(cluster),
        }


def _killed(cluster: Cluster, job: str, victims: Sequence[str], between_s: float) -> dict[str, int]:
    """Kill one process after the other, when so much time has passed and the API answers, until the job has ended."""
    kills: dict[str, int] = {}
    for victim in victims:
        seen: list[str] = []
        next_s = time.monotonic() + between_s

        def is_time(seen: list[str] = seen, next_s: float = next_s) -> bool:
            seen.append(cluster.job_state(job))
            return seen[-1] in JOB_END or time.monotonic() >= next_s

        cluster.wait(is_time, f"the time to kill {victim}", PATIENCE_S)
        if seen[-1] in JOB_END:
            break
        cluster.kill(victim)
        kills[victim] = kills.get(victim, 0) + 1
    return kills


def _judged(cluster: Cluster, job: str) -> dict[str, int]:
    """Return counts of all runs from storage."""
    event = PodEventRow
    launched = sa.and_(col(event.job_id) == job, col(event.state) == POD_STATE_NUMBERS[PodState.LAUNCHED])
    twice = sa.select(sa.func.count()).select_from(
        sa.select(event.instance_id)
        .where(launched)
        .group_by(col(event.instance_id), col(event.run_id))
        .having(sa.func.count() > 1)
        .subquery()
    )
    duplicates = sa.select(sa.func.count()).where(col(event.job_id) == job, col(event.message).contains("duplicate"))
    pods = sa.select(sa.func.count(), sa.func.sum(col(Pod.run_id))).where(
        col(Pod.job_id) == job, col(Pod.state) == POD_STATE_NUMBERS[PodState.SUCCEEDED]
    )
    engine = sa.create_engine(cluster.local.database)
    try:
        with engine.connect() as connection:
            succeeded, runs = connection.execute(pods).one()
            return {
                "pods_stored_succeeded": succeeded,
                "further_runs": runs - succeeded,
                "launched_twice": connection.execute(twice).scalar_one(),
                "duplicates_in_mesos": connection.execute(duplicates).scalar_one(),
            }
    finally:
        engine.dispose()


def _allocation(cluster: Cluster, pool: str) -> float:
    """Return the usage of the pool over all kinds, once the resource manager has seen the last end or the timeout has
    passed.
    """

    def held() -> float:
        request = respool_pb2.GetRequest(id={"value": pool})
        usage = cluster.client.respools.GetResourcePool(request).poolinfo.usage
        return sum(kind.allocation + kind.slack for kind in usage)

    cluster.wait(lambda: held() == 0, "an empty pool")
    return held()
