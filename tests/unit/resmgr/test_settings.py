"""The pace of the admission loop."""

from __future__ import annotations

from services.resmgr.settings import LoopSettings
from tests.unit.resmgr.test_loop import running, until
from tests.unit.resmgr.world import World, fast


def test_ended_pods_are_searched_for_more_often_while_gangs_wait() -> None:
    """A cluster in which nothing waits costs one read a second, and an empty cluster none of its own."""
    settings = LoopSettings()
    assert 0.1 == settings.log_poll_s(has_waiting=True, is_busy=True)
    assert 1.0 == settings.log_poll_s(has_waiting=False, is_busy=True)
    assert 5.0 == settings.log_poll_s(has_waiting=False, is_busy=False)


async def test_a_gang_that_comes_sees_the_capacity_of_pods_that_ended(world: World) -> None:
    """The log is read before the gang is rejected, although no read was due."""
    job = world.job(world.pool("p", 1, 1), 2)
    slow = fast(quiet_period_s=3_600.0, entitlement_period_s=3_600.0, preemption_period_s=3_600.0)
    async with running(world, slow) as loop:
        await until(lambda: loop.state.capacity is not None)
        assert 1 == await loop.enqueue(job, 1)
        await until(lambda: not loop.state.has_waiting and loop.state.is_busy)
        world.finish(job, [0])
        assert 1 == await loop.enqueue(job, 1)
        await until(lambda: not loop.state.has_waiting)
