"""The admission loop against a real store: its commits, the jobs it wakes, and its state after errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from peloton.api.convert_pool import pool_spec
from peloton.errors import Aborted, NotFound
from peloton.lifecycle.failed_placements import BACKOFF_STEP_S
from peloton.lifecycle.reason_text import queue_text
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from peloton.scheduling.explain import list_waits
from services.resmgr.audit import faults
from services.resmgr.explain.dry_run import plan_now
from services.resmgr.loop import AdmissionLoop
from services.resmgr.pool_rules import with_defaults
from services.resmgr.recovery import rebuild
from services.resmgr.settings import LoopSettings
from services.storage.storage import Storage
from tests.reasons import REQUEUED
from tests.unit.resmgr.world import FAST, World, facts, fast, pool_config

PENDING, READY, KILLED, INITIALIZED = PodState.PENDING, PodState.READY, PodState.KILLED, PodState.INITIALIZED
FAILED = PodState.FAILED


@asynccontextmanager
async def running(world: World, settings: LoopSettings = FAST) -> AsyncIterator[AdmissionLoop]:
    loop = world.loop(settings)
    await loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.005)


async def test_pods_are_admitted_and_the_job_is_signalled(world: World) -> None:
    """Queued pods become READY in storage as far as the pool allows, and the job's workflow is woken."""
    job = world.job(world.pool("p", 10, 10), 15)

    async with running(world) as loop:
        assert await loop.enqueue(job, 100) == 15
        await until(lambda: job in world.lifecycles.woken)

        assert world.states(job) == {READY: list(range(10)), PENDING: list(range(10, 15))}
        assert [queue_text(wait.reason) for wait in list_waits(*plan_now(loop.state, 0), 1)] == [
            "cpu 1 wanted, 0 left of the pool limit of /p: 10"
        ]
        assert [] == list(faults(loop.state))


async def test_enqueue_is_idempotent(world: World) -> None:
    """A second call finds nothing left to queue."""
    job = world.job(world.pool("p", 1, 1), 3)

    async with running(world) as loop:
        assert await loop.enqueue(job, 2) == 2
        assert await loop.enqueue(job, 2) == 1
        assert await loop.enqueue(job, 2) == 0


async def test_ended_pods_free_resources(world: World) -> None:
    """Ended pods are read from the status log, and their resources are given to the next gang in line."""
    job = world.job(world.pool("p", 2, 2), 4)

    async with running(world) as loop:
        await loop.enqueue(job, 4)
        await until(lambda: world.states(job).get(READY) == [0, 1])
        world.finish(job, [0])
        await until(lambda: world.states(job).get(READY) == [1, 2])
        await until(lambda: loop.state.accounts.non_slack[1].tolist() == [2000, 0, 0, 0])  # memory follows the commit


async def test_new_run_is_queued_after_the_old_one_is_released(world: World) -> None:
    """A lost pod has a new run and returns through the queue; nothing is counted twice."""
    job = world.job(world.pool("p", 2, 2), 2)

    async with running(world, fast(cycle_period_s=0.2)) as loop:
        await loop.enqueue(job, 2)
        await until(lambda: world.states(job) == {READY: [0, 1]})
        world.finish(job, [0], PodState.LOST)
        world.settle(job)
        assert world.states(job) == {INITIALIZED: [0], READY: [1]}
        assert await loop.enqueue(job, 2) == 1
        await until(lambda: world.states(job) == {READY: [0, 1]})

        await until(lambda: loop.state.accounts.non_slack[1].tolist() == [2000, 0, 0, 0])
        assert [] == list(faults(loop.state))


async def test_kill_ends_queued_and_admitted_pods(world: World) -> None:
    """Pods whose goal is KILLED leave the queue or free their resources; other pods take them."""
    pool = world.pool("p", 2, 2)
    job, other = world.job(pool, 4), world.job(pool, 2)

    async with running(world) as loop:
        await loop.enqueue(job, 4)
        await loop.enqueue(other, 4)
        await until(lambda: world.states(job).get(READY) == [0, 1])
        world.kill_job(job)
        assert await loop.kill_queued(job) == 4
        await until(lambda: world.states(other) == {READY: [0, 1]})

        assert world.states(job) == {KILLED: [0, 1, 2, 3]}
        assert job not in loop.state.jobs
        assert [] == list(faults(loop.state))


async def test_a_gang_ends_whole_in_the_queue(world: World) -> None:
    """A kill of one member ends the whole gang; the other pods of the job keep their place."""
    pool = world.pool("p", 3, 3)
    gang = world.job(pool, 5, gang=3)

    async with running(world, fast(admitted_pods_max=1)) as loop:
        world.hosts.answer = (Resources.of(2), Resources())
        await until(lambda: loop.state.capacity == Resources.of(2))
        await loop.enqueue(gang, 5)
        await until(lambda: bool(loop.state.admission.passed_over))
        world.want_killed(gang, 1, 1)
        assert await loop.kill_queued(gang) == 3
        assert [] == list(faults(loop.state))
        await until(lambda: world.states(gang) == {KILLED: [0, 1, 2], READY: [3, 4]})

        await until(lambda: facts(rebuild(world.storage)) == facts(loop.state))


async def test_a_gang_whose_launch_failed_is_passed_by(world: World) -> None:
    """The gang frees its resources, keeps its place, and is in backoff, in memory as after a rebuild; others are
    admitted before it, and after the backoff it is first in line again.
    """
    pool = world.pool("p", 3, 3)
    gang, other = world.job(pool, 3, gang=3), world.job(pool, 4)

    async with running(world) as loop:
        await loop.enqueue(gang, 3)
        await until(lambda: world.states(gang) == {READY: [0, 1, 2]})
        await loop.enqueue(other, 4)

        await loop.requeue_gang(gang, REQUEUED)
        await loop.requeue_gang(gang, REQUEUED)

        await until(lambda: world.states(other) == {READY: [0, 1, 2], PENDING: [3]})
        assert world.states(gang) == {PENDING: [0, 1, 2]}
        assert gang in world.lifecycles.woken
        await until(lambda: facts(rebuild(world.storage)) == facts(loop.state))  # memory follows the commit
        assert [] == list(faults(loop.state))
        now_ns = loop.clock_ns()
        (held,) = loop.state.snapshot(100, now_ns).held
        left_s = held.reason.left
        assert (
            f"gang of 3: in backoff for {left_s} s after 1 failed launch; later gangs may be admitted first"
            == queue_text(held.reason)
        )
        assert 0 < left_s <= 30

        loop.clock_ns = lambda: now_ns + 30 * 10**9
        world.finish(other, [0, 1, 2])
        await until(lambda: world.states(gang) == {READY: [0, 1, 2]})
        assert world.states(other)[PENDING] == [3]


async def test_pods_without_a_host_are_passed_by(world: World) -> None:
    """The pods free their resources, keep their place, and are in backoff, in memory as after a rebuild; others are
    admitted before them, and after the backoff they are first in line again.
    """
    pool = world.pool("p", 3, 3)
    stuck, other = world.job(pool, 3, cpus=[1, 1, 0.5]), world.job(pool, 4)

    async with running(world) as loop:
        await loop.enqueue(stuck, 3)
        await until(lambda: world.states(stuck) == {READY: [0, 1, 2]})
        await loop.enqueue(other, 4)

        assert await loop.requeue_pods(stuck, [(0, 2)], REQUEUED) == 2
        assert await loop.requeue_pods(stuck, [(0, 2)], REQUEUED) == 0

        await until(lambda: world.states(other) == {READY: [0, 1], PENDING: [2, 3]})
        assert world.states(stuck) == {PENDING: [0, 1], READY: [2]}
        assert [] == list(faults(loop.state))
        await until(lambda: facts(rebuild(world.storage)) == facts(loop.state))  # memory follows a commit
        now_ns = loop.clock_ns()
        now = loop.state.snapshot(100, now_ns)
        (held,) = now.held
        assert (
            f"in backoff for {held.reason.left} s after no host was found; later gangs may be admitted first"
            == queue_text(held.reason)
        )
        assert (0, 2) == (held.run.start, held.run.gang_count)
        assert 2_000 == now.demand[now.tree.row[pool], 0]  # demand of the other job alone

        loop.clock_ns = lambda: now_ns + 30 * 10**9
        world.finish(other, [0])
        await until(lambda: world.states(stuck) == {PENDING: [1], READY: [0, 2]})
        assert world.states(other)[PENDING] == [2, 3]


async def test_what_is_in_backoff_is_tried_when_hosts_have_come(world: World) -> None:
    """Pods in backoff are tried when new hosts register, not earlier, and not repeatedly while hosts flap."""
    pool = world.pool("p", 3, 3)
    stuck = world.job(pool, 3)

    async with running(world) as loop:
        await loop.enqueue(stuck, 3)
        await until(lambda: world.states(stuck) == {READY: [0, 1, 2]})
        for cpu in (50, 101, 40, 102):
            await loop.requeue_pods(stuck, [(0, 3)], REQUEUED)
            world.hosts.answer = (Resources.of(cpu, 100_000, 100_000), Resources())
            await loop.learn_capacity()
            await loop.run_cycle()
            is_tried = READY in world.states(stuck)
            assert is_tried == (cpu == 101)
        now_ns = loop.clock_ns()
        loop.clock_ns = lambda: now_ns + BACKOFF_STEP_S * 10**9
        await until(lambda: world.states(stuck) == {READY: [0, 1, 2]})


async def test_capacity_is_needed_and_kept(world: World) -> None:
    """No pod is admitted before a host manager has answered; while it is unavailable the last answer holds."""
    job = world.job(world.pool("p", 2, 2), 3)
    answer, world.hosts.answer = world.hosts.answer, None

    async with running(world) as loop:
        await loop.enqueue(job, 3)
        await loop.run_cycle()
        assert world.states(job) == {PENDING: [0, 1, 2]}

        world.hosts.answer = answer
        await until(lambda: world.states(job) == {READY: [0, 1], PENDING: [2]})
        world.hosts.answer = None
        world.finish(job, [0])
        await until(lambda: world.states(job).get(READY) == [1, 2])


async def test_priority_and_order_survive_a_restart(world: World) -> None:
    """A new resource manager has the same queues in the same order, and continues."""
    pool = world.pool("p", 2, 2)
    jobs = [world.job(pool, 3, priority=priority) for priority in (0, 2, 1)]

    async with running(world) as loop:
        world.hosts.answer = None
        for job in jobs:
            await loop.enqueue(job, 3)
        before = facts(loop.state)
    world.hosts.answer = (Resources.of(4), Resources())

    async with running(world) as loop:
        assert facts(rebuild(world.storage)).keys() == before.keys()
        await until(lambda: sum(len(world.states(job).get(READY, [])) for job in jobs) == 2)
        assert world.states(jobs[1]).get(READY) == [0, 1]


async def test_unknown_job_and_a_pool_that_is_no_leaf(world: World) -> None:
    """Refusals name the job or the pool, and change nothing. The call may be repeated when the pool is a leaf again."""
    parent = world.pool("p", 2, 2)
    world.pool("child", 1, 1, parent)
    on_parent = world.job(parent, 1)
    unknown = JobId("a1a1a1a1-0000-4000-8000-000000000000")

    async with running(world) as loop:
        with pytest.raises(NotFound, match=f"job {unknown} not found"):
            await loop.enqueue(unknown, 1)
        with pytest.raises(Aborted, match="resource pool /p takes no jobs: it is not a leaf"):
            await loop.enqueue(on_parent, 1)

    assert world.states(on_parent) == {INITIALIZED: [0]}


async def test_a_batch_job_whose_pool_is_gone_fails_with_the_reason(world: World) -> None:
    """The pods fail once, have no other run, and the job ends."""
    nowhere = world.job(RespoolId("b1b1b1b1-0000-4000-8000-000000000000"), 3, max_failures=9)

    async with running(world) as loop:
        assert 3 == await loop.enqueue(nowhere, 3)
        assert 0 == await loop.enqueue(nowhere, 3)

    assert JobState.FAILED == world.storage.jobs.settle(nowhere, 1).state
    assert {FAILED: [0, 1, 2]} == world.states(nowhere)
    (message,) = {pod.message for pod in world.storage.pods.page(nowhere, 0, 3)}
    assert "resource pool b1b1b1b1-0000-4000-8000-000000000000 does not exist any more" == message


async def test_a_pool_that_the_resource_manager_does_not_know_yet_is_waited_for(world: World) -> None:
    """Another resource manager has stored it, while this one has yet to notice that it leads no more."""
    async with running(world) as loop:
        job = world.job(world.pool("new", 1, 1), 1)
        with pytest.raises(Aborted, match="is not known to this resource manager yet"):
            await loop.enqueue(job, 1)

    assert {INITIALIZED: [0]} == world.states(job)


class Faulty:
    """A storage in which the next call of one method is carried out and then reported as failed."""

    def __init__(self, world: World, method: str, error: Exception | None = None) -> None:
        self._storage, self._method, self.is_armed = world.storage, method, True
        self._error = error or ConnectionError("the answer was lost")

    @property
    def admission(self) -> Faulty:
        return self

    def __getattr__(self, name: str) -> Any:
        if hasattr(self._storage, name):
            return getattr(self._storage, name)
        real = getattr(self._storage.admission, name)
        if name != self._method or not self.is_armed:
            return real

        def fails(*arguments: Any) -> Any:
            self.is_armed = False
            real(*arguments)
            raise self._error

        return fails


@pytest.mark.parametrize("method", ["mark_ready", "status_log"])
async def test_a_lost_answer_in_the_cycle_changes_nothing(world: World, method: str) -> None:
    """A commit whose answer is lost is read back from storage; the loop continues."""
    job = world.job(world.pool("p", 2, 2), 3)
    loop = AdmissionLoop(cast(Storage, Faulty(world, method)), world.lifecycles, world.hosts, FAST)
    await loop.start()
    try:
        await until(lambda: not loop.state.is_busy)
        with_error = asyncio.gather(loop.enqueue(job, 3), return_exceptions=True)
        await with_error
        await until(lambda: world.states(job) == {READY: [0, 1], PENDING: [2]})
        world.finish(job, [0])
        await until(lambda: world.states(job).get(READY) == [1, 2])
        assert [] == list(faults(loop.state))
    finally:
        await loop.stop()


@pytest.mark.parametrize("method", ["mark_pending", "kill_queued"])
async def test_a_lost_answer_to_a_call_is_found_out(world: World, method: str) -> None:
    """The caller receives the error and tries again, and everything is counted once."""
    job = world.job(world.pool("p", 2, 2), 3)
    faulty = Faulty(world, method)
    loop = AdmissionLoop(cast(Storage, faulty), world.lifecycles, world.hosts, FAST)
    await loop.start()
    try:
        await asyncio.gather(loop.enqueue(job, 3), return_exceptions=True)
        await loop.enqueue(job, 3)
        await until(lambda: world.states(job) == {READY: [0, 1], PENDING: [2]})
        world.kill_job(job)
        await asyncio.gather(loop.kill_queued(job), return_exceptions=True)
        await loop.kill_queued(job)
        assert world.states(job) == {KILLED: [0, 1, 2]}
        assert not faulty.is_armed
        assert not loop.state.is_busy
        assert [] == list(faults(loop.state))
    finally:
        await loop.stop()


async def test_a_caller_that_gives_up_does_not_split_a_commit(world: World) -> None:
    """Cancelling a call between storage and memory leaves both alike."""
    job = world.job(world.pool("p", 1, 1), 3)
    world.hosts.answer = None

    async with running(world) as loop:
        call = asyncio.create_task(loop.enqueue(job, 3))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: loop.state.is_busy)

        await until(lambda: facts(rebuild(world.storage)) == facts(loop.state))


async def test_bounded_cycles_go_round(world: World) -> None:
    """Every pool has its turn if a cycle admits at most two pods."""
    jobs = [world.job(world.pool(name, 5, 5), 5) for name in "abc"]

    async with running(world, fast(admitted_pods_max=2)) as loop:
        for job in jobs:
            await loop.enqueue(job, 5)
        await until(lambda: all(world.states(job) == {READY: [0, 1, 2, 3, 4]} for job in jobs))


async def test_entitlement_is_recomputed_every_period(world: World) -> None:
    """The entitlement is recomputed every period, even without events."""
    world.pool("p", 2, 2)

    async with running(world, fast(entitlement_period_s=0.02, preempts=False)) as loop:
        await until(lambda: loop.state.entitlement is not None)
        seen = []
        for _ in range(3):
            seen.append(loop.state.entitlement)
            await until(lambda: loop.state.entitlement is not seen[-1])


async def test_entitlement_is_recomputed_at_once(world: World) -> None:
    """A changed capacity and a changed pool do not wait for the period to end."""
    pool = world.pool("p", 2, 50)

    def list_entitled() -> list[int]:
        found = loop.state.entitlement
        return [] if found is None else found.total[:, 0].tolist()

    async with running(world, fast(entitlement_period_s=3600, preempts=False, capacity_period_s=3600)) as loop:
        await until(lambda: list_entitled() == [100_000, 50_000])

        world.hosts.answer = (Resources.of(40), Resources())
        await loop.learn_capacity()
        await until(lambda: list_entitled() == [40_000, 40_000])

        changed = pool_spec(pool, with_defaults(pool_config("p", 2, 30)))
        await loop.change_pools(lambda: (lambda: None, lambda: loop.state.put_pool(changed)))
        await until(lambda: list_entitled() == [40_000, 30_000])
