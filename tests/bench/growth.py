"""One batch job that grows again and again while it runs."""

from __future__ import annotations

import time
from typing import Any

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from services.lab.local.cluster import LocalSettings
from tests.bench.cluster import Cluster, count_stored, cpu_seconds, history_events, peak_memory_mib
from tests.e2e.local import JOB_END, shell

TARGET_S = 250
TIMEOUT_S = 900.0
FIRST_S = 3_600


def updates(updates: int = 500, added: int = 10, hosts: int = 100) -> dict[str, Any]:
    """``updates`` times ``added`` instances with names of their own, each as soon as the one before was accepted;
    until all of them have succeeded. Instance 0 outlives the others, because a job that has ended cannot grow."""
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        pool = cluster.pool("bench")
        job = cluster.submit(
            pool,
            instanceCount=1,
            defaultConfig=shell("true", cpu=1, memory=64),
            instanceConfig={"0": shell(f"sleep {FIRST_S}", cpu=1, memory=64)},
        )
        config = cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job))).jobInfo.config
        config.ClearField("changeLog")
        calls_s: list[float] = []
        started_s = time.monotonic()
        for number in range(1, updates + 1):
            first = config.instanceCount
            config.instanceCount = 1 + number * added
            config.ClearField("instanceConfig")
            for instance in range(first, config.instanceCount):
                config.instanceConfig[instance].name = f"pod{instance}"
            asked_s = time.monotonic()
            answer = cluster.client.jobs.Update(job_pb2.UpdateRequest(id=peloton_pb2.JobID(value=job), config=config))
            calls_s.append(time.monotonic() - asked_s)
            assert not answer.HasField("error"), answer.error
        accepted_s = time.monotonic() - started_s
        wait_until(cluster, job, updates * added)
        seconds = time.monotonic() - started_s
        return {
            "updates": updates,
            "pods": updates * added,
            "hosts": hosts,
            "accepted_seconds": round(accepted_s, 1),
            "first_50_calls_p50_ms": round(sorted(calls_s[:50])[len(calls_s[:50]) // 2] * 1000, 1),
            "last_50_calls_p50_ms": round(sorted(calls_s[-50:])[len(calls_s[-50:]) // 2] * 1000, 1),
            "seconds": round(seconds, 1),
            "updates_per_second": round(updates / seconds, 1),
            "pods_stored_succeeded": count_stored(cluster, job),
            "history_events": history_events(cluster, job),
            "peak_memory_mib": peak_memory_mib(cluster),
            "cpu_seconds": cpu_seconds(cluster),
            "ratio_to_target": round(seconds / TARGET_S, 2),
        }


def wait_until(cluster: Cluster, job: str, pods: int) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while (
        runtime := cluster.client.jobs.GetCache(job_pb2.GetCacheRequest(id=peloton_pb2.JobID(value=job))).runtime
    ).taskStats["SUCCEEDED"] < pods:
        assert job_pb2.JobState.Name(runtime.state) not in JOB_END, runtime
        assert time.monotonic() < deadline_s, runtime.taskStats
        time.sleep(0.2)
