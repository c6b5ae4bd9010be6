"""Maintenance of many hosts at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from peloton.api.v0.host import host_pb2
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.model.ids import maintenance_workflow_id
from services.lab.local.cluster import LocalSettings
from tests.bench.cluster import Cluster, cpu_seconds, run_events
from tests.bench.lives import Lives, lives
from tests.e2e.service import Service

JOBS, INSTANCES, HOSTS, AWAY = 100, 90, 1_000, 50
TIMEOUT_S = 900.0
POLL_S = 0.5  # between reads: more frequent ones would add load
DOWN = host_pb2.HOST_STATE_DOWN


def drain_50() -> dict[str, Any]:
    """50 of 1,000 simulated hosts that carry 9,000 pods of 100 services, each of which may have one pod unavailable,
    are drained at once, and return to service.
    """
    settings = LocalSettings(port=0, simulate=HOSTS, environment={"PELOTON_MAINTENANCE_SHARE": str(AWAY / HOSTS)})
    with Cluster(settings) as cluster:
        pool = cluster.pool("bench")
        sla = {"maximumUnavailableInstances": 1}
        made = [Service(cluster, pool, INSTANCES, "sleep 100000", sla=sla).create() for _ in range(JOBS)]
        _wait(lambda: all(s.status.pod_stats["POD_STATE_RUNNING"] == INSTANCES for s in made), "all instances running")
        places = {s.id: Counter(task.runtime.host for task in cluster.tasks(s.id).values()) for s in made}
        used = sum(places.values(), Counter())
        chosen = sorted(used)[:: len(used) // AWAY][:AWAY]
        used_cpu = cpu_seconds(cluster)
        down_s, found = _down(cluster, made, chosen)
        used_cpu = {name: round(seconds - used_cpu[name], 1) for name, seconds in cpu_seconds(cluster).items()}
        events = run_events(cluster, maintenance_workflow_id("local", chosen[0]))
        up_s = _up(cluster, chosen)
        most = max(sum(places[s.id][host] for host in chosen) for s in made)
        bound_s = most * min(found.moves_s)
        return {
            "hosts": HOSTS,
            "services": JOBS,
            "pods": JOBS * INSTANCES,
            "drained_hosts": AWAY,
            "moved_pods": sum(used[host] for host in chosen),
            "most_pods_of_one_service": most,
            "unavailable_most_per_service": found.away_most,
            "down_seconds": round(down_s, 2),
            "move_seconds": round(found.move_s, 2),
            "fastest_move_seconds": round(min(found.moves_s), 2),
            "bound_seconds": round(bound_s, 2),
            "ratio_to_bound": round(down_s / bound_s, 2),
            "chain_seconds": round(found.chain_s, 2),
            "ratio_to_chain": round(down_s / found.chain_s, 2),
            "up_seconds": round(up_s, 2),
            "history_events_per_host": events,
            "cpu_seconds": used_cpu,
        }


def _down(cluster: Cluster, made: Sequence[Service], hosts: list[str]) -> tuple[float, Lives]:
    """Return the seconds until all hosts are DOWN, and the figures of the services meanwhile."""
    since_ns, started_s = time.time_ns(), time.monotonic()
    cluster.client.maintenance.Start(pb.StartRequest(hostnames=hosts, at_most=AWAY))
    _wait(lambda: _states(cluster) == {DOWN: len(hosts)}, "all down")
    seconds = time.monotonic() - started_s
    _wait(
        lambda: all(s.status.pod_stats["POD_STATE_RUNNING"] == INSTANCES for s in made), "all instances running again"
    )
    return seconds, lives(cluster.local.database, [s.id for s in made], since_ns)


def _up(cluster: Cluster, hosts: list[str]) -> float:
    started_s = time.monotonic()
    cluster.client.maintenance.Complete(pb.CompleteRequest(hostnames=hosts))
    _wait(lambda: not _states(cluster), "all up")
    return time.monotonic() - started_s


def _states(cluster: Cluster) -> Counter[int]:
    return Counter(host.state for host in cluster.client.maintenance.Query(pb.QueryRequest()).hosts)


def _wait(condition: Any, what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} not seen within {TIMEOUT_S:.0f} s"
        time.sleep(POLL_S)
