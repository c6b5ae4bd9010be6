"""The benchmark of a talk about schedulers, by Peloton on simulated hosts and by Kubernetes: containers of a batch job
to their end, of a service until all run, and until all are replaced, on more and more nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from services.lab.local.cluster import LocalSettings
from tests.bench.cluster import Cluster, cpu_seconds
from tests.bench.figures import Missing
from tests.bench.rollout import NEW, OLD, SUCCEEDED
from tests.bench.talk_kubernetes import STAGE_MAX_S, kubernetes_stages, stage_figures
from tests.e2e.local import shell
from tests.e2e.service import Service
from tests.kubernetes.control_plane import is_built

SIZES = ((10_000, 1_000), (20_000, 2_000), (50_000, 10_000))
"""Containers, and nodes."""
BATCHES = 4
"""Batches of a rollout: a Deployment replaces a quarter at a time by default."""
POLL_S = 0.2


def talk() -> dict[str, Any]:
    """All sizes, Peloton and Kubernetes in turn. A scheduler that has not finished a stage in time ends there: its
    larger sizes are left out.
    """
    if not is_built():
        raise Missing("no real Kubernetes is built: make kubernetes")
    found: dict[str, Any] = {"stage_max_seconds": STAGE_MAX_S}
    kinds: dict[str, Callable[[int, int], dict[str, Any]]] = {"peloton": _peloton, "kubernetes": kubernetes_stages}
    for pods, nodes in SIZES:
        size = found[f"{pods}-on-{nodes}"] = {}
        for name, stages in list(kinds.items()):
            size[name] = stages(pods, nodes)
            if "stopped_at" in size[name]:
                del kinds[name]
    return found


def _peloton(pods: int, nodes: int) -> dict[str, Any]:
    with Cluster(LocalSettings(port=0, simulate=nodes)) as cluster:
        pool = cluster.pool("bench", cpu=1e9, memory=1e9)
        service = Service(cluster, pool, pods, OLD)

        def run_batch() -> None:
            job = cluster.submit(pool, instanceCount=pods, defaultConfig=shell("true", cpu=0.1, memory=16))
            assert "SUCCEEDED" == cluster.finish(job, quiet_s=STAGE_MAX_S)

        def create() -> None:
            service.create()
            _await_update(service)

        def roll_over() -> None:
            service.replace(NEW, batch_size=pods // BATCHES)
            _await_update(service)

        found: dict[str, Any] = {}
        for name, stage in {"batch": run_batch, "service_created": create, "service_rolled": roll_over}.items():
            used_s, began_s = sum(cpu_seconds(cluster).values()), time.monotonic()
            stage()
            found[name] = stage_figures(pods, time.monotonic() - began_s, sum(cpu_seconds(cluster).values()) - used_s)
        return found


def _await_update(service: Service) -> None:
    until_s = time.monotonic() + STAGE_MAX_S
    while service.status.workflow_status.state != SUCCEEDED:
        assert time.monotonic() < until_s, f"the update of {service.count} instances has not ended"
        time.sleep(POLL_S)
