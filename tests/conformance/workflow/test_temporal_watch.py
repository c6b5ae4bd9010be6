"""Problems of workflows, as a real server and a real worker report them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from peloton.model.job import JobRecord
from services.temporal.connection import connect, connect_config
from services.temporal.task_queues import BATCH_QUEUE, WORKFLOW_TASK_TIMEOUT
from services.temporal.watch import QUEUES, TemporalWatch
from services.worker import attempts as counting
from services.worker.attempts import Attempts
from services.worker.worker import SLOTS, build_workers, run_workers
from tests.conformance.workflow.conftest import WATCHED
from tests.workflow.server import TIMEOUT_S, ServerStory, wait_until
from tests.workflow.stories import ports_on
from workflows.attributes import TYPE


@pytest.fixture
async def beating(temporal_address: str) -> Client:
    """A client whose workers send heartbeats as in installations, in a namespace that no other tests poll."""
    return await connect(connect_config(temporal_address, WATCHED, environment={}), is_lazy=False)


async def until(fact: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await fact():
            await asyncio.sleep(0.2)


async def test_task_queues_are_unserved_until_workers_come_and_when_they_stop(beating: Client) -> None:
    """Heartbeats of workers show which queues are served. The workers have a version, as in installations: the server
    would remember the polls of others for a minute."""
    watch, ports = TemporalWatch(beating), ports_on(ServerStory(beating).cluster)

    async def is_served() -> bool:
        return not (await watch.read_snapshot()).unserved

    async def is_unserved() -> bool:
        return [*QUEUES] == (await watch.read_snapshot()).unserved

    async with run_workers(build_workers(beating, ports, SLOTS, build="watched")):
        await until(is_served, "workers on all task queues")
    await until(is_unserved, "no worker on any task queue")


async def test_an_activity_and_workflow_tasks_that_fail_again_and_again(
    beating: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker counts the attempts of the activity; ``job why`` names it, and the overview names the workflow whose
    tasks fail, as long as they do."""
    monkeypatch.setattr(counting, "ATTEMPTS", 3)
    story, attempts, watch = ServerStory(beating), Attempts(), TemporalWatch(beating)
    story.task_queue = BATCH_QUEUE
    story.cluster.outages.update(enqueue=1_000_000)
    broken = f"job/{uuid.uuid4()}"

    async def names_broken() -> bool:
        return broken in {one.workflow_id for one in (await watch.read_snapshot()).tasks}

    async def names_no_broken() -> bool:
        return not await names_broken()

    async def names_activity(job: JobRecord) -> bool:
        return any("its activity enqueue is on attempt" in line for line in await watch.why(job))

    async with AsyncExitStack() as stack:
        workers = build_workers(beating, ports_on(story.cluster), {BATCH_QUEUE: 4}, attempts=attempts)
        await stack.enter_async_context(run_workers(workers))
        record = story.add_job(1)
        await story.start(record)
        marked = TypedSearchAttributes([SearchAttributePair(TYPE, "BATCH")])
        await beating.start_workflow(
            "Job", "no input", id=broken, task_queue=BATCH_QUEUE, task_timeout=WORKFLOW_TASK_TIMEOUT,
            search_attributes=marked,
        )  # fmt: skip
        await wait_until(lambda: attempts.report()[1] == 1, "an activity on its third attempt")
        (found,), _ = attempts.report()
        assert (f"job/{record.job_id}", "enqueue") == (found.workflow_id, found.activity)
        assert "enqueue: connection refused" in found.error
        await until(lambda: names_activity(record), "the activity in job why")
        await until(names_broken, "workflow tasks that fail")
        await beating.get_workflow_handle(broken).terminate()
        await until(names_no_broken, "no workflow tasks that fail")
        story.cluster.outages.clear()
        story.cluster.lifecycles = None
        await wait_until(lambda: attempts.report()[1] == 0, "an attempt that succeeds")
        await story.handle(record.job_id).terminate()


async def test_a_workflow_that_failed_is_named_until_it_runs_again(beating: Client) -> None:
    """The overview and ``job why`` have the error of the activity that ended the workflow."""
    story, watch = ServerStory(beating), TemporalWatch(beating)
    story.task_queue = BATCH_QUEUE
    story.cluster.refusals.update(enqueue=1_000_000)
    said = "enqueue: not like this"

    async def names_failed() -> bool:
        return (f"job/{record.job_id}", said) in {
            (one.workflow_id, one.error) for one in (await watch.read_snapshot()).failed
        }

    async def names_no_failed() -> bool:
        return not (await watch.read_snapshot()).failed

    async with run_workers(build_workers(beating, ports_on(story.cluster), {BATCH_QUEUE: 4})):
        record = story.add_job(1)
        await story.start(record)
        await until(names_failed, "a workflow that failed")
        why = [line for line in await watch.why(record) if "failed" in line]
        story.cluster.refusals.clear()
        story.cluster.outages.update(enqueue=1_000_000)  # it runs, and waits
        await story.start(record)
        await until(names_no_failed, "no workflow that failed")
        await story.handle(record.job_id).terminate()

    (line,) = why
    assert line.startswith(
        f"the workflow of job {record.name} failed: {said}; it failed once within 60 min, and is started"
    )
