"""Cases of the size that Peloton is for, on the whole of a local cluster."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from peloton.api.v0.job.job_pb2 import JobState
from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.local.cluster import LocalSettings
from services.storage.gateway import Gateway
from tests.bench.cluster import cpu_seconds, history_events, peak_memory_mib
from tests.e2e.local import JOB_END, Cluster, shell
from tests.postgres import running_postgres

PATIENCE_S = 900.0
LOOK_S = 0.5


def throughput() -> dict[str, Any]:
    """100,000 pods that do nothing on 1,000 simulated hosts, from submit to SUCCEEDED, on SQLite."""
    return _throughput("")


def throughput_postgres() -> dict[str, Any]:
    """The same on PostgreSQL."""
    with running_postgres() as server:
        return _throughput(server.create_database())


def _throughput(database: str, pods: int = 100_000, hosts: int = 1_000) -> dict[str, Any]:
    with Cluster(LocalSettings(port=0, simulate=hosts, database=database)) as cluster:
        life = _lived(cluster, cluster.pool("bench"), pods, shell("true", cpu=1, memory=64))
        rate = pods / life["seconds"]
        database = "postgresql" if database else "sqlite"
        return {"database": database, "hosts": hosts, **life, "ratio_to_target": round(1_000 / rate, 2)}


def job_create() -> dict[str, Any]:
    """50,000 pods of 10 s that have 9,000 slots: 900 cpus for 0.1 each. The slots alone take 60 s."""
    return _job_create(0)


def job_create_overrides() -> dict[str, Any]:
    """The same, each pod with a configuration of its own."""
    return _job_create(50_000)


def _job_create(overrides: int, pods: int = 50_000, hosts: int = 1_000) -> dict[str, Any]:
    own = {str(i): {"name": f"pod{i}", **shell(f"sleep 10; echo {i}", cpu=0.1, memory=16)} for i in range(overrides)}
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        config = shell("sleep 10", cpu=0.1, memory=16)
        life = _lived(cluster, cluster.pool("bench", cpu=900), pods, config, instanceConfig=own)
        return {"hosts": hosts, "overrides": overrides, **life, "ratio_to_target": round(life["seconds"] / 80, 2)}


def _lived(cluster: Cluster, pool: str, pods: int, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A job from submit to its end, while a client asks for it."""
    started_s = time.monotonic()
    job = cluster.submit(pool, instanceCount=pods, defaultConfig=config, **more)
    submitted_s = time.monotonic() - started_s
    answers_s: list[float] = []
    first_s, state = 0.0, ""
    while state not in JOB_END:
        time.sleep(LOOK_S)
        asked_s = time.monotonic()
        runtime = cluster.runtime(job)
        answers_s.append(time.monotonic() - asked_s)
        state = JobState.Name(runtime.state)
        if not first_s and any(runtime.taskStats[name] for name in ("RUNNING", "SUCCEEDED")):
            first_s = time.monotonic() - started_s
        assert asked_s - started_s < PATIENCE_S, f"job {job} is {state}: {runtime.taskStats}"
    seconds = time.monotonic() - started_s
    return {
        "pods": pods,
        "state": state,
        "submit_seconds": round(submitted_s, 2),
        "first_running_seconds": round(first_s, 2),
        "seconds": round(seconds, 2),
        "pods_per_second": round(pods / seconds, 1),
        "pods_stored_succeeded": _stored(cluster, job),
        "history_events": asyncio.run(history_events(cluster, job)),
        "job_get_p99_ms": round(sorted(answers_s)[int(len(answers_s) * 0.99)] * 1000, 1),
        "peak_memory_mib": peak_memory_mib(cluster),
        "cpu_seconds": cpu_seconds(cluster),
    }


def _stored(cluster: Cluster, job: str) -> int:
    gateway = Gateway(cluster.local.database)
    try:
        return gateway.pod_counts(JobId(job)).get(PodState.SUCCEEDED, 0)
    finally:
        gateway.close()
