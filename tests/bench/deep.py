"""A million active pods: all processes start with them and work on, while clients poll and jobs come and go."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import grpc
import sqlalchemy as sa
from google.protobuf.json_format import ParseDict

from peloton.api.convert import POD_STATES, new_job_record
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.query import query_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.client import Client
from peloton.model.ids import ROOT_POOL_ID, JobId, RespoolId
from services.lab.local.cluster import LocalSettings
from services.resmgr.pool_rules import with_defaults
from services.storage import migrate
from services.storage.engine import Database
from services.storage.storage import Storage
from services.storage.tables import POD
from tests.bench.cluster import Cluster, cpu_seconds, peak_memory_mib
from tests.bench.figures import status_kib
from tests.bench.otlp import Histogram, run_collector
from tests.e2e.local import shell
from tests.messages import instance_range
from tests.postgres import running_postgres
from tests.unit.resmgr.world import World

CYCLE_TARGET_S, GET_TARGET_MS, QUERY_TARGET_MS = 1.0, 100.0, 200.0
POD_CPU, POD_MIB = 0.1, 16
PAUSE_S = 0.05
"""Pause of a client between an answer and its next request."""
CLIENTS = 4
LARGEST_SHARE = 0.1
"""Share of the requests that are about the largest job."""
PAGE_PODS = 100
SETTLED_SHARE = 0.9
"""Share of the pods that fit that must run before clients begin."""
TIMEOUT_S, POLL_S = 300.0, 2.0
LEADS = "resmgr: became leader"
NO_HOST: dict[str, Any] = {
    "type": "LABEL_CONSTRAINT",
    "labelConstraint": {"kind": "HOST", "condition": "CONDITION_EQUAL"},
}


@dataclass(frozen=True)
class Size:
    jobs: int = 878
    pods_per_job: int = 1_000
    large_jobs: tuple[int, ...] = (100_000, 10_000, 10_000)
    homeless_pods: int = 2_000  # of one more job: admitted, and no host may have them
    parents: int = 20
    pools_per_parent: int = 15
    hosts: int = 1_000
    run_s: tuple[int, int] = (120, 600)  # between which pods run
    fresh_pods: int = 50
    ask_s: float = 60.0


def deep(size: Size = Size(), database: str = "") -> dict[str, Any]:
    """A million pods on SQLite."""
    with tempfile.TemporaryDirectory(prefix="peloton-") as folder, run_collector() as (collector, environment):
        settings = LocalSettings(
            port=0, data_dir=Path(folder), simulate=size.hosts, database=database, environment=environment
        )
        url = database or f"sqlite:///{folder}/peloton.db"
        began_s = time.monotonic()
        jobs = store(url, size)
        stored_s, began_s = time.monotonic() - began_s, time.monotonic()
        with Cluster(settings) as cluster:
            up_s = time.monotonic() - began_s
            _settle(cluster, size)
            settled_s = time.monotonic() - began_s
            cpu, cycles = cpu_seconds(cluster), collector.histogram("peloton.resmgr.cycle_time")
            answers, fresh_s = _ask(cluster, jobs, size)
            used = {name: round(now - cpu.get(name, 0), 1) for name, now in cpu_seconds(cluster).items()}
            steady = collector.histogram("peloton.resmgr.cycle_time").since(cycles)
            counts = _counts(cluster.local.database)
            return {
                "database": "postgresql" if database else "sqlite",
                "jobs": len(jobs),
                "pools": size.parents * size.pools_per_parent,
                "pods_by_state": counts,
                "store_seconds": round(stored_s, 1),
                "up_seconds": round(up_s, 1),
                "rebuilds": [line.partition(": ")[2] for line in _log(cluster, "resmgr", "memory rebuilt")],
                "settled_seconds": round(settled_s, 1),
                **_cycle_figures(steady),
                **answers,
                "fresh_jobs": len(fresh_s),
                "fresh_job_median_seconds": round(sorted(fresh_s)[len(fresh_s) // 2], 1),
                "fresh_job_most_seconds": round(max(fresh_s), 1),
                "ask_seconds": size.ask_s,
                "cpu_seconds_while_asking": used,
                "memory_mib": _memory_mib(cluster),
                "peak_memory_mib": peak_memory_mib(cluster),
                "back_after_kill_seconds": round(_come_back(cluster), 1),
                "ratio_to_target": max(
                    round(steady.below(0.99) / CYCLE_TARGET_S, 3),
                    round(answers["job_get_p99_ms"] / GET_TARGET_MS, 3),
                    round(answers["job_query_p99_ms"] / QUERY_TARGET_MS, 3),
                ),
            }


def deep_postgres(size: Size = Size()) -> dict[str, Any]:
    with running_postgres() as server:
        return deep(size, server.create_database())


# -- state before the processes start ---------------------------------------------------------------------------------


def store(url: str, size: Size) -> list[JobId]:
    """Pools, and jobs whose pods are all in the queue; the last job is the one that no host may have."""
    migrate.upgrade(url)
    random = Random(1)
    with closing(Storage(url)) as storage:
        world = World(storage, now_ns=time.time_ns())
        pools = [
            _pool(storage, f"pool{number}", 10, parent)
            for parent in [_pool(storage, f"org{number}", 10 * size.pools_per_parent) for number in range(size.parents)]
            for number in range(size.pools_per_parent)
        ]
        apart = _pool(storage, "homeless", size.homeless_pods)
        _pool(storage, "fresh", size.fresh_pods)
        jobs: list[JobId] = []
        for number, pods in enumerate([*size.large_jobs, *[size.pods_per_job] * size.jobs]):
            config = shell(f"sleep {random.randint(*size.run_s)}", cpu=POD_CPU, memory=POD_MIB)
            jobs.append(_create_queued_job(world, pools[number % len(pools)], len(jobs) + 1, pods, config))
        constraint = {**NO_HOST, "labelConstraint": {**NO_HOST["labelConstraint"], "requirement": 1}}
        constraint["labelConstraint"]["label"] = {"key": "rack", "value": "nowhere"}
        config = shell("true", cpu=POD_CPU, memory=POD_MIB, constraint=constraint)
        return [*jobs, _create_queued_job(world, apart, len(jobs) + 1, size.homeless_pods, config)]


def _pool(storage: Storage, name: str, reserved_pods: int, parent: str = ROOT_POOL_ID) -> RespoolId:
    """Create a pool that reserves the resources of so many pods."""
    config = respool_pb2.ResourcePoolConfig(name=name, parent=peloton_pb2.ResourcePoolID(value=parent))
    for kind, amount in (("cpu", POD_CPU), ("memory", POD_MIB), ("disk", 1), ("gpu", 0)):
        config.resources.add(kind=kind, reservation=reserved_pods * amount, limit=1e9, share=1)
    config = with_defaults(config)
    pool_id = RespoolId(str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{parent}/{name}")))
    storage.pools.put(pool_id, config)
    return pool_id


def _create_queued_job(world: World, pool_id: RespoolId, number: int, pods: int, task: dict[str, Any]) -> JobId:
    fields = {
        "name": f"job{number}",
        "owningTeam": f"team{number % 50}",
        "type": "BATCH",
        "instanceCount": pods,
        "respoolID": {"value": pool_id},
        "sla": {"preemptible": True},
        "defaultConfig": task,
    }
    config, job_id = ParseDict(fields, job_pb2.JobConfig()), JobId(str(uuid.uuid4()))
    world.storage.jobs.create(new_job_record(job_id, config, world.now_ns), config, world.now_ns)
    world.storage.pods.create(job_id, lambda _: None)
    world.storage.admission.mark_pending(job_id, [(0, pods)], number)
    world.now_ns += 10**9
    return job_id


# -- while it runs ----------------------------------------------------------------------------------------------------


def _settle(cluster: Cluster, size: Size) -> None:
    """Wait until hosts are full of all but the unplaceable pods."""
    pods = size.jobs * size.pods_per_job + sum(size.large_jobs)
    wanted = SETTLED_SHARE * min(pods, int(cluster.capacity() / POD_CPU) - size.homeless_pods)
    began_s = time.monotonic()
    while (counts := _counts(cluster.local.database)).get("RUNNING", 0) + counts.get("SUCCEEDED", 0) < wanted:
        assert time.monotonic() - began_s < TIMEOUT_S, f"hosts are not full: {counts}"
        time.sleep(POLL_S)


def _counts(url: str) -> dict[str, int]:
    query = sa.select(POD.c.state, sa.func.count()).group_by(POD.c.state)
    with closing(Database(url)) as db:
        rows = db.read(lambda conn: conn.execute(query).all())
    return {POD_STATES[state].value: count for state, count in rows}


def _ask(cluster: Cluster, jobs: list[JobId], size: Size) -> tuple[dict[str, float], list[float]]:
    """Clients send various requests in a loop, while small jobs are submitted, run and finish."""
    random = Random(2)
    stop = threading.Event()
    asked: dict[str, list[float]] = {name: [] for name in _QUESTIONS}
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            with _client(cluster) as client:
                _get(client, jobs[0])  # connects
                while not stop.wait(PAUSE_S):
                    name, question = random.choice(sorted(_QUESTIONS.items()))
                    job_id = jobs[0] if random.random() < LARGEST_SHARE else random.choice(jobs)
                    began_s = time.perf_counter()
                    question(client, job_id)
                    asked[name].append(time.perf_counter() - began_s)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask, name=f"client {number}") for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        fresh_s = list(_fresh_jobs(cluster, size))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed, failed
    return {name: figure for kind, times in asked.items() for name, figure in _figures(kind, times)}, fresh_s


def _figures(name: str, times_s: list[float]) -> Iterator[tuple[str, float]]:
    ordered = sorted(times_s)
    yield f"{name}_calls", len(ordered)
    for share in (50, 99):
        yield f"{name}_p{share}_ms", round(ordered[len(ordered) * share // 100] * 1000, 1)


def _fresh_jobs(cluster: Cluster, size: Size) -> Iterator[float]:
    pool = next(
        str(pool.id.value)
        for pool in cluster.client.respools.Query(respool_pb2.QueryRequest()).resourcePools
        if pool.config.name == "fresh"
    )
    until_s = time.monotonic() + size.ask_s
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        job = cluster.submit(
            pool, instanceCount=size.fresh_pods, defaultConfig=shell("sleep 1", cpu=POD_CPU, memory=POD_MIB)
        )
        assert cluster.finish(job) == "SUCCEEDED"
        yield time.monotonic() - began_s


def _get(client: Client, job_id: str) -> None:
    assert client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job_id))).jobInfo.config.instanceCount


def _first_page(client: Client, job_id: str) -> None:
    request = job_pb2.QueryRequest(spec=job_pb2.QuerySpec(pagination=query_pb2.PaginationSpec(limit=100)))
    assert client.jobs.Query(request).results


def _active_page(client: Client, job_id: str) -> None:
    """Return a request by state and name, sorted."""
    order = {"order": "ASC", "property": {"value": "name"}}
    spec = {
        "jobStates": ["PENDING", "RUNNING"],
        "keywords": ["sleep"],
        "pagination": {"limit": 100, "orderBy": [order]},
    }
    assert client.jobs.Query(ParseDict({"spec": spec}, job_pb2.QueryRequest())).results


def _job_why(client: Client, job_id: str) -> None:
    assert client.explain.JobWhy(explain_pb2.JobWhyRequest(jobId=peloton_pb2.JobID(value=job_id))).text


def _pods(client: Client, job_id: str) -> None:
    request = task_pb2.ListRequest(jobId=peloton_pb2.JobID(value=job_id), range=instance_range(0, PAGE_PODS))
    assert client.tasks.List(request).result.value


def _waiting_pods(client: Client, job_id: str) -> None:
    spec = {"taskStates": ["PENDING"], "pagination": {"limit": PAGE_PODS}}
    request = ParseDict({"jobId": {"value": job_id}, "spec": spec}, task_pb2.QueryRequest())
    assert not client.tasks.Query(request).HasField("error")


def _pool_why(client: Client, job_id: str) -> None:
    path = respool_pb2.ResourcePoolPath(value="/org0/pool0")
    assert client.explain.PoolWhy(explain_pb2.PoolWhyRequest(path=path)).text


def _pool_tree(client: Client, job_id: str) -> None:
    assert client.explain.PoolTree(explain_pb2.PoolTreeRequest()).pools


_QUESTIONS: dict[str, Callable[[Client, str], object]] = {
    "job_get": _get,
    "job_query": _first_page,
    "job_query_by_name": _active_page,
    "job_why": _job_why,
    "pod_list": _pods,
    "pod_query": _waiting_pods,
    "respool_why": _pool_why,
    "respool_tree": _pool_tree,
}


@contextmanager
def _client(cluster: Cluster) -> Iterator[Client]:
    with closing(Client(cluster.local.address)) as client:
        yield client


# -- figures ----------------------------------------------------------------------------------------------------------


def _cycle_figures(cycles: Histogram) -> dict[str, float]:
    return {
        "cycles": cycles.count,
        "cycle_mean_ms": round(cycles.mean * 1000, 1),
        "cycle_p50_below_ms": cycles.below(0.5) * 1000,
        "cycle_p99_below_ms": cycles.below(0.99) * 1000,
    }


def _memory_mib(cluster: Cluster) -> dict[str, int]:
    found = {}
    for name, part in cluster.local.parts.items():
        assert part.process is not None
        found[name] = status_kib("VmRSS", part.process.pid) // 1024
    return found


def _log(cluster: Cluster, part: str, text: str) -> list[str]:
    lines = (cluster.local.data_dir / "logs" / f"{part}.log").read_text().splitlines()
    return [line for line in lines if text in line]


def _come_back(cluster: Cluster) -> float:
    """Return the seconds from kill -9 of the resource manager until its successor answers: with its lease, its start
    and the rebuild.
    """
    terms = len(_log(cluster, "resmgr", LEADS))
    began_s = time.monotonic()
    cluster.kill("resmgr")

    def answers() -> bool:
        # A client repeats its call, so that the first answer after a short outage may be that of the successor.
        if len(_log(cluster, "resmgr", LEADS)) == terms:
            return False
        try:
            with _client(cluster) as client:
                return bool(client.explain.PoolTree(explain_pb2.PoolTreeRequest(), timeout=1).pools)
        except grpc.RpcError:
            return False

    cluster.wait(answers, "answers of the resource manager", TIMEOUT_S)
    return time.monotonic() - began_s
