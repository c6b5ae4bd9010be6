"""Versions of workers on a real server: which is current, how a new one takes over, and where workflows go whose
version has no workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from peloton.errors import Aborted
from peloton.lifecycle.worker_ramp import Act, Decision, Promotion, Step
from peloton.lifecycle.worker_versions import UNVERSIONED
from peloton.model.ids import JobId, job_workflow_id
from services.temporal import worker_versions
from services.temporal.connection import connect, connect_config
from services.temporal.task_queues import BATCH_QUEUE
from services.temporal.worker_admin import WorkerAdmin
from services.temporal.worker_fleet import apply, note_start, read_fleet, read_versions
from services.temporal.worker_versions import VersionClaim, VersionController
from services.wakers.wakers import Wakers
from services.wakers.workflow_restarter import WorkflowRestarter
from services.worker.worker import build_workers, run_workers
from tests.conformance.workflow.conftest import VERSIONED
from tests.nightly import NIGHTLY
from tests.workflow.server import (
    SLOTS,
    TIMEOUT_S,
    ServerStory,
    histories_of,
    server_story,
    story_storage,
    wait_until,
)
from tests.workflow.stories import ports_on
from workflows.policies import Policies

QUIET = Policies(look_again_s=600.0, retry_s=600.0, retry_max_s=600.0, count_s=600.0)
"""Policies whose workflows do not poll by themselves while a test runs."""


NAMESPACES = cycle(VERSIONED)
AT_ONCE = (Step(50, 0, 0.0),)
"""A ramp whose only step is passed with the first heartbeat."""
NEVER = (Step(5, 10**9, 10**9),)
"""A ramp that no version passes by itself."""


@pytest.fixture
async def client(temporal_address: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Connect to a namespace of the test: versions of the test before would be known there for some seconds."""
    monkeypatch.setattr(worker_versions, "PERIOD_S", 0.5)
    monkeypatch.setattr(worker_versions, "CONFIRM_S", 1.0)
    return await connect(connect_config(temporal_address, next(NAMESPACES)), "worker", is_lazy=False)


@asynccontextmanager
async def worker(client: Client, story: ServerStory, version: str) -> AsyncIterator[None]:
    """A worker that makes its version the current one where no other one serves."""
    async with run_workers(build_workers(client, ports_on(story.cluster), {BATCH_QUEUE: SLOTS}, build=version)):
        claim = VersionClaim(client, version)
        try:
            yield
        finally:
            await claim.close()


@asynccontextmanager
async def quiet_job(client: Client, steps: Sequence[Step] = AT_ONCE) -> AsyncIterator[tuple[ServerStory, JobId]]:
    """A job of three pods that run, on a worker without a version."""
    controller = VersionController(client, steps=steps)
    try:
        async with server_story(client, task_queue=BATCH_QUEUE, run_s=600.0) as story:
            await current(client, UNVERSIONED)
            job = await story.submit(3, policies=QUIET)
            await story.pods(job, "RUNNING", 3)
            yield story, job
    finally:
        await controller.close()


async def wait_for_fact(fact: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not await fact():
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"not seen: {what}") from None


async def current(client: Client, version: str) -> None:
    async def is_current() -> bool:
        return (await read_versions(client)).current == version

    await wait_for_fact(is_current, f"version {version or 'none'} as the current one")


async def wake(story: ServerStory, job: JobId) -> list[str]:
    """Wake the job, on whatever worker; return the version on which each of its runs was at last."""
    looks = story.cluster.calls["settle"]
    await story.handle(job).signal("changed")

    async def is_done() -> bool:
        if story.cluster.calls["settle"] == looks:
            return False
        last = (await histories_of(story.client, job_workflow_id(job)))[-1]  # which may have only begun
        return any(event.HasField("workflow_task_completed_event_attributes") for event in last.events)

    await wait_for_fact(is_done, "another look at the job")
    return await versions_of(story, job)


async def assert_continues(story: ServerStory, job: JobId, version: str) -> None:
    """Wait until the woken job is on the version. One more wake-up may begin on the last one: the server propagates
    another current version to its parts one after the other."""

    async def is_there() -> bool:
        return (await wake(story, job))[-1] == version

    await wait_for_fact(is_there, f"the job on version {version or 'none'}")


async def versions_of(story: ServerStory, job: JobId) -> list[str]:
    found = []
    for history in await histories_of(story.client, job_workflow_id(job)):
        tasks = [
            event.workflow_task_completed_event_attributes.deployment_version.build_id
            for event in history.events
            if event.HasField("workflow_task_completed_event_attributes")
        ]
        found.append(tasks[-1] if tasks else "")
    return found


async def moves_of(story: ServerStory, job: JobId) -> int:
    """The number of times that the job's runs were moved to another version."""
    events = [event for history in await histories_of(story.client, job_workflow_id(job)) for event in history.events]
    return sum(event.HasField("workflow_execution_options_updated_event_attributes") for event in events)


async def test_a_job_goes_from_version_to_version(client: Client) -> None:
    """A job goes from a worker without a version to one that has one, to the next version when it wakes, and back again
    when that is gone. Its pods run on."""
    async with quiet_job(client) as (story, job):
        await story.stop_worker()
        async with worker(client, story, "a1"):
            await current(client, "a1")
            await assert_continues(story, job, "a1")
            assert ["a1", "a1"] == await versions_of(story, job)  # the first run was moved, and continued as new
            async with worker(client, story, "a2"):
                await current(client, "a2")
                await assert_continues(story, job, "a2")
                assert ["a1", "a1", "a2"] == await versions_of(story, job)
            await current(client, "a1")
            await assert_continues(story, job, "a1")
            assert ["a1", "a1", "a1", "a1"] == await versions_of(story, job)  # the third run was moved
            story.cluster.kill(job)
            assert ("KILLED", {"KILLED": 3}) == await story.result(job)
        assert 3 == len(story.cluster.launched)


async def test_an_idle_job_is_moved_by_the_leader(client: Client) -> None:
    """The leading resource manager moves an idle job to the current version of the workers, also from workers without
    a version."""
    async with quiet_job(client) as (story, job), AsyncExitStack() as workers:
        controller = VersionController(client, steps=AT_ONCE)
        wakers = Wakers(client, story_storage(story), QUIET, interval_s=0.05)
        leader = WorkflowRestarter(client, wakers, period_s=0.2, current_version=lambda: controller.current)
        await story.stop_worker()

        for version in ("e1", "e2"):
            await workers.enter_async_context(worker(client, story, version))
            await current(client, version)

            async def is_moved(version: str = version) -> bool:
                return (await versions_of(story, job))[-1] == version

            await wait_for_fact(is_moved, f"the idle job on version {version}")
        for watch in (leader, wakers, controller):
            await watch.close()
        story.cluster.kill(job)
        assert ("KILLED", {"KILLED": 3}) == await story.result(job)


@NIGHTLY
async def test_a_job_whose_version_has_no_worker_is_moved(client: Client) -> None:
    """The last worker of its version has gone before the job woke: it continues with the next version."""
    async with quiet_job(client) as (story, job):
        await story.stop_worker()
        async with worker(client, story, "b1"):
            await current(client, "b1")
            await wake(story, job)
        async with worker(client, story, "b2"):
            await current(client, "b2")

            assert ["b1", "b2", "b2"] == await wake(story, job)
            assert 1 == await moves_of(story, job)
            story.cluster.kill(job)
            assert ("KILLED", {"KILLED": 3}) == await story.result(job)


@NIGHTLY
async def test_an_activity_of_a_version_without_workers_is_moved(client: Client) -> None:
    """An activity that failed until the last worker was gone succeeds on a worker of the next version."""
    async with quiet_job(client) as (story, first):
        await story.stop_worker()
        async with worker(client, story, "d1"):
            await current(client, "d1")
            outages = story.cluster.outages
            outages.update(create=1_000)
            job = await story.submit(200, policies=QUIET)
            await wait_until(lambda: outages["create"] < 999, "an activity that fails again")
        outages.clear()
        async with worker(client, story, "d2"):
            await story.pods(job, "RUNNING", 9)
            for each in (first, job):
                story.cluster.kill(each)
                await story.result(each)


@NIGHTLY
async def test_a_rollback_to_workers_without_versions(client: Client) -> None:
    """No worker claims anything for them: who is pinned elsewhere is moved, and new jobs begin there."""
    async with quiet_job(client) as (story, job):
        async with worker(client, story, "c1"):
            await current(client, "c1")
            await assert_continues(story, job, "c1")
        await current(client, UNVERSIONED)

        await assert_continues(story, job, UNVERSIONED)
        other = await story.submit(1)
        await story.pods(other, "RUNNING", 1)
        for each in (job, other):
            story.cluster.kill(each)
            await story.result(each)


async def test_a_version_whose_workers_crash_stays_at_its_first_step(client: Client) -> None:
    """A version whose workers crash is given up, keeps nothing, and claims nothing again, until a person promotes it; a
    rollback undoes that."""
    admin = WorkerAdmin(client, Promotion.AUTO)

    async def is_given_up() -> bool:
        await asyncio.sleep(0.5)  # the server answers this a few times a second
        fleet = await read_fleet(client)
        return (fleet.current, fleet.ramping, bool(fleet.version("f2").verdict)) == ("f1", "", True)

    async with quiet_job(client, NEVER) as (story, job):
        await story.stop_worker()
        async with worker(client, story, "f1"):
            await current(client, "f1")
            async with worker(client, story, "f2"):

                async def is_ramping() -> bool:
                    await asyncio.sleep(0.5)
                    fleet = await read_fleet(client)
                    return (fleet.current, fleet.ramping, fleet.percent) == ("f1", "f2", NEVER[0].percent)

                await wait_for_fact(is_ramping, "the first step of the new version")
                for age_s in (50.0, 40.0, 30.0):  # starts of workers that did not stop in order
                    assert await note_start(client, "f2", time.time() - age_s)
                await wait_for_fact(is_given_up, "the new version given up")
                before = await read_fleet(client)
                assert "3 of its workers crashed" in before.version("f2").verdict
                await assert_continues(story, job, "f1")

                await admin.promote("f2", 0.0)
                with pytest.raises(RPCError, match="conflict token mismatch"):  # decided before the promotion
                    await apply(client, before, Decision(Act.MAKE_CURRENT, "f1", "newer"))
                await current(client, "f2")
                assert not (await read_fleet(client)).version("f2").verdict
                await assert_continues(story, job, "f2")
                await admin.roll_back()
                await wait_for_fact(is_given_up, "the promoted version given up again")
                await current(client, "f1")
                await assert_continues(story, job, "f1")
                with pytest.raises(Aborted, match="no version older than the current one, f1, has a worker"):
                    await admin.roll_back()
                story.cluster.kill(job)
                assert ("KILLED", {"KILLED": 3}) == await story.result(job)
