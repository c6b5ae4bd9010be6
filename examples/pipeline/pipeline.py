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
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory

with workflow.unsafe.imports_passed_through():
    from peloton import client
    from peloton.errors import PelotonError

POLL_S = 0.5
HEARTBEAT = timedelta(seconds=10)
JOB_TIME_MAX = timedelta(hours=6)


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
    """Activities on the API of a cluster. An outage of it is waited for: Temporal ends the activity at its timeout."""

    def __init__(self, address: str) -> None:
        patience = client.RetryPolicy(away_s=JOB_TIME_MAX.total_seconds(), say=activity.heartbeat)
        self._client = client.AsyncClient(address, retry=patience)

    @activity.defn
    async def run_job(self, job: JobToRun) -> None:
        """Create the job unless an earlier attempt has, and wait for its end. When a worker dies, the next attempt
        finds the job. A cancelled attempt stops the job.
        """
        config = {"name": job.name, "instanceCount": 1, "defaultConfig": pod(job.command)}
        try:
            await self._client.submit(job.pool, config, job_id=job.job_id)
            while not (progress := await self._client.progress(job.job_id)).has_ended:
                activity.heartbeat(progress.state)
                await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested:  # else this worker ends, and another one continues
                await self._client.stop(job.job_id)
            raise
        except PelotonError as error:
            raise ApplicationError(f"job {job.name}: {error}", type=error.code, non_retryable=True) from error
        if not progress.has_succeeded:
            text = f"job {job.name} has {progress.state}: see peloton job why {job.job_id}"
            raise ApplicationError(
                text, type=progress.state, non_retryable=True, category=ApplicationErrorCategory.BENIGN
            )


def pod(command: str) -> dict[str, Any]:
    return {"resource": {"cpuLimit": 0.2, "memLimitMb": 32}, "command": {"shell": True, "value": command}}


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
