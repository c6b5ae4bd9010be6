"""Stories of schedules on a real Temporal server; they are also the recipes of the histories of their runs."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from temporalio.client import Client

from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.model.ids import JobId
from peloton.model.pod import PodState
from peloton.model.schedule import Overlap, Run, RunState, Schedule, ScheduledJob, ScheduleOptions, Times
from services.schedules import Schedules
from tests.workflow.scheduled import FakeScheduledJobs
from tests.workflow.server import TIMEOUT_S, ServerStory, histories_of, replay, server_story
from tests.workflow.stories import ports_on

YEARLY = Times(("0 0 1 1 *",))
"""Times that are never due while a story runs."""


@dataclass
class ScheduleStory:
    story: ServerStory
    jobs: FakeScheduledJobs
    schedules: Schedules
    name: str = field(default_factory=lambda: f"report-{uuid.uuid4().hex[:8]}")

    async def create(self, times: Times = YEARLY, overlap: Overlap = Overlap.SKIP, **state: Any) -> None:
        config = job_pb2.JobConfig(name="train", respoolID=ResourcePoolID(value="pool"))
        options = ScheduleOptions(overlap)
        given: dict[str, Any] = {"paused": False, "note": "", "pool_path": "/eng"} | state
        job = ScheduledJob(config.SerializeToString(), "train", "pool", given["pool_path"], "maps", "ann")
        await self.schedules.create(self.name, times, options, job, given["paused"], given["note"])

    async def until(self, fact: Callable[[Schedule], bool], what: str) -> Schedule:
        """Wait until ``fact`` holds for the schedule. The list of its runs is eventually consistent."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not fact(schedule := await self.schedules.get(self.name, 20)):
            assert time.monotonic() < deadline_s, f"not in {TIMEOUT_S} s: {what}: {schedule}"
            await asyncio.sleep(0.1)
        return schedule

    async def runs(self, state: RunState, count: int = 1) -> list[Run]:
        """Return the runs in the state, with their jobs unless these were refused."""

        def list_found(schedule: Schedule) -> list[Run]:
            is_refused = state is RunState.REFUSED
            return [run for run in schedule.runs if run.state is state and (run.job_id or is_refused)]

        return list_found(
            await self.until(lambda schedule: len(list_found(schedule)) >= count, f"{count} runs {state}")
        )

    async def trigger(self, overlap: Overlap | None = None) -> None:
        """Triggers a run, at least a second after the last one: two in one second would be one."""
        second = int(time.time())
        await self.schedules.trigger(self.name, overlap)
        while int(time.time()) == second:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def schedule_story(client: Client, **cluster: Any) -> AsyncIterator[ScheduleStory]:
    """A schedule that can be made, with a worker; at the end the histories of its runs are replayed, and it is gone."""
    async with server_story(client, **cluster) as story:
        await story.stop_worker()
        jobs = FakeScheduledJobs(story.cluster, story.task_queue)
        await story.start_worker(replace(ports_on(story.cluster), scheduled=jobs))
        told = ScheduleStory(story, jobs, Schedules(client, story.policies, story.task_queue))
        yield told
        for run in (await told.schedules.get(told.name, 20)).runs:
            for history in await histories_of(client, run.workflow_id):
                await replay(history)
        await told.schedules.delete(told.name)


async def scheduled_job_succeeded(client: Client) -> str:
    """A run is triggered, and its job succeeds."""
    async with schedule_story(client) as story:
        await story.create()
        await story.trigger()
        (run,) = await story.runs(RunState.SUCCEEDED)
    return run.workflow_id


async def scheduled_job_failed(client: Client) -> str:
    """The job of a run fails."""
    async with schedule_story(client, ending=lambda _: PodState.FAILED) as story:
        await story.create()
        await story.trigger()
        (run,) = await story.runs(RunState.FAILED)
        assert "its job has FAILED" == run.reason
    return run.workflow_id


async def scheduled_job_refused(client: Client) -> str:
    """The pool of a schedule's jobs is gone."""
    async with schedule_story(client) as story:
        story.jobs.refusal = "resource pool not found"
        await story.create()
        await story.trigger()
        (run,) = await story.runs(RunState.REFUSED)
        assert ("resource pool not found", "") == (run.reason, run.job_id)
    return run.workflow_id


async def scheduled_job_made_way(client: Client) -> str:
    """The job of a run is stopped for the next run."""
    async with schedule_story(client, run_s=60.0) as story:
        await story.create(overlap=Overlap.CANCEL_OTHER)
        await story.trigger()
        (first,) = await story.runs(RunState.RUNNING)
        await story.trigger()
        (killed,) = await story.runs(RunState.KILLED)
        assert first.workflow_id == killed.workflow_id
        (second,) = await story.runs(RunState.RUNNING)
        story.story.cluster.kill(JobId(second.job_id))
        await story.runs(RunState.KILLED, 2)
    return killed.workflow_id


RECIPES: tuple[Callable[[Client], Awaitable[str]], ...] = (
    scheduled_job_succeeded,
    scheduled_job_failed,
    scheduled_job_refused,
    scheduled_job_made_way,
)
