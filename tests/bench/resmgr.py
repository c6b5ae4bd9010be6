"""Cases of the resource manager with its database: memory, rebuild after kill -9."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.model.ids import JobId, RespoolId
from services.storage import migrate
from services.storage.storage import Storage
from tests.bench.pools import leaves, organisation
from tests.simulation.pool_changes import config_of
from tests.unit.resmgr.world import World

MEMORY_TARGET_MIB = 200 / 1.048576  # 200 MB
REBUILD_TARGET_S = 10
JOBS_PER_POOL = 10


def measure_queued_million(
    job_count: int = 1_000, pods_per_job: int = 1_000, leaf_count: int = 1_000
) -> dict[str, Any]:
    """A million pods in a thousand queues: queued call by call, then kill -9, then a successor that reads them back."""
    with _sqlite() as url, tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        with _store(url) as world:
            pools = organisation(leaf_count)
            for pool in pools:
                world.storage.pools.put(pool.respool_id, config_of(pool))
            ids = leaves(pools)
            for number in range(job_count):
                _job(world, ids[number % len(ids)], pods_per_job)
        stored_s = time.monotonic() - began_s
        queued = _life("queue", url, folder)
        rebuilt = _life("come_back", url, folder)
        return {
            "jobs": job_count,
            "pods": job_count * pods_per_job,
            "leaves": leaf_count,
            "store_seconds": round(stored_s, 1),
            "queued": queued,
            "rebuilt": rebuilt,
            "ratio_to_target": round(max(one["rss_growth_mib"] for one in (queued, rebuilt)) / MEMORY_TARGET_MIB, 3),
        }


def rebuild(
    job_count: int = 1_000,
    big_job_count: int = 3,
    big_job_pods: int = 10_000,
    pods_per_job: int = 70,
    databases: Sequence[str] = ("sqlite", "postgresql"),
) -> dict[str, Any]:
    """100,000 pods in all states, then kill -9: the seconds until a successor admits, and whether its state is the
    same.
    """
    pods = big_job_count * big_job_pods + job_count * pods_per_job
    found: dict[str, Any] = {"jobs": big_job_count + job_count, "pods": pods}
    for name in databases:
        with _DATABASES[name]() as url, tempfile.TemporaryDirectory() as folder:
            if url is None:
                found[name] = "not available"
                continue
            with _store(url) as world:
                _add_contended_jobs(world, big_job_count, big_job_pods)
                _add_contended_jobs(world, job_count, pods_per_job)
            before, after = _life("spread", url, folder), _life("come_back", url, folder)
            ratio = round(after["seconds_to_first_cycle"] / REBUILD_TARGET_S, 3)
            found[name] = {"before": before, "after": after, "ratio_to_target": ratio}
    return found


def _add_contended_jobs(world: World, job_count: int, pods: int) -> None:
    """Up to ten jobs share a pool in which half of their pods fit; the last is urgent, every third has a gang."""
    for first in range(0, job_count, JOBS_PER_POOL):
        mine = range(first, min(first + JOBS_PER_POOL, job_count))
        load_count = len(mine) * pods / 2
        pool_id = world.pool(f"pool{first}-{pods}", load_count, load_count)
        for number in mine:
            _job(world, pool_id, pods, priority=int(number == mine[-1]), gang=4 if number % 3 == 0 else 0)


def resmgr_churn(rounds: int = 20, jobs_per_round: int = 50, pods_per_job: int = 50) -> dict[str, Any]:
    """Jobs come, run and go, as in a day: memory is released."""
    with _sqlite() as url, tempfile.TemporaryDirectory() as folder:
        with _store(url) as world:
            pools = [world.pool(f"pool{number}", 10_000, 10_000) for number in range(100)]
        return _life("churn", url, folder, rounds=rounds, jobs=jobs_per_round, pods=pods_per_job, pools=pools)


def many_shapes(pods: int = 100_000) -> dict[str, Any]:
    """One job whose pods all request different amounts: calls, cycles and memory, and a successor after kill -9."""
    with _sqlite() as url, tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        with _store(url) as world:
            cpus = [1 + number / 1000 for number in range(pods)]
            world.job(world.pool("pool", 1e6, 1e6), pods, cpus=cpus)
        stored_s = time.monotonic() - began_s
        queued, rebuilt = _life("shapes", url, folder), _life("come_back", url, folder)
        return {"pods": pods, "store_seconds": round(stored_s, 1), "queued": queued, "rebuilt": rebuilt}


# -- databases and processes ----------------------------------------------------------------------------------------


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/store.db"


@contextmanager
def _postgresql() -> Iterator[str | None]:
    """Return the address of PostgreSQL; None when the tests would be skipped, too."""
    try:
        import pytest

        from tests.postgres import running_postgres
    except ImportError:
        yield None
        return
    with ExitStack() as stack:
        try:
            url: str | None = stack.enter_context(running_postgres()).create_database()
        except pytest.skip.Exception:
            url = None
        yield url


_DATABASES: dict[str, Callable[[], AbstractContextManager[str | None]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
}


@contextmanager
def _store(url: str) -> Iterator[World]:
    migrate.upgrade(url)
    with closing(Storage(url)) as storage:
        yield World(storage)


def _job(world: World, pool_id: RespoolId, pods: int, priority: int = 0, gang: int = 0) -> None:
    config = job_pb2.JobConfig(name="job", type=job_pb2.BATCH, instanceCount=pods)
    config.respoolID.value = pool_id
    config.sla.priority, config.sla.preemptible, config.sla.minimumRunningInstances = priority, True, gang
    config.defaultConfig.resource.cpuLimit = 1
    config.defaultConfig.restartPolicy.maxFailures = 3
    job_id = JobId(str(uuid.uuid4()))
    world.storage.jobs.create(new_job_record(job_id, config, world.now_ns), config, world.now_ns)
    world.storage.pods.create(job_id, lambda _: None)


def _life(life: str, url: str | None, folder: str, **sizes: Any) -> dict[str, Any]:
    """Run one life of a resource manager; see resmgr_life.py."""
    order = {"life": life, "url": url, "facts": str(Path(folder) / "facts"), "began_s": time.time(), **sizes}
    command = [sys.executable, "-m", "tests.bench.resmgr_life", json.dumps(order)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, f"{life} ended with {done.returncode}"
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
