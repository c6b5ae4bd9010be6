"""Speed at no cost of safety: under full load each process is killed, and no pod is lost or run twice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlmodel import col

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.model.pod import PodState
from services.lab.local.cluster import LocalSettings
from services.storage.tables import Pod, PodEventRow
from tests.bench.cluster import TIMEOUT_S, Cluster, cpu_seconds, peak_memory_mib
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
        kills = _kill_and_count(cluster, job, VICTIMS * rounds, between_s)
        state = cluster.finish(job, TIMEOUT_S)
        seconds = time.monotonic() - started_s
        figures = run_figures(cluster, PodState.SUCCEEDED, job)
        return {
            "hosts": hosts,
            "pods": pods,
            "kills": kills,
            "state": state,
            "seconds": round(seconds, 2),
            "pods_per_second": round(pods / seconds, 1),
            "pods_stored_succeeded": figures.pop("pods"),
            **figures,
            "allocation_left": _allocation(cluster, pool),
            "peak_memory_mib": peak_memory_mib(cluster),
            "cpu_seconds": cpu_seconds(cluster),
        }


def _kill_and_count(cluster: Cluster, job: str, victims: Sequence[str], between_s: float) -> dict[str, int]:
    """Kill one process after the other, when so much time has passed and the API answers, until the job has ended."""
    kills: dict[str, int] = {}
    for victim in victims:
        seen: list[str] = []
        next_s = time.monotonic() + between_s

        def is_time(seen: list[str] = seen, next_s: float = next_s) -> bool:
            seen.append(cluster.job_state(job))
            return seen[-1] in JOB_END or time.monotonic() >= next_s

        cluster.wait(is_time, f"the time to kill {victim}", TIMEOUT_S)
        if seen[-1] in JOB_END:
            break
        cluster.kill(victim)
        kills[victim] = kills.get(victim, 0) + 1
    return kills


def run_figures(cluster: Cluster, state: PodState, job: str = "") -> dict[str, int]:
    """Figures from storage about all runs of pods, those of one job if it is named: ``pods`` that are in the state,
    their ``further_runs`` after the first, launches of one run more than once, and duplicates that Mesos saw."""
    run = (col(PodEventRow.job_id), col(PodEventRow.instance_id), col(PodEventRow.run_id))
    events = [col(PodEventRow.job_id) == job] if job else []
    launched = col(PodEventRow.state) == POD_STATE_NUMBERS[PodState.LAUNCHED]
    launches = sa.select(sa.func.count()).where(launched, *events).group_by(*run).having(sa.func.count() > 1)
    twice = sa.select(sa.func.count()).select_from(launches.subquery())
    duplicates = sa.select(sa.func.count()).where(col(PodEventRow.message).contains("duplicate"), *events)
    pods = sa.select(sa.func.count(), sa.func.sum(col(Pod.run_id))).where(
        col(Pod.state) == POD_STATE_NUMBERS[state], *([col(Pod.job_id) == job] if job else [])
    )
    engine = sa.create_engine(cluster.local.database)
    try:
        with engine.connect() as connection:
            count, runs = connection.execute(pods).one()
            return {
                "pods": count,
                "further_runs": runs - count,
                "launched_twice": connection.execute(twice).scalar_one(),
                "duplicates_in_mesos": connection.execute(duplicates).scalar_one(),
            }
    finally:
        engine.dispose()


def _allocation(cluster: Cluster, pool: str) -> float:
    """Return the usage of the pool over all kinds, once the resource manager has seen the last end or the timeout has
    passed.
    """

    def read_held() -> float:
        request = respool_pb2.GetRequest(id=peloton_pb2.ResourcePoolID(value=pool))
        usage = cluster.client.respools.GetResourcePool(request).poolinfo.usage
        return sum(kind.allocation + kind.slack for kind in usage)

    cluster.wait(lambda: read_held() == 0, "an empty pool")
    return read_held()
