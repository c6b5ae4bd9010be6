"""Cases of many hosts: all processes of a local cluster on 2 cores, and thousands of simulated hosts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import grpc

from peloton.api.v0.host.svc import host_svc_pb2
from peloton.model.ids import JobId
from services.lab.local.cluster import LocalSettings
from services.storage.storage import Storage
from tests.bench.cluster import Cluster, cpu_seconds, peak_memory_mib
from tests.e2e.local import shell

POLL_S = 0.5
TARGET_PODS_PER_S = 1_000
TARGET_MEMORY_MIB = 2_000
TARGET_FAILOVER_S = 60.0
HOLD_TIMEOUT_S = 600.0
FAILOVER_TIMEOUT_S = 300.0
AGENTS_BACK_S = 10.0
"""Seconds within which the agents find a new master."""
IDLE_S = 20.0
HOSTS_TIMEOUT_S = 20.0
PAGE_PODS = 10_000
CPUS_PER_HOST = 4
HELD = shell("sleep 36000", cpu=1, memory=64)
ANSWERED = "reconciliation complete"


def wide(
    host_count: int = 50_000, pods_per_host: int = 2, idle_s: float = IDLE_S, agents_back_s: float = AGENTS_BACK_S
) -> dict[str, Any]:
    """Pods are held on all hosts; then the host manager is killed, and another Mesos master leads."""
    pods = host_count * pods_per_host
    started_s = time.monotonic()
    with Cluster(LocalSettings(port=0, simulate=host_count)) as cluster:
        ready_s = time.monotonic() - started_s
        job, seconds = hold(cluster, pods)
        found: dict[str, Any] = {
            "hosts": host_count,
            "pods": pods,
            "ready_seconds": round(ready_s, 1),
            "all_running_seconds": round(seconds, 1),
            "pods_per_second": round(pods / seconds, 1),
            "peak_memory_mib": peak_memory_mib(cluster),
            "cpu_seconds": cpu_seconds(cluster),
            "idle_cpu_seconds_per_minute": idle(cluster, idle_s),
        }
        drills = {
            "hostmgr": partial(cluster.kill, "hostmgr"),
            "master": partial(replace_master, cluster, agents_back_s),
        }
        for name, drill in drills.items():
            found[f"{name}_failover"] = failover(cluster, drill, host_count, pods)
        found |= {"runs": runs(cluster, job), "states": cluster.counts(job), "hostmgr_mib": mib(cluster, "hostmgr")}
    ratios = [
        TARGET_PODS_PER_S / found["pods_per_second"],
        max(found["hostmgr_mib"], found["peak_memory_mib"]["hostmgr"]) / TARGET_MEMORY_MIB,
        *(found[f"{name}_failover"]["seconds"] / TARGET_FAILOVER_S for name in drills),
    ]
    return {**found, "ratio_to_target": round(max(ratios), 2)}


def hosts(
    sizes: Sequence[int] = (100, 1_000, 10_000, 50_000), pods_max: int = 20_000, idle_s: float = IDLE_S
) -> dict[str, Any]:
    """Cost by the number of hosts: two pods run on each, at most ``pods_max``."""
    return {str(size): _of_hosts(size, min(2 * size, pods_max), idle_s) for size in sizes}


def _of_hosts(size: int, pods: int, idle_s: float) -> dict[str, Any]:
    started_s = time.monotonic()
    with Cluster(LocalSettings(port=0, simulate=size)) as cluster:
        ready_s = time.monotonic() - started_s
        found = {
            "ready_seconds": round(ready_s, 1),
            "idle_cpu_seconds_per_minute": idle(cluster, idle_s),
        }
        before = cpu_seconds(cluster)
        _, seconds = hold(cluster, pods)
        after = cpu_seconds(cluster)
        return {
            **found,
            "pods": pods,
            "pods_per_second": round(pods / seconds, 1),
            "cpu_ms_per_pod": round(sum(after[part] - before[part] for part in after) / pods * 1000, 2),
            "hostmgr_mib": mib(cluster, "hostmgr"),
            "minicluster_mib": mib(cluster, "minicluster"),
        }


def hold(cluster: Cluster, pods: int) -> tuple[str, float]:
    """Start a job of long-running pods; return it, and the seconds from submit until all run."""
    pool = cluster.pool("wide", cpu=1e9, memory=1e9)
    started_s = time.monotonic()
    job = cluster.submit(pool, instanceCount=pods, defaultConfig=HELD)
    while cluster.counts(job) != {"RUNNING": pods}:
        assert time.monotonic() - started_s < HOLD_TIMEOUT_S, f"not all run: {cluster.counts(job)}"
        time.sleep(POLL_S)
    return job, time.monotonic() - started_s


def failover(cluster: Cluster, drill: Callable[[], None], host_count: int, pods: int) -> dict[str, Any]:
    """Return the seconds from the drill until Mesos has reconciled all pods with the leader, and all hosts are
    registered again with the same free resources.
    """
    free_cpu = CPUS_PER_HOST * host_count - pods
    lines = count_reconciliations(cluster)
    began_s, answered_s = time.monotonic(), 0.0
    drill()
    while True:
        time.sleep(POLL_S)
        waited_s = time.monotonic() - began_s
        if not answered_s and count_reconciliations(cluster) > lines:
            answered_s = waited_s
        if answered_s and count_known(cluster) == (host_count, free_cpu):
            return {"seconds": round(time.monotonic() - began_s, 1), "answered_seconds": round(answered_s, 1)}
        assert waited_s < FAILOVER_TIMEOUT_S, f"{count_known(cluster)} of {host_count} hosts, free cpus"


def count_reconciliations(cluster: Cluster) -> int:
    """Return how often the host manager has logged that all pods were reconciled: unknown ones of a new master are
    queried again.
    """
    log: str = (cluster.local.data_dir / "logs" / "hostmgr.log").read_text()
    return log.count(ANSWERED)


def count_known(cluster: Cluster) -> tuple[int, int]:
    """Return the number of hosts and their free cpus; none while no host manager leads."""
    try:
        found = cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest(), timeout=HOSTS_TIMEOUT_S).host_infos
    except grpc.RpcError:
        return 0, 0
    return len(found), round(sum(host.free.cpu for host in found))


def replace_master(cluster: Cluster, agents_back_s: float) -> None:
    cluster.drill("master/failover", {"agents_back_s": agents_back_s})


def idle(cluster: Cluster, idle_s: float) -> dict[str, float]:
    """CPU seconds a minute of each process."""
    before = cpu_seconds(cluster)
    time.sleep(idle_s)
    after = cpu_seconds(cluster)
    return {part: round((after[part] - before[part]) * 60 / idle_s, 1) for part in after}


def mib(cluster: Cluster, part: str) -> int:
    """Return the peak of the current process."""
    return peak_memory_mib(cluster)[part]


def runs(cluster: Cluster, job: str) -> dict[int, int]:
    """Return the number of pods by run: 1 for all that were never restarted."""
    storage = Storage(cluster.local.database)
    try:
        found: Counter[int] = Counter()
        start = 0
        while page := storage.pods.page(JobId(job), start, limit=PAGE_PODS):
            found.update(pod.pod_id.run_id for pod in page)
            start = page[-1].pod_id.instance_id + 1
        return dict(found)
    finally:
        storage.close()
