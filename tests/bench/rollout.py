"""Rollouts of services on a whole local cluster."""

from __future__ import annotations

import time
from typing import Any

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.model.ids import update_workflow_id
from services.lab.local.cluster import LocalSettings
from tests.bench.cluster import Cluster, cpu_seconds, run_events
from tests.bench.lives import lives
from tests.e2e.service import Service

HOSTS = 1_000
TIMEOUT_S = 600.0
POLL_S = 0.5
SUCCEEDED = stateless_pb2.WORKFLOW_STATE_SUCCEEDED
OLD, NEW = "sleep 100000", "sleep 100001"


def roll_9000() -> dict[str, Any]:
    """A service of 9,000 instances on 1,000 simulated hosts: created, and replaced all at once."""
    return _roll_out(services=1, instances=9_000, batch=0)


def roll_100x90() -> dict[str, Any]:
    """100 services of 90 instances, replaced side by side ten instances at a time."""
    return _roll_out(services=100, instances=90, batch=10)


def _roll_out(services: int, instances: int, batch: int) -> dict[str, Any]:
    with Cluster(LocalSettings(port=0, simulate=HOSTS)) as cluster:
        pool = cluster.pool("bench")
        started_s = time.monotonic()
        made = [Service(cluster, pool, instances, OLD).create() for _ in range(services)]
        _wait(made, SUCCEEDED)
        created_s = time.monotonic() - started_s
        since_ns, started_s = time.time_ns(), time.monotonic()
        for service in made:
            service.replace(NEW, batch_size=batch)
        asked_s = time.monotonic() - started_s
        _wait(made, SUCCEEDED)
        seconds = time.monotonic() - started_s
        found = lives(cluster.local.database, [s.id for s in made], since_ns)
        return {
            "services": services,
            "instances": instances,
            "hosts": HOSTS,
            "batch": batch,
            "create_seconds": round(created_s, 2),
            "ask_seconds": round(asked_s, 2),
            "seconds": round(seconds, 2),
            "instances_per_second": round(services * instances / seconds, 1),
            "unavailable_most_per_service": found.away_most,
            "instance_seconds": round(found.move_s, 2),
            "history_events_per_service": max(run_events(cluster, update_workflow_id(s.id)) for s in made[-3:]),
            "cpu_seconds": cpu_seconds(cluster),
        }


def _wait(services: list[Service], state: int) -> None:
    """Wait until the updates of all have ended in this state. One is read at a time: to read a hundred costs half a
    core.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    for at, service in enumerate(services):
        while service.status.workflow_status.state != state:
            left = len(services) - at
            assert time.monotonic() < deadline_s, f"up to {left} updates have not ended after {TIMEOUT_S:.0f} s"
            time.sleep(POLL_S)
