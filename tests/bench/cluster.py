"""Cases of a whole local cluster: all processes, Temporal, simulated hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from peloton.api.v0.job.job_pb2 import JobState
from peloton.model.ids import JobId, job_workflow_id
from peloton.model.pod import PodState
from services.lab.local.cluster import LocalSettings
from services.storage.storage import Storage
from tests.bench.figures import cpu_s, status_kib
from tests.bench.profile import profile_parts
from tests.e2e import local
from tests.e2e.local import JOB_END, shell
from tests.waiting import LONGEST_S, Condition

T = TypeVar("T")

TIMEOUT_S = 900.0
POLL_S = 0.2
KUBERNETES_TARGET = 1_000
"""Pods a second on an emulated Kubernetes."""


class Cluster(local.Cluster):
    """Profile a cluster on demand, and wait as long on a quiet machine as on a busy one: its load is large."""

    def __enter__(self) -> Cluster:
        super().__enter__()
        self._profile = profile_parts(self.local.parts)
        self._profile.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._profile.__exit__(None, None, None)
        super().__exit__(*exc)

    def wait(self, condition: Condition, what: str, quiet_s: float = LONGEST_S) -> None:
        super().wait(condition, what, quiet_s)

    def finish(self, job_id: str, quiet_s: float = LONGEST_S) -> str:
        return super().finish(job_id, quiet_s)


def throughput_10k() -> dict[str, Any]:
    """10,000 one-second pods on 1,000 simulated hosts, from submit to SUCCEEDED, while a client polls."""
    hosts = 1_000
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        life = run_job(cluster, cluster.pool("bench"), 10_000, shell("sleep 1", cpu=1, memory=64))
        return {"hosts": hosts, **life}


def kubernetes() -> dict[str, Any]:
    """10,000 empty pods on 1,000 simulated nodes of an emulated Kubernetes, from submit to SUCCEEDED."""
    nodes = 1_000
    with Cluster(LocalSettings(port=0, kubernetes=nodes, no_mesos=True)) as cluster:
        life = run_job(cluster, cluster.pool("bench"), 10_000, shell("true", cpu=0.1, memory=16))
        return {"nodes": nodes, **life, "ratio_to_target": round(KUBERNETES_TARGET / life["pods_per_second"], 2)}


def small_jobs() -> dict[str, Any]:
    """100 jobs of 10 one-second pods on 100 simulated hosts, submitted at once."""
    jobs, pods, hosts = 100, 10, 100
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        pool = cluster.pool("bench")
        started_s = time.monotonic()
        config = shell("sleep 1", cpu=0.1, memory=16)
        ids = [cluster.submit(pool, instanceCount=pods, defaultConfig=config) for _ in range(jobs)]
        submitted_s = time.monotonic() - started_s
        for job in ids:
            cluster.finish(job, quiet_s=300)
        seconds = time.monotonic() - started_s
        return {
            "jobs": jobs,
            "pods": jobs * pods,
            "hosts": hosts,
            "submit_seconds": round(submitted_s, 2),
            "seconds": round(seconds, 2),
            "jobs_per_second": round(jobs / seconds, 1),
            "pods_per_second": round(jobs * pods / seconds, 1),
            "history_events_per_job": history_events(cluster, ids[-1]),
            "peak_memory_mib": peak_memory_mib(cluster),
        }


def run_job(cluster: Cluster, pool: str, pods: int, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Run a job from submit to its end, while a client polls it. ``cpu_ms``: CPU of each process, for a pod, from
    submit on.
    """
    idle_s = cpu_seconds(cluster)
    started_s = time.monotonic()
    job = cluster.submit(pool, instanceCount=pods, defaultConfig=config, **more)
    submitted_s = time.monotonic() - started_s
    answers_s: list[float] = []
    first_s, state = 0.0, ""
    while state not in JOB_END:
        time.sleep(POLL_S)
        asked_s = time.monotonic()
        runtime = cluster.runtime(job)
        answers_s.append(time.monotonic() - asked_s)
        state = JobState.Name(runtime.state)
        if not first_s and any(runtime.taskStats[name] for name in ("RUNNING", "SUCCEEDED")):
            first_s = time.monotonic() - started_s
        assert asked_s - started_s < TIMEOUT_S, f"job {job} is {state}: {runtime.taskStats}"
    seconds = time.monotonic() - started_s
    used_s = cpu_seconds(cluster)
    return {
        "pods": pods,
        "state": state,
        "submit_seconds": round(submitted_s, 2),
        "first_running_seconds": round(first_s, 2),
        "seconds": round(seconds, 2),
        "pods_per_second": round(pods / seconds, 1),
        "pods_stored_succeeded": count_stored(cluster, job),
        "history_events": history_events(cluster, job),
        "bytes_per_pod": {name: round(size / pods) for name, size in measure_stored_bytes(cluster).items()},
        "written_mib": written_mib(cluster),
        "job_get_p50_ms": round(sorted(answers_s)[len(answers_s) // 2] * 1000, 1),
        "job_get_p99_ms": round(sorted(answers_s)[int(len(answers_s) * 0.99)] * 1000, 1),
        "peak_memory_mib": peak_memory_mib(cluster),
        "cpu_seconds": used_s,
        "cpu_ms": {name: round((used - idle_s[name]) / pods * 1000, 2) for name, used in used_s.items()},
    }


def count_stored(cluster: Cluster, job: str) -> int:
    storage = Storage(cluster.local.database)
    try:
        return storage.pods.counts(JobId(job)).get(PodState.SUCCEEDED, 0)
    finally:
        storage.close()


def run_events(cluster: Cluster, workflow_id: str) -> int:
    """Return the events of the last run of a workflow."""
    return asyncio.run(_events(cluster, workflow_id, of_all_runs=False))


def history_events(cluster: Cluster, job_id: str) -> int:
    """Return the events over all runs of the job's workflow."""
    return events_of_all_runs(cluster, job_workflow_id(job_id))


def events_of_all_runs(cluster: Cluster, workflow_id: str) -> int:
    return asyncio.run(_events(cluster, workflow_id, of_all_runs=True))


async def _events(cluster: Cluster, workflow_id: str, of_all_runs: bool) -> int:
    """Return the events of a workflow. The list of runs lags behind, so the latest run is read directly."""
    from temporalio.client import Client

    client = await Client.connect(cluster.local.temporal)
    latest = await client.get_workflow_handle(workflow_id).describe()
    total = latest.history_length
    if of_all_runs:
        async for run in client.list_workflows(f'WorkflowId = "{workflow_id}"'):
            total += run.history_length if run.run_id != latest.run_id else 0
    return total


def peak_memory_mib(cluster: Cluster) -> dict[str, int]:
    return _of_each(cluster, lambda pid: status_kib("VmHWM", pid) // 1024)


def measure_stored_bytes(cluster: Cluster) -> dict[str, int]:
    """Return the bytes of Peloton's and Temporal's stores in files, with their write-ahead logs; Peloton's only on
    SQLite.
    """
    found: dict[str, int] = {}
    for path in cluster.local.data_dir.glob("*.db*"):
        store = path.name.partition(".db")[0]
        found[store] = found.get(store, 0) + path.stat().st_size
    return found


def written_mib(cluster: Cluster) -> dict[str, int]:
    """Return what each process has written to the disk."""

    def written(pid: int) -> int:
        counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        return int(counts["write_bytes"]) >> 20

    return _of_each(cluster, written)


def cpu_seconds(cluster: Cluster) -> dict[str, float]:
    return _of_each(cluster, cpu_s)


def _of_each(cluster: Cluster, look: Callable[[int], T]) -> dict[str, T]:
    """Return the result of ``look`` for the process of each part."""
    return {name: look(part.process.pid) for name, part in cluster.local.parts.items() if part.process is not None}
