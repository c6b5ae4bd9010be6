"""Maintenance of many hosts at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from peloton.api.v0.host import host_pb2
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.model.ids import maintenance_workflow_id
from services.local.cluster import LocalSettings
from tests.e2e.local import Cluster, shell

PATIENCE_S = 600.0


def drain_50() -> dict[str, Any]:
    """50 of 1,000 simulated hosts, those with the most of 9,000 batch pods in 100 jobs: down at once, and up again."""
    jobs, pods, hosts, away = 100, 90, 1_000, 50
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        pool = cluster.pool("bench")
        task = shell("sleep 100000", cpu=cluster.capacity() / hosts / 10, memory=16)
        ids = [cluster.submit(pool, instanceCount=pods, defaultConfig=task) for _ in range(jobs)]

        def all_run() -> bool:
            return all(cluster.counts(job) == {"RUNNING": pods} for job in ids)

        def states() -> Counter[int]:
            return Counter(host.state for host in cluster.client.maintenance.Query(pb.QueryRequest()).hosts)

        cluster.wait(all_run, "all pods running", PATIENCE_S)
        used = Counter(task.runtime.host for job in ids for task in cluster.tasks(job).values())
        chosen = [host for host, _ in used.most_common(away)]
        started_s = time.monotonic()
        cluster.client.maintenance.Start(pb.StartRequest(hostnames=chosen, at_most=away))
        cluster.wait(lambda: states() == {host_pb2.HOST_STATE_DOWN: away}, "all down", PATIENCE_S)
        down_s = time.monotonic() - started_s
        cluster.wait(all_run, "all pods running again", PATIENCE_S)
        again_s = time.monotonic() - started_s
        events = asyncio.run(_history_events(cluster, chosen[0]))
        started_s = time.monotonic()
        cluster.client.maintenance.Complete(pb.CompleteRequest(hostnames=chosen))
        cluster.wait(lambda: not states(), "all up", PATIENCE_S)
        return {
            "hosts": hosts,
            "pods": jobs * pods,
            "drained_hosts": away,
            "moved_pods": sum(used[host] for host in chosen),
            "down_seconds": round(down_s, 2),
            "running_again_seconds": round(again_s, 2),
            "up_seconds": round(time.monotonic() - started_s, 2),
            "history_events_per_host": events,
        }


async def _history_events(cluster: Cluster, hostname: str) -> int:
    from temporalio.client import Client

    client = await Client.connect(f"127.0.0.1:{cluster.local.temporal_port}")
    described = await client.get_workflow_handle(maintenance_workflow_id("local", hostname)).describe()
    return described.history_length
