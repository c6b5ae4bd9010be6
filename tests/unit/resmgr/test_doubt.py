"""Commits whose effect is unknown: memory is read again, and the jobs concerned are woken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from peloton.api.v0.job import job_pb2
from peloton.errors import Unavailable
from peloton.model.admission import EvictionOrder
from peloton.model.pod import PodState
from peloton.model.update import UpdateSpec, UpdateType
from services.resmgr.loop import AdmissionLoop
from services.resmgr.recovery import rebuild
from services.resmgr.settings import LoopSettings
from services.storage.storage import Storage
from tests.reasons import HOT
from tests.unit.resmgr.test_loop import Faulty, running, until
from tests.unit.resmgr.test_preemption import ROUNDS, lend, start, two_pools
from tests.unit.resmgr.world import FAST, World, facts

PENDING, READY, KILLED, PREEMPTING = PodState.PENDING, PodState.READY, PodState.KILLED, PodState.PREEMPTING
GAVE_UP = Unavailable("storage is busy: gave up after 6 attempts")


@asynccontextmanager
async def doubting(
    world: World, method: str, settings: LoopSettings = FAST, error: Exception = GAVE_UP
) -> AsyncIterator[AdmissionLoop]:
    """Run a loop whose next call of this method commits and then fails. Storage fails in the middle of a chain of
    transactions, and the transactions committed by then stay.
    """
    faulty = Faulty(world, method, error)
    loop = AdmissionLoop(cast(Storage, faulty), world.lifecycles, world.hosts, settings)
    await loop.start()
    try:
        yield loop
    finally:
        await loop.stop()
    assert not faulty.is_armed


async def test_a_kill_that_storage_gives_up_is_seen(world: World) -> None:
    """Pods that had ended by then hold no resources, even if no call is repeated."""
    job = world.job(world.pool("p", 2, 2), 3)

    async with doubting(world, "kill_queued") as loop:
        await loop.enqueue(job, 3)
        await until(lambda: world.states(job) == {READY: [0, 1], PENDING: [2]})
        world.kill_job(job)
        with pytest.raises(Unavailable):
            await loop.kill_queued(job)

        assert world.states(job) == {KILLED: [0, 1, 2]}
        await until(lambda: not loop.state.is_busy)
        assert facts(rebuild(world.storage)) == facts(loop.state)


async def test_who_was_admitted_in_doubt_is_reported(world: World) -> None:
    """The job of pods that are READY is woken although the answer was lost: its workflow would poll
    only minutes later.
    """
    job = world.job(world.pool("p", 2, 2), 3)

    async with doubting(world, "mark_ready", error=ConnectionError("the answer was lost")) as loop:
        await loop.enqueue(job, 3)
        await until(lambda: world.states(job) == {READY: [0, 1], PENDING: [2]})

        await until(lambda: job in world.lifecycles.woken)


async def test_who_was_evicted_in_doubt_is_reported(world: World) -> None:
    """The job of evicted pods is woken although the answer was lost: hosts end the pods on request of its workflow."""
    borrower, owner = two_pools(world)

    async with doubting(world, "evict", ROUNDS) as loop:
        await lend(world, loop, borrower, owner)
        world.lifecycles.woken.clear()
        await until(lambda: PREEMPTING in world.states(borrower))

        await until(lambda: borrower in world.lifecycles.woken)
        await until(lambda: loop.state.evicted == {borrower})


async def test_who_is_evicted_for_others_in_doubt_is_reported(world: World) -> None:
    """The job is woken too when the caller chose the pods."""
    job = world.job(world.pool("p", 2, 2), 2)

    async with doubting(world, "evict") as loop:
        await loop.enqueue(job, 2)
        await until(lambda: world.states(job) == {READY: [0, 1]})
        start(world, job)
        world.lifecycles.woken.clear()
        with pytest.raises(Unavailable):
            await loop.evict([EvictionOrder(job, 0, 1, False, HOT)])

        assert job in world.lifecycles.woken
        await until(lambda: loop.state.evicted == {job})


async def test_another_priority_holds_for_what_waits(world: World) -> None:
    """An update changes the priority of a service: memory is read again and equals the state after a restart."""
    pool = world.pool("p", 1, 1)
    service = world.service(pool, 4, UpdateSpec())
    world.storage.updates.advance(service, world.now_ns)
    world.hosts.answer = None
    config = world.storage.configs.job_config(service)
    assert config is not None
    urgent = job_pb2.JobConfig.FromString(config.SerializeToString())
    urgent.sla.priority = 5

    async with running(world) as loop:
        assert await loop.enqueue(service, 2) == 2
        kind, spec = UpdateType.UPDATE, UpdateSpec(batch_size=1)
        world.storage.updates.create(service, None, kind, spec, urgent, b"", (), "", world.now_ns)
        assert await loop.enqueue(service, 2) == 2

        await until(lambda: facts(rebuild(world.storage)) == facts(loop.state))
        assert loop.state.jobs[service].priority == 5


class Overtaken:
    """A storage in which an update is committed just before pods are queued."""

    def __init__(self, world: World, update: Callable[[], object]) -> None:
        self._storage, self._update = world.storage, update

    @property
    def admission(self) -> Overtaken:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name, None) or getattr(self._storage.admission, name)

    def mark_pending(self, *arguments: Any) -> Any:
        self._update()
        return self._storage.admission.mark_pending(*arguments)


async def test_pods_are_wanted_with_what_they_are_queued_with(world: World) -> None:
    """An update of waiting pods' configuration while they are being queued is not overlooked."""
    service = world.service(world.pool("p", 10, 10), 2, UpdateSpec())
    world.storage.updates.advance(service, world.now_ns)
    world.hosts.answer = None
    larger = world.storage.configs.job_config(service)
    assert larger is not None
    larger.defaultConfig.resource.cpuLimit = 3

    def update() -> None:
        kind = UpdateType.UPDATE
        world.storage.updates.create(service, None, kind, UpdateSpec(), larger, b"", (), "", world.now_ns)
        world.storage.updates.advance(service, world.now_ns)

    loop = AdmissionLoop(cast(Storage, Overtaken(world, update)), world.lifecycles, world.hosts, FAST)
    await loop.start()
    try:
        assert await loop.enqueue(service, 2) == 2
        assert loop.state.accounts.demand[1].tolist() == [6000, 0, 0, 0]
        assert facts(rebuild(world.storage)) == facts(loop.state)
    finally:
        await loop.stop()
