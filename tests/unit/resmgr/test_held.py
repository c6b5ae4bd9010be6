"""Which jobs have nothing to be told, and gangs that are passed by."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from peloton.model.ids import JobId
from peloton.model.resources import Resources
from peloton.scheduling.admission import GangRun, QueueKind
from peloton.scheduling.cycle import HeldGang
from peloton.scheduling.reason import Reason, Rule
from services.resmgr.held import passed_by
from services.resmgr.queues import PoolQueues
from services.resmgr.recovery import rebuild
from tests.unit.resmgr.world import World, fast

QUEUES = st.lists(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=6), min_size=1, max_size=3)


@given(queues=QUEUES)
def test_passed_by(queues: list[list[tuple[int, bool]]]) -> None:
    """Just the held gangs are missing, in each of the pools, and what they want is not counted; nothing that was given
    has changed."""
    waiting: dict[int, PoolQueues] = {}
    held: list[HeldGang] = []
    demand = np.zeros((len(queues), 1), np.int64)
    for row, runs in enumerate(queues):
        for number, (size, is_held) in enumerate(runs):
            run = GangRun(JobId(f"{row}-{number}"), 0, 1, size, (size,), 0, number)
            waiting.setdefault(row, {}).setdefault(QueueKind.ORDINARY, []).append(run)
            demand[row] += size
            if is_held:
                held.append(HeldGang(row, run, Reason(Rule.HELD_BACK, "/p")))
    gone = {gang.run.job_id for gang in held}
    before = {row: list(queue[QueueKind.ORDINARY]) for row, queue in waiting.items()}
    wanted = demand.copy()

    left, left_demand = passed_by(held, waiting, demand)

    expected = {row: [run for run in runs if run.job_id not in gone] for row, runs in before.items()}
    assert {row: runs for row, runs in expected.items() if runs} == {
        row: queue[QueueKind.ORDINARY] for row, queue in left.items()
    }
    assert left_demand[:, 0].tolist() == [
        sum(run.gang_size for run in expected.get(row, [])) for row in range(len(queues))
    ]
    assert {row: queue[QueueKind.ORDINARY] for row, queue in waiting.items()} == before
    assert (demand == wanted).all()


async def test_wholly_queued_jobs(world: World) -> None:
    """A job all of which waits in the queue has nothing to be told by a new leader; one with pods that are admitted, or
    not queued yet, may have, and one that is unknown here, too."""
    pool = world.pool("p", 2, 2)
    admitted, queued, part, unknown = (world.job(pool, 4) for _ in range(4))
    loop = world.loop(fast(admitted_pods_max=2))
    for job, count in ((admitted, 4), (queued, 4), (part, 3)):
        await loop.enqueue(job, count)
    world.hosts.answer = (Resources.of_capacity(2, 1e6, 1e6), Resources())
    await loop.learn_capacity()
    await loop.run_cycle()
    await loop.stop()

    fresh = rebuild(world.gateway)

    assert loop.state.wholly_queued() == fresh.wholly_queued() == {queued}
    assert {admitted, part} <= fresh.jobs.keys()
    assert unknown not in fresh.jobs
