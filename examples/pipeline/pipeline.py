"""A pipeline of Peloton jobs as a Temporal workflow: jobs run one after the other, and when one fails, the effects of
the earlier ones are undone in reverse order.

    extract -> transform -> load -> DONE
       |           |
       +-- fails --+--> undo what succeeded, the last first -> TAKEN BACK

Users write such workflows themselves, with Temporal's SDK and Peloton's public API; this is no part of Peloton.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory

with workflow.unsafe.imports_passed_through():
    import grpc

    from peloton.api.v0 import peloton_pb2
    from peloton.api.v0.job import job_pb2
    from peloton.api.v0.respool import respool_pb2
    from peloton.api.v0.task import task_pb2
    from peloton.client import Client

POLL_S = 0.5
HEARTBEAT = timedelta(seconds=10)
JOB_TIME_MAX = timedelta(hours=6)
AWAY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}
ENDED = {"SUCCEEDED", "FAILED", "KILLED"}


@dataclass(frozen=True)
class Step:
    """Step of a pipeline. ``undo`` is the command that reverses ``command``; empty: no reversal is necessary."""

    name: str
    command: str
    undo: str = ""


@dataclass(frozen=True)
class Pipeline:
    pool: str
    steps: list[Step]


@dataclass(frozen=True)
class JobToRun:
    job_id: str
    name: str
    pool: str
    command: str


class PelotonJobs:
    """Activities on the API of a cluster."""

    def __init__(self, address: str) -> None:
        self._client = Client(address)

    @activity.defn
    async def run_job(self, job: JobToRun) -> None:
        """Create the job unless an earlier attempt has, and wait for its end. When a worker dies, the next attempt
        finds the job. A cancelled attempt stops the job.
        """
        try:
            await self._retry_while_busy(lambda: self._create(job))
            while (state := await self._retry_while_busy(lambda: self._state(job.job_id))) not in ENDED:
                activity.heartbeat(state)
                await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested:  # else this worker ends, and another one continues
                await asyncio.to_thread(self._stop, job.job_id)
            raise
        if state != "SUCCEEDED":
            text = f"job {job.name} has {state}: see peloton job why {job.job_id}"
            raise ApplicationError(text, type=state, non_retryable=True, category=ApplicationErrorCategory.BENIGN)

    async def _retry_while_busy(self, call: Callable[[], Any]) -> Any:
        """Retry while the API is unavailable: Temporal ends the activity at its timeout."""
        while True:
            activity.heartbeat()
            try:
                return await asyncio.to_thread(call)
            except grpc.RpcError as error:
                if error.code() not in AWAY:
                    raise ApplicationError(error.details() or "", type=error.code().name, non_retryable=True) from error
            await asyncio.sleep(POLL_S)

    def _create(self, job: JobToRun) -> None:
        config = job_pb2.JobConfig(name=job.name, instanceCount=1, respoolID={"value": self._pool_id(job.pool)})
        pod = config.defaultConfig
        pod.resource.cpuLimit, pod.resource.memLimitMb = 0.2, 32
        pod.command.shell, pod.command.value = True, job.command
        answer = self._client.jobs.Create(job_pb2.CreateRequest(id=peloton_pb2.JobID(value=job.job_id), config=config))
        if answer.HasField("error") and not answer.error.HasField("alreadyExists"):
            text = answer.error.invalidConfig.message or answer.error.invalidJobId.message
            raise ApplicationError(f"job {job.name} is refused: {text}", type="JOB_REFUSED", non_retryable=True)

    def _pool_id(self, path: str) -> str:
        request = respool_pb2.LookupRequest(path=respool_pb2.ResourcePoolPath(value=path))
        found = self._client.respools.LookupResourcePoolID(request).id.value
        if not found:
            raise ApplicationError(f"there is no pool {path}", type="NO_POOL", non_retryable=True)
        return found

    def _state(self, job_id: str) -> str:
        found = self._client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job_id)))
        if found.HasField("error"):
            return "KILLED"  # it was deleted
        return job_pb2.JobState.Name(found.jobInfo.runtime.state)

    def _stop(self, job_id: str) -> None:
        self._client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job_id)))


@workflow.defn
class PipelineWorkflow:
    """Workflow of a pipeline. Its result is the list of the jobs that ran, including undo jobs."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @workflow.run
    async def run(self, pipeline: Pipeline) -> list[str]:
        undo: list[Step] = []
        try:
            for step in pipeline.steps:
                await self.run_job(pipeline.pool, step.name, step.command)
                undo.append(step)
        except ActivityError:  # a job has failed, or the pipeline is cancelled
            await self.take_back(pipeline.pool, undo)
            raise
        return self.ran

    async def take_back(self, pool: str, steps: list[Step]) -> None:
        """Compensate: undo the succeeded steps, the last one first."""
        for step in reversed(steps):
            if step.undo:
                await self.run_job(pool, f"undo-{step.name}", step.undo)

    async def run_job(self, pool: str, name: str, command: str) -> None:
        """Run a job. Its id follows from the run of the pipeline and the name: no attempt creates a second job."""
        job_id = str(uuid.uuid5(uuid.UUID(workflow.info().run_id), name))
        await workflow.execute_activity_method(
            PelotonJobs.run_job,
            JobToRun(job_id, name, pool, command),
            start_to_close_timeout=JOB_TIME_MAX,
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1)),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=name,
        )
        self.ran.append(name)

    @workflow.query
    def progress(self) -> list[str]:
        return self.ran
