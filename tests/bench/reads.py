"""Many clients that read, while pods are launched: neither delays the other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from peloton.model.ids import JobId
from peloton.model.pod import TERMINAL, PodState
from services.lab.local.cluster import LocalSettings
from services.storage.storage import Storage
from tests.bench.cluster import Cluster, cpu_seconds, peak_memory_mib
from tests.e2e.local import shell

KEPT_TARGET = 0.8
"""Share of the launch rate without readers that remains with them."""
TIMEOUT_S = 120.0
NO_PAUSE = "no_pause"


@dataclass(frozen=True)
class Size:
    pods: int = 50_000  # of the job that is read
    launched_pods: int = 50_000  # of the job that runs meanwhile
    slots: int = 1_400
    run_s: float = 2.0  # of its pods: slots / run_s are launched in a second, less what a launch takes
    hosts: int = 1_000
    clients: int = 100
    seconds: float = 15.0


def reads(size: Size = Size()) -> dict[str, Any]:
    """Launch without readers, with clients that ask once a second, and with clients that ask without a pause: for a
    job of like pods, and for one in which each has a configuration of its own."""
    with Cluster(LocalSettings(port=0, simulate=size.hosts)) as cluster:
        watched, busy = cluster.pool("watched", cpu=1), cluster.pool("busy", cpu=size.slots * 0.1)
        own = {str(i): {"name": f"pod{i}", **shell(f"echo {i}")} for i in range(size.pods)}
        alike = cluster.submit(watched, instanceCount=size.pods, defaultConfig=shell("sleep 3600"))
        unlike = cluster.submit(watched, instanceCount=size.pods, defaultConfig=shell("sleep 3600"), instanceConfig=own)
        with closing(Storage(cluster.local.database)) as storage:
            for read in (alike, unlike):
                cluster.wait(lambda read=read: _is_queued(storage, read), f"queued pods of {read}", TIMEOUT_S)
            config = shell(f"sleep {size.run_s}", cpu=0.1)
            job = JobId(cluster.submit(busy, instanceCount=size.launched_pods, defaultConfig=config))
            cluster.wait(lambda: _count_ended(storage, job) > size.slots, "steady launches", TIMEOUT_S)
            found = {
                "alone": _measure(cluster, storage, job, size, "", 0),
                "each_second": _measure(cluster, storage, job, size, alike, 1),
                NO_PAUSE: _measure(cluster, storage, job, size, alike, 0),
                "unlike_each_second": _measure(cluster, storage, job, size, unlike, 1),
                "alone_again": _measure(cluster, storage, job, size, "", 0),
            }
            memory_mib = peak_memory_mib(cluster)
    alone = (found["alone"]["launches_per_second"] + found["alone_again"]["launches_per_second"]) / 2
    ratios = {name: round(one["launches_per_second"] / alone, 3) for name, one in found.items() if "gets" in one}
    return {
        "pods": size.pods,
        "clients": size.clients,
        "hosts": size.hosts,
        **found,
        "launches_kept": ratios,
        "peak_memory_mib": memory_mib,
        "failures": sum(one.get("failures", 0) for one in found.values()),
        "ratio_to_target": round(KEPT_TARGET / min(ratio for name, ratio in ratios.items() if name != NO_PAUSE), 3),
    }


def _measure(cluster: Cluster, storage: Storage, job: JobId, size: Size, read: str, pause_s: float) -> dict[str, Any]:
    """Launch pods for a while; ``read``: the job that clients read meanwhile."""
    order = {
        "address": cluster.local.address,
        "job": read,
        "clients": size.clients,
        "seconds": size.seconds,
        "pause_s": pause_s,
    }
    before, cpu, began_s = _count_ended(storage, job), cpu_seconds(cluster), time.monotonic()
    figures: dict[str, Any] = {}
    if read:
        command = [sys.executable, "-m", "tests.bench.readers", json.dumps(order)]
        figures = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    else:
        time.sleep(size.seconds)
    seconds, ended = time.monotonic() - began_s, _count_ended(storage, job)
    assert ended < size.launched_pods, f"all {ended} pods have ended before the measurement has"
    used = {name: round(now - cpu[name], 1) for name, now in cpu_seconds(cluster).items()}
    return {"launches_per_second": round((ended - before) / seconds, 1), **figures, "cpu_seconds": used}


def _is_queued(storage: Storage, job: str) -> bool:
    counts = storage.pods.counts(JobId(job))
    return bool(counts) and not counts.get(PodState.INITIALIZED)


def _count_ended(storage: Storage, job: JobId) -> int:
    """Return how many have ended. As many have been launched, plus at most the slots."""
    return sum(count for state, count in storage.pods.counts(job).items() if state in TERMINAL)
