"""Many live services, while each process is killed, a worker stops, and Temporal's store is deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlmodel import col

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.model.pod import PodState
from services.storage.tables import Pod, PodEventRow
from tests.bench.cluster import Cluster
from tests.bench.live import (
    COMMAND,
    ROLES,
    answers,
    create_services,
    live_settings,
    size,
    stop_seconds,
    used_cores,
    wait_all_run,
    wait_quiet,
    wait_rolled,
)
from tests.bench.rollout import NEW
from tests.e2e.service import Service

STOPPED_S = 60.0
IDLE_S = 20.0
QUIET_S = 120.0
"""The target: after each fault the processes are idle again within so many seconds."""


def live_faults(services: int = 0, hosts: int = 0, stopped_s: float = STOPPED_S) -> dict[str, Any]:
    """Live services on simulated hosts. After each fault one of them is rolled out, one is stopped and one is created;
    all pods must then run, each in its first run except the rolled-out ones, and the processes become idle.
    """
    services, hosts = services or size("SERVICES", 5_000), hosts or size("HOSTS", 1_250)
    faults: dict[str, Callable[[Cluster], None]] = {
        **{f"kill {name}": partial(Cluster.kill, part=name) for name in (*ROLES, "temporal")},
        "stop worker": partial(_stand_still, seconds=stopped_s),
        "delete the store of temporal": _lose_store,
    }
    with Cluster(live_settings(hosts, services)) as cluster:
        pool = cluster.pool("bench", cpu=1e6, memory=1e9)
        made = create_services(cluster, pool, services)
        wait_quiet(cluster, 0.0)
        idle = sum(used_cores(cluster, IDLE_S).values())
        found = {name: _outcome(cluster, pool, fault, made, idle) for name, fault in faults.items()}
        return {
            "services": services,
            "hosts": hosts,
            "faults": found,
            **_runs(cluster, sum(service.count for service in made[: 2 * len(faults)] if service.command == NEW)),
            "ratio_to_target": round(max(one["quiet_seconds"] for one in found.values()) / QUIET_S, 2),
        }


def _outcome(
    cluster: Cluster, pool: str, fault: Callable[[Cluster], None], made: list[Service], idle: float
) -> dict[str, float]:
    """Figures of one fault. The number of services stays: one ends and one is created."""
    stopped, rolled = made.pop(), made.pop()
    fault(cluster)
    began_s = time.monotonic()
    cluster.wait(lambda: answers(lambda: rolled.replace(NEW, batch_size=1)), "an api that takes updates")
    made.insert(0, Service(cluster, pool, 1, COMMAND).create())
    stop_s = stop_seconds(stopped)
    wait_rolled(cluster, rolled)
    wait_all_run(cluster, len(made) + 1)
    made.insert(0, rolled)
    works_s = time.monotonic() - began_s
    wait_quiet(cluster, idle)
    return {
        "stop_seconds": round(stop_s, 2),
        "works_seconds": round(works_s, 1),
        "quiet_seconds": round(time.monotonic() - began_s, 1),
    }


def _stand_still(cluster: Cluster, seconds: float) -> None:
    with cluster.asleep("worker"):
        time.sleep(seconds)


def _lose_store(cluster: Cluster) -> None:
    cluster.stop_part("temporal", now=True)
    for path in cluster.local.data_dir.glob("temporal.db*"):
        path.unlink()
    cluster.start_part("temporal")


def _runs(cluster: Cluster, rolled_pods: int) -> dict[str, int]:
    """Figures of all runs of pods, from storage; a pod that was rolled out has a second run."""
    running = col(Pod.state) == POD_STATE_NUMBERS[PodState.RUNNING]
    pods = sa.select(sa.func.count(), sa.func.sum(col(Pod.run_id))).where(running)
    run = (col(PodEventRow.job_id), col(PodEventRow.instance_id), col(PodEventRow.run_id))
    launched = col(PodEventRow.state) == POD_STATE_NUMBERS[PodState.LAUNCHED]
    launches = sa.select(sa.func.count()).where(launched).group_by(*run).having(sa.func.count() > 1)
    twice = sa.select(sa.func.count()).select_from(launches.subquery())
    duplicates = sa.select(sa.func.count()).where(col(PodEventRow.message).contains("duplicate"))
    engine = sa.create_engine(cluster.local.database)
    try:
        with engine.connect() as connection:
            count, runs = connection.execute(pods).one()
            return {
                "pods_running": count,
                "further_runs": runs - count - rolled_pods,
                "launched_twice": connection.execute(twice).scalar_one(),
                "duplicates_in_mesos": connection.execute(duplicates).scalar_one(),
            }
    finally:
        engine.dispose()
