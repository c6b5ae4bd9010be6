"""Pools and events of the one job of these tests, in the terms of the host manager and the workflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId, PodId, RespoolId
from peloton.model.job import JobState
from peloton.model.pod import PodState, PodStatus
from services.storage.storage import Storage
from tests.present import require

LEAF = RespoolId("11111111-1111-1111-1111-111111111111")
INNER = RespoolId("22222222-2222-2222-2222-222222222222")
NOW_NS = 1_700_000_000_000_000_000
JOB = JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000d")
ID = peloton_pb2.JobID(value=JOB)
UNKNOWN = peloton_pb2.JobID(value="00000000-0000-4000-8000-000000000000")
Config = Callable[..., job_pb2.JobConfig]


def report(storage: Storage, instance: int, state: PodState, run: int = 1, message: str = "") -> None:
    status = PodStatus(PodId(JOB, instance, run), state, NOW_NS, "h1", "agent-1", message)
    storage.host_pods.apply_status([status], "main")


def run(storage: Storage, *instances: int) -> None:
    """Admit and launch waiting pods and report them as RUNNING."""
    storage.admission.mark_pending(JOB, [(i, 1) for i in instances], 1)
    storage.admission.mark_ready([(JOB, i, 1) for i in instances])
    storage.host_pods.mark_launched(JOB, [(i, 1, "h1", "agent-1", {}) for i in instances], NOW_NS)
    for instance in instances:
        report(storage, instance, PodState.RUNNING)


def end(storage: Storage) -> None:
    storage.pods.create(JOB, lambda _: None)
    storage.jobs.set_goal(JOB, JobState.KILLED, NOW_NS)
    storage.admission.kill_queued(JOB, NOW_NS)
    while not storage.jobs.settle(JOB, NOW_NS).is_finished:
        pass


def ranges(*pairs: tuple[int, int]) -> list[task_pb2.InstanceRange]:
    return [task_pb2.InstanceRange(**{"from": begin, "to": end}) for begin, end in pairs]


async def expect_refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), require(caught.value.details())


def goals(storage: Storage) -> list[PodState]:
    return [pod.goal for pod in storage.pods.page(JOB, 0, 4)]


def wire(job_id: str) -> peloton_pb2.JobID:
    return peloton_pb2.JobID(value=job_id)


async def create(jobs: Any, config: job_pb2.JobConfig, job_id: str = JOB) -> JobId:
    response = await jobs.Create(job_pb2.CreateRequest(id=wire(job_id), config=config))
    assert not response.HasField("error"), response
    return JobId(response.jobId.value)
