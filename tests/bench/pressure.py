"""Eight clients that submit as fast as they can: accepted and rejected jobs, and the latency of the api."""

from __future__ import annotations

import time
from typing import Any

from services.lab.local.cluster import LocalSettings
from services.storage.storage import Storage
from tests.bench.cluster import Cluster, cpu_seconds, peak_memory_mib
from tests.e2e.crowd import CLIENTS, POLL_S, Crowd

READ_TARGET_S = 1.0


def pressure(seconds: float = 60.0, waiting_max: int = 100, hosts: int = 100) -> dict[str, Any]:
    """Jobs of one pod that ends at once, until the time is over; then the cluster drains."""
    environment = {"PELOTON_JOBS_WAITING_MAX": str(waiting_max)}
    with Cluster(LocalSettings(port=0, simulate=hosts, environment=environment)) as cluster:
        storage = Storage(cluster.local.database)
        waiting = 0
        with Crowd(cluster.local.address, cluster.pool("bench")) as crowd:
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                waiting = max(waiting, storage.search.backlog().jobs_waiting)
                crowd.ended.wait(POLL_S)
        ended_s = time.monotonic()
        cluster.wait(lambda: not storage.search.backlog().jobs_active, "the end of all jobs", quiet_s=300)
        storage.close()
        reads_s = sorted(crowd.reads_s)
        p99_s = reads_s[int(len(reads_s) * 0.99)]
        return {
            "clients": CLIENTS,
            "seconds": seconds,
            "jobs_taken": len(crowd.acknowledged),
            "jobs_taken_per_second": round(len(crowd.acknowledged) / seconds, 1),
            "calls_refused": len(crowd.waits_s),
            "unexpected": len(crowd.unexpected),
            "jobs_waiting_max": waiting,
            "drain_seconds": round(time.monotonic() - ended_s, 1),
            "job_get_p50_ms": round(reads_s[len(reads_s) // 2] * 1000, 1),
            "job_get_p99_ms": round(p99_s * 1000, 1),
            "ratio_to_target": round(p99_s / READ_TARGET_S, 3),
            "peak_memory_mib": peak_memory_mib(cluster),
            "cpu_seconds": cpu_seconds(cluster),
        }
