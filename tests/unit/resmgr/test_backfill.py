"""Backfill over cycles: the time since which gangs have been passed, and its explanation by `job why`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.model.ids import JobId, RespoolId
from peloton.model.pod import PodState
from peloton.model.reason import Reason, Rule
from peloton.model.times import NS_PER_S
from peloton.scheduling.admission import Admission, Admitted
from peloton.scheduling.backfill import BACKFILL_MAX_S
from peloton.scheduling.gangs import GangRun
from services.resmgr.ledger import HOLDING, PENDING
from services.resmgr.loop import AdmissionLoop
from services.resmgr.passed import PassedGangs
from services.resmgr.recovery import rebuild
from services.resmgr.state import ResmgrState
from tests.unit.resmgr.asked import asking
from tests.unit.resmgr.test_loop import running
from tests.unit.resmgr.world import World, fast

HOUR = fast(entitlement_period_s=3_600.0)  # cycles run only when the test says so, or something changes


class Passing:
    """A large service waits in a pool of 10 cpus, of which another one holds 8; small ones come after it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pool: RespoolId = world.pool("p", 10, 10)

    def job(self, cpu: float) -> JobId:
        return self.world.job(self.pool, 1, cpu=cpu, preemptible=False)

    def is_admitted(self, job_id: JobId) -> bool:
        return PodState.READY in self.world.states(job_id)


async def enqueue(loop: AdmissionLoop, job_id: JobId) -> None:
    await loop.enqueue(job_id, 10)
    await loop.run_cycle()


async def test_gangs_pass_one_that_waits_until_its_time_is_up(world: World) -> None:
    """Small gangs are admitted before a large one for 300 s after its first rejection; after that resources are
    reserved for the large one, which is admitted first when there is enough.
    """
    passing = Passing(world)
    holder, large, early, late = (passing.job(cpu) for cpu in (8, 4, 1, 1))
    async with running(world, HOUR) as loop:
        loop.clock_ns = lambda: world.now_ns

        await enqueue(loop, holder)
        await enqueue(loop, large)
        world.now_ns += (BACKFILL_MAX_S - 1) * NS_PER_S
        await enqueue(loop, early)
        world.now_ns += NS_PER_S
        await enqueue(loop, late)
        await loop.run_cycle()
        before = [passing.is_admitted(job_id) for job_id in (large, early, late)]
        world.finish(holder, [0])
        await loop.run_cycle()
        await loop.run_cycle()

    assert [False, True, False] == before
    assert [True, True] == [passing.is_admitted(job_id) for job_id in (large, late)]


async def test_the_rest_of_a_run_keeps_its_backfill_time(world: World) -> None:
    """Gangs of a run that were refused once are passed for 300 s in all, however many of the run are admitted first."""
    passing = Passing(world)
    holder = world.job(passing.pool, 8, cpu=1, preemptible=False)
    large, early, late = world.job(passing.pool, 4, cpu=4, preemptible=False), passing.job(1), passing.job(1)
    async with running(world, HOUR) as loop:
        loop.clock_ns = lambda: world.now_ns

        await enqueue(loop, holder)
        await enqueue(loop, large)
        first_s = loop.state.passed.backfill(world.now_ns).left_s
        world.now_ns += (BACKFILL_MAX_S - 1) * NS_PER_S
        world.finish(holder, range(2))
        await loop.run_cycle()
        await loop.run_cycle()
        left_s = loop.state.passed.backfill(world.now_ns).left_s
        world.finish(holder, [2])
        await enqueue(loop, early)
        world.now_ns += NS_PER_S
        world.finish(holder, [3])
        await enqueue(loop, late)
        await loop.run_cycle()

    assert [first_s, left_s] == [{(large, 0): BACKFILL_MAX_S}, {(large, 1): 1}]
    assert [True, False] == [passing.is_admitted(job_id) for job_id in (early, late)]


def test_a_rest_that_is_refused_starts_its_clock() -> None:
    """The clock of a run begins in the cycle that admits only its first gangs."""
    large, passed = JobId("large"), PassedGangs()
    run = GangRun(large, 0, 4, 1, (4_000, 0, 0, 0), 0, 1, preemptible=False)
    refused = {(large, 0): Reason(Rule.RESERVATION, "/p")}
    ledger: Any = SimpleNamespace(states=np.array([HOLDING, HOLDING, PENDING, PENDING], np.uint8))

    passed.note(Admission((Admitted(1, run, 2),), passed=refused), {large: ledger}, 7)

    assert {(large, 2): BACKFILL_MAX_S} == passed.backfill(7).left_s


async def test_a_rebuild_keeps_the_backfill_time(world: World) -> None:
    """A rebuilt state keeps the time since which gangs have been passed; the time of an admitted gang starts again."""
    passing = Passing(world)
    holder, large = passing.job(8), passing.job(4)
    async with running(world, HOUR) as loop:
        loop.clock_ns = lambda: world.now_ns
        for job_id in (holder, large):
            await loop.enqueue(job_id, 10)
            await loop.run_cycle()
        fresh = rebuild(world.storage)
        fresh.take_over(loop.state)
        left_s = fresh.passed.backfill(world.now_ns + 100 * NS_PER_S).left_s
        world.finish(holder, [0])
        await loop.run_cycle()
        after = loop.state.passed.backfill(world.now_ns).left_s

    assert {(large, 0): BACKFILL_MAX_S - 100} == left_s
    assert {} == after
    assert {} == ResmgrState().passed.backfill(0).left_s


async def test_job_why_says_for_how_long_a_gang_may_be_passed(world: World) -> None:
    """The reason of the gang that waits has the seconds, and the text says them in words."""
    passing = Passing(world)
    holder, large = passing.job(8), passing.job(4)
    async with asking(world) as asked:
        await asked.queue(holder, large)
        why = await asked.why(large)

    (waiting,) = why.waiting
    assert (pb.RULE_POOL_LIMIT, True) == (waiting.reason.rule, waiting.reason.HasField("backfillS"))
    assert BACKFILL_MAX_S - 30 < waiting.reason.backfillS <= BACKFILL_MAX_S
    assert f"gangs behind it that fit may go first for {waiting.reason.backfillS} s more" in why.text
