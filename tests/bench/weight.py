"""One job whose instances each have a heavy configuration of their own, sent as a stream."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import sqlalchemy as sa
from google.protobuf.json_format import ParseDict

from peloton.api.bulk import create_messages
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import new_job_id
from services.lab.local.cluster import LocalSettings
from services.storage.engine import Database
from services.storage.tables import OVERRIDE
from tests.bench.cluster import Cluster, cpu_seconds, peak_memory_mib
from tests.e2e.local import JOB_END, shell

CONFIG_BYTES = 10_240
ACCEPTED_S_MAX = 60
MEMORY_MIB_MAX = 1024
TIMEOUT_S = 900.0


def config_weight(
    pods: int = 100_000, hosts: int = 1_000, run_pods: int = 20_000, is_compressible: bool = True
) -> dict[str, Any]:
    """Seconds from the first byte until the answer; the job then runs until so many of its pods have succeeded."""
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        pool, job_id = cluster.pool("bench"), new_job_id()
        job = ParseDict({"name": "weight", "instanceCount": pods, "sla": {"preemptible": True}}, job_pb2.JobConfig())
        job.respoolID.value = pool
        ParseDict(shell("true", cpu=0.5, memory=64), job.defaultConfig)
        sent = Sent(heavy_configs(pods, is_compressible))
        started_s = time.monotonic()
        answer = cluster.client.bulk.CreateJob(create_messages(job_id, job, sent))
        accepted_s = time.monotonic() - started_s
        assert answer.jobId.value == job_id, answer.error
        at_accept = peak_memory_mib(cluster)
        cpu_at_accept = cpu_seconds(cluster)
        ran = ran_until(cluster, job_id, run_pods)
        memory = peak_memory_mib(cluster)
        return {
            "pods": pods,
            "hosts": hosts,
            "is_compressible": is_compressible,
            "config_bytes": sent.size_bytes // pods,
            "sent_mib": round(sent.size_bytes / 2**20, 1),
            "stored_mib": round(measure_config_bytes(cluster) / 2**20, 1),
            "accepted_seconds": round(accepted_s, 1),
            "api_cpu_ms_per_config": round(cpu_at_accept["api"] / pods * 1000, 3),
            "accepted_memory_mib": at_accept,
            **ran,
            "odd_configs": odd_configs(cluster, job_id, range(0, pods, max(1, pods // 50)), is_compressible),
            "peak_memory_mib": memory,
            "cpu_seconds": cpu_seconds(cluster),
            "ratio_to_target": round(
                max(accepted_s / ACCEPTED_S_MAX, max(memory["api"], memory["worker"]) / MEMORY_MIB_MAX), 2
            ),
        }


def config_noise() -> dict[str, Any]:
    """Fewer instances, with configurations that can be compressed only by their spelling."""
    return config_weight(pods=20_000, run_pods=5_000, is_compressible=False)


class Sent:
    """Counts the bytes sent."""

    def __init__(self, configs: Iterator[tuple[int, task_pb2.TaskConfig]]) -> None:
        self.size_bytes = 0
        self._configs = configs

    def __iter__(self) -> Iterator[tuple[int, task_pb2.TaskConfig]]:
        for instance, config in self._configs:
            self.size_bytes += config.ByteSize()
            yield instance, config


def heavy_configs(pods: int, is_compressible: bool) -> Iterator[tuple[int, task_pb2.TaskConfig]]:
    for instance in range(pods):
        yield instance, heavy_config(instance, is_compressible)


def heavy_config(instance: int, is_compressible: bool) -> task_pb2.TaskConfig:
    """Return a configuration of about CONFIG_BYTES: a command, labels, and an environment that names the instance's own
    shards; or noise.
    """
    random = Random(instance)
    config = task_pb2.TaskConfig(name=f"shard-{instance}")
    config.command.shell = True
    config.command.value = f"true --shard {instance} --config /etc/shards/worker.yaml --log-level info"
    for key in ("team", "stage", "region", "model", "dataset"):
        config.labels.add(key=f"com.example.{key}", value=f"{key}-{instance % 7}")
    environment = config.command.environment
    if not is_compressible:
        noise = base64.b64encode(random.randbytes(CONFIG_BYTES * 3 // 4 - 400)).decode()
        environment.variables.add(name="NOISE", value=noise)
        return config
    numbers = random.randbytes(412).hex()
    for index in range(103):
        own = numbers[index * 8 : index * 8 + 8]
        path = f"/data/region-{instance % 7}/bucket-{own}/part-{instance:06d}/file-{index:02d}.parquet"
        environment.variables.add(name=f"APP_INPUT_{index:02d}", value=f"{path}?version={index}&shard={instance}")
    return config


def ran_until(cluster: Cluster, job_id: str, pods: int) -> dict[str, Any]:
    """Wait until ``pods`` have succeeded, or the job has ended; GetCache returns a job without its instances."""
    started_s, first_s = time.monotonic(), 0.0
    while True:
        runtime = cluster.client.jobs.GetCache(job_pb2.GetCacheRequest(id=peloton_pb2.JobID(value=job_id))).runtime
        done, state = runtime.taskStats["SUCCEEDED"], job_pb2.JobState.Name(runtime.state)
        if not first_s and (done or runtime.taskStats["RUNNING"]):
            first_s = time.monotonic() - started_s
        if done >= pods or state in JOB_END:
            break
        assert time.monotonic() - started_s < TIMEOUT_S, f"job {job_id} is {state}: {runtime.taskStats}"
        time.sleep(0.2)
    seconds = time.monotonic() - started_s
    return {
        "state": state,
        "first_running_seconds": round(first_s, 1),
        "pods_succeeded": done,
        "pods_per_second": round(done / seconds, 1),
    }


def measure_config_bytes(cluster: Cluster) -> int:
    """Return the bytes of the stored configurations, without indexes and the like."""
    db = Database(cluster.local.database)
    try:
        query = sa.select(sa.func.sum(sa.func.length(OVERRIDE.c.config)))
        return int(db.read(lambda conn: conn.execute(query).scalar_one()))
    finally:
        db.close()


def odd_configs(cluster: Cluster, job_id: str, instances: range, is_compressible: bool) -> int:
    """Return how many of the requested ones have another command or environment than was sent."""
    return sum(cluster.task(job_id, i).config.command != heavy_config(i, is_compressible).command for i in instances)
