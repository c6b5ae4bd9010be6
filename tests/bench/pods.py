"""Cost by the number of active pods: memory of the resource manager, its cycles, reads, bytes stored."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc.aio

from peloton.api.limits import MESSAGE_SIZES
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.query import query_pb2
from peloton.api.v0.short_names.job_pb2_grpc import JobManagerStub
from peloton.model.ids import JobId
from peloton.model.resources import Resources
from services.api.server import start
from services.resmgr.settings import LoopSettings
from services.storage.storage import Storage
from tests.bench.deep import Size, store
from tests.bench.figures import Times, rss_mib
from tests.bench.resmgr_life import CAPACITY
from tests.unit.resmgr.world import FixedCapacity, RecordedLifecycles, World

COUNTS = (1_000, 10_000, 100_000, 1_000_000)
PODS_PER_JOB = 1_000
RUNS, ADMITTING_RUNS = 20, 5
FULL = Resources.of(cpu=10, memory_mb=1e6, disk_mb=1e6)
"""Capacity for a hundred pods: the others wait."""


def pods(counts: Sequence[int] = COUNTS) -> dict[str, Any]:
    """Jobs of 1,000 in 300 pools, all of them queued, for each count; cycles in which almost no pod fits, and cycles
    that admit 5,000 each.
    """
    return {str(count): _of(count) for count in counts}


def _of(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        url, began_s = f"sqlite:///{folder}/store.db", time.monotonic()
        jobs = max(count // PODS_PER_JOB, 1)
        store(url, Size(jobs=jobs, pods_per_job=count // jobs, large_jobs=(), homeless_pods=1))
        stored_s = time.monotonic() - began_s
        stored_bytes = sum(file.stat().st_size for file in Path(folder).iterdir())
        command = [sys.executable, "-m", "tests.bench.pods", url]
        figures = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        return {
            "store_seconds": round(stored_s, 2),
            "stored_bytes_per_pod": round(stored_bytes / count),
            **figures,
        }


# -- in a process of its own ------------------------------------------------------------------------------------------


class _NoLifecycles(RecordedLifecycles):
    """Creates no objects."""

    async def start_job(self, job_id: JobId) -> None:
        raise AssertionError(job_id)

    def migrations_changed(self, migration_ids: Iterable[str]) -> None: ...

    def rebalances_changed(self, clusters: Iterable[str]) -> None: ...


async def _figures(url: str) -> dict[str, Any]:
    with closing(Storage(url)) as storage:
        hosts = FixedCapacity((FULL, Resources()))
        loop = World(storage, hosts=hosts).loop(LoopSettings(preempts=False))
        rebuild, waiting, admitting = Times(), Times(), Times()
        before_mib = rss_mib()
        await rebuild.take_async(loop.run_cycle)  # reads everything; there is no capacity yet
        memory_mib = rss_mib() - before_mib
        await loop.learn_capacity()
        await loop.run_cycle()
        for _ in range(RUNS):
            await waiting.take_async(loop.run_cycle)
        hosts.answer = (CAPACITY, Resources())
        await loop.learn_capacity()
        for _ in range(ADMITTING_RUNS):
            await admitting.take_async(loop.run_cycle)
        gets, queries = await _read(storage)
        await loop.stop()
    return {
        "rebuild_seconds": round(rebuild.wall_ms[0] / 1000, 2),
        "rebuild_cpu_seconds": round(rebuild.cpu_ms[0] / 1000, 2),
        "resmgr_mib": round(memory_mib, 1),
        **waiting.figures("waiting_cycle"),
        **admitting.figures("admitting_cycle"),
        **gets.figures("job_get"),
        **queries.figures("job_query"),
    }


async def _read(storage: Storage) -> tuple[Times, Times]:
    """Read through a server in this process, so that the CPU time of server and client counts."""
    gets, queries, nobody = Times(), Times(), _NoLifecycles()
    ids = storage.jobs.active_ids()
    query = job_pb2.QueryRequest(spec=job_pb2.QuerySpec(pagination=query_pb2.PaginationSpec(limit=100)))
    server = await start(storage, nobody, lambda _: None, "127.0.0.1:0")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=MESSAGE_SIZES) as channel:
        jobs: Any = JobManagerStub(channel)
        await jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest())  # connects
        for run in range(RUNS):
            request = job_pb2.GetRequest(id=peloton_pb2.JobID(value=ids[run % len(ids)]))
            await gets.take_async(lambda request=request: jobs.Get(request))
            await queries.take_async(lambda: jobs.Query(query))
    await server.stop(0)
    return gets, queries


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(asyncio.run(_figures(sys.argv[1]))), flush=True)
