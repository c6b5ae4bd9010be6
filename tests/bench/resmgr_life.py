"""One life of a resource manager: a process that does one thing, prints one JSON line, and kills itself with -9.

``python -m tests.bench.resmgr_life '{"life": ..., "url": ..., "facts": ..., "began_s": ...}'``; see resmgr.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from peloton.model.job import JobRecord
from peloton.model.pod import PodState, PodStatus
from peloton.model.resources import Resources
from peloton.scheduling.cycle import plan_cycle
from services.resmgr.settings import LoopSettings
from services.storage.storage import Storage
from tests.bench.figures import Times, peak_rss_mib, rss_mib
from tests.unit.resmgr.world import FixedCapacity, World, facts

CAPACITY = Resources.of(cpu=1e6, memory_mb=1e9, disk_mb=1e9)
END_STATES = (PodState.SUCCEEDED, PodState.FAILED, PodState.LOST)
CALL_PODS_MAX = 10_000  # as workflows/policies.py
PLANS = 20
CYCLES = 3
EVICTED_PODS_MAX = 5_000


class Life:
    def __init__(self, order: Mapping[str, Any], settings: LoopSettings) -> None:
        self.storage = Storage(order["url"])
        self.hosts = FixedCapacity(None)
        self.world = World(self.storage, hosts=self.hosts)
        self.loop = self.world.loop(settings)
        self.jobs = self.storage.jobs.get_many(self.storage.jobs.active_ids())
        self.order = order
        self._facts = Path(order["facts"])
        self._rss_mib = rss_mib()

    def memory(self) -> dict[str, float]:
        now_mib = rss_mib()
        return {
            "rss_growth_mib": round(now_mib - self._rss_mib, 1),
            "rss_mib": round(now_mib, 1),
            "peak_rss_mib": round(peak_rss_mib(), 1),
        }

    async def enqueue(self, jobs: Iterable[JobRecord]) -> int:
        """Queue the jobs as their workflows do."""
        queued = 0
        for job in jobs:
            while count := await self.loop.enqueue(job.job_id, CALL_PODS_MAX):
                queued += count
        return queued

    async def learn_capacity(self) -> None:
        self.hosts.answer = (CAPACITY, Resources())
        await self.loop.learn_capacity()

    def remember(self) -> None:
        self._facts.write_bytes(pickle.dumps(facts(self.loop.state)))

    def is_as_remembered(self) -> bool:
        before: dict[str, object] = pickle.loads(self._facts.read_bytes())
        return facts(self.loop.state) == before

    def plans(self) -> dict[str, float]:
        """Plan the next cycle repeatedly."""
        times = Times()
        self.loop.state.set_capacity(CAPACITY, Resources())
        for _ in range(PLANS):
            times.take(
                lambda: plan_cycle(self.loop.state.snapshot(self.loop.settings.admitted_pods_max, self.loop.clock_ns()))
            )
        return times.figures("plan")


async def queue(life: Life) -> dict[str, Any]:
    """Queue every pod by calls; there are no hosts yet."""
    began_s = time.monotonic()
    await life.loop.start()
    queued = await life.enqueue(life.jobs)
    seconds = time.monotonic() - began_s
    memory = life.memory()
    life.remember()
    return {"queued_pods": queued, "enqueue_seconds": round(seconds, 2), **memory, **life.plans()}


async def come_back(life: Life) -> dict[str, Any]:
    """Measure a successor until its first cycle is committed."""
    start_s, cpu_s, began_s = time.time() - life.order["began_s"], time.process_time(), time.monotonic()
    await life.loop.start()
    rebuild_s, rebuild_cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    memory = life.memory()
    is_equal = life.is_as_remembered()
    began_s = time.monotonic()
    await life.learn_capacity()
    async with asyncio.timeout(60):
        while life.loop.state.entitlement is None:
            await asyncio.sleep(0.001)
    first_s = time.monotonic() - began_s
    return {
        "is_equal": is_equal,
        "seconds_to_first_cycle": round(start_s + rebuild_s + first_s, 2),
        "start_seconds": round(start_s, 2),
        "rebuild_seconds": round(rebuild_s, 2),
        "rebuild_cpu_seconds": round(rebuild_cpu_s, 2),
        "first_cycle_seconds": round(first_s, 2),
        **memory,
        **life.plans(),
    }


async def spread(life: Life) -> dict[str, Any]:
    """Move pods into every state of a resource manager: queued, admitted, on hosts, ended, queued again after a
    failure, and evicted by a more urgent pod but still on a host.
    """
    loop = life.loop
    await life.learn_capacity()
    await life.enqueue(job for job in life.jobs if not job.sla.priority)
    while await loop.run_cycle():
        pass
    for number, job in enumerate(life.jobs):
        _run(life, job, END_STATES[: number % 4])
    await life.enqueue(life.jobs)
    for _ in range(CYCLES):
        await loop.run_cycle()
    counts: Counter[str] = Counter()
    for job in life.jobs:
        counts.update(life.storage.pods.counts(job.job_id))
    life.remember()
    return {"pods_by_state": dict(sorted(counts.items())), "jobs_with_evicted_pods": len(loop.state.evicted)}


def _run(life: Life, job: JobRecord, ends: Iterable[PodState]) -> None:
    """Run most of the job's admitted pods; every tenth of these ends in each of the ways."""
    storage, now_ns = life.storage, life.world.now_ns
    pods = [pod for gang in storage.pods.ready_gangs(job.job_id, job.instance_count) for pod in gang.pods]
    launched = pods[: len(pods) * 9 // 10]
    storage.host_pods.mark_launched(job.job_id, [(instance, run, "h1", "a1", {}) for instance, run in launched], now_ns)
    ids = [pod.pod_id for pod in storage.pods.page(job.job_id, 0, None, job.instance_count)]
    running = [ids[instance] for instance, _ in launched]
    storage.host_pods.apply_status([PodStatus(pod, PodState.RUNNING, now_ns, "h1", "a1") for pod in running])
    for first, state in enumerate(ends):
        storage.host_pods.apply_status([PodStatus(pod, state, now_ns, "h1", "a1") for pod in running[first::10]])
    life.world.settle(job.job_id)


async def churn(life: Life) -> dict[str, Any]:
    """Create, queue, admit, run and end jobs, round after round. SQLite's caches fill up; Python's blocks of memory
    show whether other memory grows.
    """
    world, pools = life.world, life.order["pools"]
    sizes_mib, blocks = [rss_mib()], [sys.getallocatedblocks()]
    await life.learn_capacity()
    for _ in range(life.order["rounds"]):
        ids = [world.job(pools[number % len(pools)], life.order["pods"]) for number in range(life.order["jobs"])]
        jobs = life.storage.jobs.get_many(ids)
        await life.enqueue(jobs)
        while await life.loop.run_cycle():
            pass
        for job in jobs:
            life.loop.note_unplaced(job.job_id, 1, ())
            world.finish(job.job_id, range(job.instance_count))
        await life.loop.run_cycle()
        world.lifecycles.woken.clear()  # ours, not the resource manager's
        sizes_mib.append(rss_mib())
        blocks.append(sys.getallocatedblocks())
    tenth = max(len(sizes_mib) // 10, 1)
    return {
        "jobs": life.order["rounds"] * life.order["jobs"],
        "pods": life.order["rounds"] * life.order["jobs"] * life.order["pods"],
        "rss_first_round_mib": round(sizes_mib[1], 1),
        "rss_after_tenth_mib": round(sizes_mib[tenth], 1),
        "rss_at_end_mib": round(sizes_mib[-1], 1),
        "python_blocks_after_tenth": blocks[tenth],
        "python_blocks_at_end": blocks[-1],
        "ledgers_left": len(life.loop.state.jobs),
        "queues_left": len(life.loop.state.waiting.pools),
    }


async def shapes(life: Life) -> dict[str, Any]:
    """Queue the one job as its workflow does, and run a few cycles that admit as much as they may."""
    (job,) = life.jobs
    calls, cycles = Times(), Times()
    began_s = time.monotonic()
    while await calls.take_async(lambda: life.loop.enqueue(job.job_id, CALL_PODS_MAX)):
        pass
    seconds = time.monotonic() - began_s
    memory = life.memory()
    await life.learn_capacity()
    for _ in range(4):
        await cycles.take_async(life.loop.run_cycle)
    life.remember()
    return {
        "enqueue_seconds": round(seconds, 2),
        **calls.figures("enqueue_call"),
        **cycles.figures("cycle"),
        **memory,
        **life.plans(),
    }


PATIENT = LoopSettings(retry_period_s=0.05, preempts=False)
LIVES: dict[str, tuple[Callable[[Life], Awaitable[dict[str, Any]]], LoopSettings]] = {
    "queue": (queue, PATIENT),
    "come_back": (come_back, PATIENT),
    "churn": (churn, PATIENT),
    "shapes": (shapes, PATIENT),
    "spread": (
        spread,
        replace(PATIENT, preempts=True, preemption_period_s=0, evicted_pods_max=EVICTED_PODS_MAX),
    ),
}


async def _live(order: Mapping[str, Any]) -> dict[str, Any]:
    live, settings = LIVES[order["life"]]
    return await live(Life(order, settings))


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # the capacity is not known yet
    print(json.dumps(asyncio.run(_live(json.loads(sys.argv[1])))), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
