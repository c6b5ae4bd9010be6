"""The guard on cost: CPU of each process for a small job, a pod and a launch, as a multiple of the recorded one.

CPU time counts, not wall time: other load on the machine makes it dearer only by the share of caches and cores, which
the yardstick before and after each round feels, too. The cheapest round is compared, in units of its own yardstick;
rounds are repeated until the two cheapest agree.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.lab.local.cluster import LocalSettings
from services.storage.storage import Storage
from tests.bench import baseline
from tests.bench.churn import TIMEOUT_S, submit, wait_for_ends
from tests.bench.cluster import Cluster
from tests.bench.figures import cpu_s
from tests.e2e.local import job_config, shell

RATIO_MAX = 1.05
"""Cost per cost of the baseline, in yardsticks, above which the case fails."""
ROUNDS_MIN, ROUNDS_MAX = 3, 6
AGREE = 1.03
"""Ratio of the two cheapest rounds below which no further one is needed."""
WARM_UP_JOBS = 60
CLIENTS = 10
PODS_PER_JOB = 10
QUIET_S = 6.0
"""Seconds after the last pod of a round that count for it: workflows of small jobs are shown up to 5 s later."""
POLL_S = 0.2


class Guard:
    """A cluster in which work of each unit is done, and its CPU measured."""

    def __init__(self, cluster: Cluster, storage: Storage) -> None:
        self._cluster, self._storage, self._pool = cluster, storage, cluster.pool("bench")

    def run_jobs(self, count: int) -> None:
        """Run jobs of ten one-second pods, submitted by ten clients."""
        config = job_config(self._pool, instanceCount=PODS_PER_JOB, defaultConfig=shell("sleep 1", cpu=0.01, memory=16))
        address, shares = (
            self._cluster.local.addresses,
            [[0.0] * len(range(at, count, CLIENTS)) for at in range(CLIENTS)],
        )
        with ThreadPoolExecutor(CLIENTS) as threads:
            made = [one for some in threads.map(lambda due: submit(address, config, due), shares) for one in some]
        states = wait_for_ends(self._cluster, [one.job_id for one in made])
        assert [JobState.SUCCEEDED] * count == states

    def run_pods(self, count: int) -> None:
        """Run one job of so many empty pods to its end."""
        job = self._cluster.submit(self._pool, instanceCount=count, defaultConfig=shell("true", cpu=0.01, memory=16))
        assert [JobState.SUCCEEDED] == wait_for_ends(self._cluster, [job])

    def launch_pods(self, count: int) -> Callable[[], None]:
        """Start so many pods, which stay until the returned function stops them."""
        config = shell("sleep 3600", cpu=0.01, memory=16)
        job = JobId(self._cluster.submit(self._pool, instanceCount=count, defaultConfig=config))
        deadline_s = time.monotonic() + TIMEOUT_S
        while (record := self._storage.jobs.get(job)) is None or record.pod_counts.get(PodState.RUNNING, 0) < count:
            assert time.monotonic() < deadline_s, f"fewer than {count} pods run after {TIMEOUT_S:.0f} s"
            time.sleep(POLL_S)

        def stop() -> None:
            self._cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
            wait_for_ends(self._cluster, [job])
            time.sleep(QUIET_S)

        return stop

    def measure(self, work: Callable[[int], Callable[[], None] | None], count: int) -> dict[str, Any]:
        """Return the CPU-ms of each process for one of ``count`` units of work, and the yardstick meanwhile."""
        before_ms, used_s = baseline.yardstick_ms(), self._read_cpu_s()
        began_s = time.monotonic()
        end = work(count)
        seconds = time.monotonic() - began_s
        time.sleep(QUIET_S)
        cpu_ms = {name: (used - used_s[name]) * 1000 / count for name, used in self._read_cpu_s().items()}
        yardstick_ms = (before_ms + baseline.yardstick_ms()) / 2
        if end is not None:
            end()
        return {
            "cpu_ms": {name: round(used, 3) for name, used in cpu_ms.items()},
            "sum_ms": round(sum(cpu_ms.values()), 3),
            "per_second": round(count / seconds, 1),
            "yardstick_ms": round(yardstick_ms, 1),
            "yardsticks": round(sum(cpu_ms.values()) / yardstick_ms, 5),
        }

    def _read_cpu_s(self) -> dict[str, float]:
        parts = self._cluster.local.parts.items()
        return {name: cpu_s(part.process.pid, digits=2) for name, part in parts if part.process is not None}


def cost(jobs: int = 100, pods: int = 5_000, launches: int = 3_000, hosts: int = 100) -> dict[str, Any]:
    """Measure a small job, a pod and a launch, until the two cheapest rounds of each agree."""
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        storage = Storage(cluster.local.database)
        try:
            guard = Guard(cluster, storage)
            guard.run_jobs(WARM_UP_JOBS)
            found = {
                "per_job": measure_rounds(lambda: guard.measure(guard.run_jobs, jobs)),
                "per_pod": measure_rounds(lambda: guard.measure(guard.run_pods, pods)),
                "per_launch": measure_rounds(lambda: guard.measure(guard.launch_pods, launches)),
            }
        finally:
            storage.close()
    return {"hosts": hosts, "jobs": jobs, "pods": pods, "launches": launches, **found}


def measure_rounds(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the cheapest round, with the number of rounds and the ratio of the second cheapest to it: at least
    ROUNDS_MIN rounds, and at most ROUNDS_MAX while the two differ by more than AGREE."""
    found: list[dict[str, Any]] = []
    apart = math.inf
    while len(found) < ROUNDS_MIN or (apart > AGREE and len(found) < ROUNDS_MAX):
        found = sorted([*found, measure()], key=lambda one: float(one["yardsticks"]))
        apart = round(found[1]["yardsticks"] / found[0]["yardsticks"], 3) if len(found) > 1 else math.inf
    return {**found[0], "rounds": len(found), "apart": apart}


def compare_cost(found: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded costs, the ratio of each unit to them, and the units beyond RATIO_MAX as ``too_dear``."""
    units = [key for key in found if key.startswith("per_")]
    ratios = {unit: round(found[unit]["yardsticks"] / base[unit]["yardsticks"], 3) for unit in units}
    return {
        "baseline": {"date": base["date"], **{unit: base[unit] for unit in units}},
        "to_baseline": ratios,
        "limit": RATIO_MAX,
        "too_dear": [unit for unit, ratio in ratios.items() if ratio > RATIO_MAX],
    }
