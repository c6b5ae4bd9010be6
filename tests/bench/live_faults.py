"""Many live services, while each process is killed, a worker stops, and Temporal's store is deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from peloton.model.pod import PodState
from tests.bench.cluster import Cluster
from tests.bench.faults import run_figures
from tests.bench.live import (
    COMMAND,
    ROLES,
    answers,
    create_services,
    live_settings,
    measure_cores,
    size,
    stop_seconds,
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
        "delete the store of temporal": Cluster.lose_temporal_store,
    }
    with Cluster(live_settings(hosts, services)) as cluster:
        pool = cluster.pool("bench", cpu=1e6, memory=1e9)
        made = create_services(cluster, pool, services)
        wait_quiet(cluster, 0.0)
        idle = sum(measure_cores(cluster, IDLE_S).values())
        found = {name: _outcome(cluster, pool, fault, made, idle) for name, fault in faults.items()}
        figures = run_figures(cluster, PodState.RUNNING)
        rolled_pods = sum(service.count for service in made[: 2 * len(faults)] if service.command == NEW)
        return {
            "services": services,
            "hosts": hosts,
            "faults": found,
            "pods_running": figures.pop("pods"),
            **figures,
            "further_runs": figures["further_runs"] - rolled_pods,
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
