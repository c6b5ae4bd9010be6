"""Jobs that need no wake-up, gangs in backoff, and gangs that are released from it."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from peloton.lifecycle.failed_placements import BACKOFF_STEP_S
from peloton.model.ids import JobId
from peloton.model.pod import PodState
from peloton.model.reason import Reason, Rule
from peloton.model.resources import Resources
from peloton.scheduling.cycle import HeldGang
from peloton.scheduling.gangs import GangRun
from services.resmgr.in_backoff import skip_held
from services.resmgr.queues import PoolQueues
from services.resmgr.recovery import rebuild
from tests.reasons import REQUEUED
from tests.unit.resmgr.test_loop import running, until
from tests.unit.resmgr.world import World, fast

READY = PodState.READY
RUNS = st.tuples(st.integers(1, 3), st.integers(1, 4), st.booleans(), st.booleans())
"""The size of a gang, the number of gangs, whether they are in backoff, and whether they are revocable."""
QUEUES = st.lists(st.lists(RUNS, max_size=6), min_size=1, max_size=3)


@given(queues=QUEUES)
def test_passed_by(queues: list[list[tuple[int, int, bool, bool]]]) -> None:
    """The gangs in backoff alone are missing, in each of the pools, and their demand is not counted; the input is
    unchanged.
    """
    waiting: dict[int, PoolQueues] = {}
    held: list[HeldGang] = []
    for row, runs in enumerate(queues):
        for number, (size, count, is_held, revocable) in enumerate(runs):
            run = GangRun(JobId(f"{row}-{number}"), 0, count, size, (size,), 0, number, revocable=revocable)
            waiting.setdefault(row, {}).setdefault(run.queue, []).append(run)
            if is_held:
                held.append(HeldGang(row, run, Reason(Rule.IN_BACKOFF, "/p")))
    gone = {gang.run.job_id for gang in held}
    demand, slack_demand = _sum_wanted(waiting, len(queues), False), _sum_wanted(waiting, len(queues), True)
    before = {row: {kind: list(queue) for kind, queue in kinds.items()} for row, kinds in waiting.items()}

    left, *wanted = skip_held(held, waiting, demand, slack_demand)

    kept = {
        row: {kind: stay for kind, queue in kinds.items() if (stay := [r for r in queue if r.job_id not in gone])}
        for row, kinds in before.items()
    }
    assert {row: kinds for row, kinds in kept.items() if kinds} == left
    assert [_sum_wanted(left, len(queues), slack).tolist() for slack in (False, True)] == [
        one.tolist() for one in wanted
    ]
    assert before == waiting
    assert (demand == _sum_wanted(before, len(queues), False)).all()
    assert (slack_demand == _sum_wanted(before, len(queues), True)).all()


def _sum_wanted(waiting: dict[int, PoolQueues], pools: int, revocable: bool) -> np.ndarray:
    found = np.zeros((pools, 1), np.int64)
    for row, kinds in waiting.items():
        runs = [run for queue in kinds.values() for run in queue if run.revocable is revocable]
        found[row] = sum(run.need[0] * run.gang_count for run in runs)
    return found


async def test_what_was_released_for_new_hosts_is_not_in_backoff_again_by_a_rebuild(world: World) -> None:
    """Storage does not record the release; rebuilt memory repeats it at the next due time."""
    pool = world.pool("p", 3, 3)
    stuck, other = world.job(pool, 3), world.job(pool, 3)

    async with running(world) as loop:
        await loop.enqueue(stuck, 3)
        await until(lambda: world.states(stuck) == {READY: [0, 1, 2]})
        await loop.requeue_pods(stuck, [(0, 3)], REQUEUED)
        await loop.enqueue(other, 3)
        await until(lambda: world.states(other) == {READY: [0, 1, 2]})
        world.hosts.answer = (Resources.of(101, 100_000, 100_000), Resources())
        await loop.learn_capacity()
        await loop.run_cycle()
        now_ns = loop.clock_ns()
        assert () == tuple(loop.state.snapshot(100, now_ns).held)

        fresh = rebuild(world.storage)
        fresh.take_over(loop.state)
        fresh.release_held(now_ns + BACKOFF_STEP_S * 10**9)

        assert () == tuple(fresh.snapshot(100, now_ns).held)


async def test_what_is_in_backoff_is_tried_when_hosts_have_more_capacity(world: World) -> None:
    """Gangs in backoff are tried when a daemon has ended, and soon again: this is not a flapping host."""
    pool = world.pool("p", 3, 3)
    stuck = world.job(pool, 3)

    loop = world.loop(fast(preempts=False))
    try:
        now_ns = loop.clock_ns()
        loop.clock_ns = lambda: now_ns
        tried = []
        await loop.enqueue(stuck, 3)
        for passed_s, cpu in ((0, 90), (0, 91), (1, 92), (8, 92), (1, 92), (1, 93)):
            now_ns += passed_s * 10**9
            world.hosts.answer = (Resources.of(cpu, 1e5, 1e5), Resources(), Resources.of(100, 1e5, 1e5))
            await loop.learn_capacity()
            await loop.run_cycle()
            tried.append(READY in world.states(stuck))
            await loop.requeue_pods(stuck, [(0, 3)], REQUEUED)
    finally:
        await loop.stop()
    assert [True, True, False, False, True, False] == tried
