"""The invariant checks behind a setting: no fault is reported for sound state, and faults name object and numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from peloton.model.pod import PodState
from peloton.model.resources import Resources
from peloton.scheduling.cycle import plan_cycle
from services.resmgr.audit import BROKEN, around_cycle, faults
from services.resmgr.ledger import CODES, HOLDING
from services.resmgr.recovery import rebuild
from services.resmgr.state import ResmgrState
from tests.unit.resmgr.world import FAST, World


def queue_jobs(world: World) -> ResmgrState:
    """Return a state with seven pods of one cpu in /maps, whose limit is five."""
    job = world.job(world.pool("maps", 5, 5), 7)
    world.storage.admission.mark_pending(job, world.storage.admission.queueable(job, 10), 1)
    state = rebuild(world.storage)
    state.set_capacity(Resources.of(100, 100_000, 100_000), Resources())
    return state


def test_all_is_well(world: World) -> None:
    """A cycle that admits gangs reports no fault."""
    state = queue_jobs(world)
    now = state.snapshot(100, 0)
    before, plan = replace(now, usage=now.usage.copy()), plan_cycle(now)
    state.apply_admission(plan.admission)

    assert sum(one.gang_count for one in plan.admission.admitted) == 5
    assert list(around_cycle(before, plan, state)) == []


def test_admitted_above_a_limit(world: World) -> None:
    """A plan with another limit than the pool has admits too much; the fault names pool, rule and amounts."""
    state = queue_jobs(world)
    now = state.snapshot(100, 0)
    before = replace(now, usage=now.usage.copy())
    generous = now.tree.limit.copy()
    generous[1, 0] = 7000
    plan = plan_cycle(replace(now, tree=replace(now.tree, limit=generous, reservation=generous * np.array([[0], [1]]))))
    state.apply_admission(plan.admission)

    found = list(around_cycle(before, plan, state))

    assert "cpu of /maps grew from 0 to 7000, above the limit: 5000" in found


def drop_account(state: ResmgrState) -> None:
    state.accounts.demand[1, 0] -= 1000


def drop_pod(state: ResmgrState) -> None:
    next(iter(state.jobs.values())).states[3] = CODES[PodState.FAILED]


def hold_twice(state: ResmgrState) -> None:
    next(iter(state.jobs.values())).states[3] = HOLDING


def forgotten_job(state: ResmgrState) -> None:
    state.jobs.clear()
    state.waiting.pools.clear()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop_account, "demand of cpu of /maps: 6000 is kept, its pods add up to 7000"),
        (drop_pod, "7 pods of"),
        (hold_twice, "non_slack of cpu of /maps: 0 is kept, its pods add up to 1000"),
        (forgotten_job, "demand of cpu of /maps: 7000 is kept, its pods add up to 0"),
    ],
)
def test_wrong_books(change: Callable[[ResmgrState], None], words: str, world: World) -> None:
    """Each way to lose or double a pod is a fault."""
    state = queue_jobs(world)
    assert list(faults(state)) == []

    change(state)

    assert any(words in fault for fault in faults(state)), list(faults(state))


async def test_the_loop_continues(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A fault is logged if the setting is on, and pods are admitted all the same; nothing is checked if it is off."""
    pool = world.pool("maps", 50, 50)
    for checks in (True, False):
        caplog.clear()
        loop = world.loop(replace(FAST, checks_invariants=checks))
        await loop.learn_capacity()
        await loop.run_cycle()
        loop.state.accounts.controller[1, 0] += 1

        job = world.job(pool, 2)
        await loop.enqueue(job, 10)
        woken = await loop.run_cycle()
        await loop.stop()

        assert woken == [job]
        broken = [record for record in caplog.records if record.message.startswith(BROKEN)]
        assert [record.levelno for record in broken] == [logging.ERROR] * checks
        assert all("controller of cpu of /maps: 1 is kept" in record.message for record in broken)
