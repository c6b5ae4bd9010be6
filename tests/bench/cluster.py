"""Cases of a whole local cluster: all processes, Temporal, simulated hosts."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from peloton.model.ids import job_workflow_id
from services.local.cluster import LocalSettings
from tests.bench.figures import status_kib
from tests.e2e.local import Cluster, shell


def throughput_10k() -> dict[str, Any]:
    """10,000 one-second pods on 1,000 simulated hosts, from submit to SUCCEEDED, while a client keeps asking."""
    pods, hosts = 10_000, 1_000
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        pool = cluster.pool("bench")
        started_s = time.monotonic()
        job = cluster.submit(pool, instanceCount=pods, defaultConfig=shell("sleep 1", cpu=1, memory=64))
        answers_s: list[float] = []
        state = "INITIALIZED"
        while state not in ("SUCCEEDED", "FAILED", "KILLED"):
            asked_s = time.monotonic()
            state = cluster.job_state(job)
            answers_s.append(time.monotonic() - asked_s)
            time.sleep(0.2)
        seconds = time.monotonic() - started_s
        answers_s.sort()
        return {
            "pods": pods,
            "hosts": hosts,
            "state": state,
            "seconds": round(seconds, 2),
            "pods_per_second": round(pods / seconds, 1),
            "history_events": asyncio.run(history_events(cluster, job)),
            "peak_memory_mib": peak_memory_mib(cluster),
            "cpu_seconds": cpu_seconds(cluster),
            "job_get_p50_ms": round(answers_s[len(answers_s) // 2] * 1000, 1),
            "job_get_p99_ms": round(answers_s[int(len(answers_s) * 0.99)] * 1000, 1),
        }


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
            cluster.finish(job, patience_s=300)
        seconds = time.monotonic() - started_s
        return {
            "jobs": jobs,
            "pods": jobs * pods,
            "hosts": hosts,
            "submit_seconds": round(submitted_s, 2),
            "seconds": round(seconds, 2),
            "jobs_per_second": round(jobs / seconds, 1),
            "pods_per_second": round(jobs * pods / seconds, 1),
            "history_events_per_job": asyncio.run(history_events(cluster, ids[-1])),
            "peak_memory_mib": peak_memory_mib(cluster),
        }


async def history_events(cluster: Cluster, job_id: str) -> int:
    """Events over all runs of the job's workflow. The list of runs lags behind; the latest run is asked itself."""
    from temporalio.client import Client

    client = await Client.connect(f"127.0.0.1:{cluster.local.temporal_port}")
    latest = await client.get_workflow_handle(job_workflow_id(job_id)).describe()
    total = latest.history_length
    async for run in client.list_workflows(f'WorkflowId = "{job_workflow_id(job_id)}"'):
        total += run.history_length if run.run_id != latest.run_id else 0
    return total


def peak_memory_mib(cluster: Cluster) -> dict[str, int]:
    found = {}
    for name, part in cluster.local.parts.items():
        assert part.process is not None
        found[name] = status_kib("VmHWM", part.process.pid) // 1024
    return found


def cpu_seconds(cluster: Cluster) -> dict[str, float]:
    used = {}
    for name, part in cluster.local.parts.items():
        assert part.process is not None
        with open(f"/proc/{part.process.pid}/stat") as line:
            fields = line.read().rpartition(")")[2].split()
        used[name] = round((int(fields[11]) + int(fields[12])) / 100, 1)
    return used
