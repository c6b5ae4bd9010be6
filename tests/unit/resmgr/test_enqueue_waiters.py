"""The caller that queues pods receives their admission, or the job is woken: one of both in every case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from peloton.model.ids import JobId
from peloton.model.job import Queued
from peloton.model.pod import PodState
from services.resmgr import enqueue_waiters
from services.resmgr.loop import AdmissionLoop
from services.resmgr.servicer import AdmissionServicer
from tests.unit.resmgr.world import FAST, World


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[tuple[AdmissionLoop, AdmissionServicer]]:
    loop = world.loop(FAST)
    await loop.start()
    await loop.learn_capacity()
    try:
        yield loop, AdmissionServicer(loop)
    finally:
        await loop.stop()


async def queue_job(servicer: AdmissionServicer, job: JobId, limit: int = 100) -> Queued:
    return await servicer._enqueue(job, limit)


async def woken(world: World, job: JobId) -> None:
    async with asyncio.timeout(120):
        while job not in world.lifecycles.woken:
            await asyncio.sleep(0.005)


async def test_the_answer_reports_what_was_admitted(world: World) -> None:
    """The next cycle admits 10 of 15 pods: the caller receives the count, and no job is woken."""
    job = world.job(world.pool("p", 10, 10), 15)

    async with serving(world) as (_, servicer):
        assert Queued(15, 10) == await queue_job(servicer, job)
        assert {PodState.READY: list(range(10)), PodState.PENDING: list(range(10, 15))} == world.states(job)
        assert job not in world.lifecycles.woken


async def test_what_is_admitted_later_is_reported(world: World) -> None:
    """Pods above the limit are answered as queued; their job is woken when they are admitted."""
    pool = world.pool("p", 1, 1)
    first, second = world.job(pool, 1), world.job(pool, 1)

    async with serving(world) as (_, servicer):
        assert Queued(1, 1) == await queue_job(servicer, first)
        assert Queued(1, 0) == await queue_job(servicer, second)
        world.finish(first, [0])
        await woken(world, second)


async def test_a_gang_is_woken(world: World) -> None:
    """The job is woken, since members of a gang are launched by a workflow that the job starts when it polls."""
    job = world.job(world.pool("p", 10, 10), 5, gang=3)

    async with serving(world) as (_, servicer):
        assert Queued(5, 2) == await queue_job(servicer, job)
        await woken(world, job)


async def test_nothing_queued_is_answered_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that queues nothing waits for no cycle."""
    monkeypatch.setattr(enqueue_waiters, "TIMEOUT_S", 1_000)
    job = world.job(world.pool("p", 0, 0), 1)

    async with serving(world) as (_, servicer):
        assert Queued(0) == await queue_job(servicer, job, limit=0)


async def test_without_a_cycle_the_answer_comes_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pod is admitted while the capacity is unknown: the pods are queued, and their job is woken later."""
    monkeypatch.setattr(enqueue_waiters, "TIMEOUT_S", 0.01)
    capacity, world.hosts.answer = world.hosts.answer, None
    job = world.job(world.pool("p", 10, 10), 1)
    loop = world.loop(FAST)
    await loop.start()
    try:
        assert Queued(1, 0) == await queue_job(AdmissionServicer(loop), job)
        world.hosts.answer = capacity
        await woken(world, job)
    finally:
        await loop.stop()


async def wait_until_left(loop: AdmissionLoop, job: JobId) -> None:
    with loop.waiters.waiter(job) as waiter:
        await loop.enqueue(job, 100)
        await waiter.count_admitted()
        raise asyncio.CancelledError


async def test_a_caller_that_goes_away_leaves_a_wake_up(world: World) -> None:
    """The job is woken if the answer was ready and its caller did not take it."""
    job = world.job(world.pool("p", 10, 10), 2)

    async with serving(world) as (loop, _):
        caller = asyncio.create_task(wait_until_left(loop, job))
        await asyncio.wait([caller])
        assert caller.cancelled()
        assert [job] == world.lifecycles.woken
