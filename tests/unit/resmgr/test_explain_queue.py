"""The queue of a pool in order, as ExplainService lists it."""

from __future__ import annotations

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.api.v0.respool import respool_pb2
from tests.unit.resmgr.asked import asking
from tests.unit.resmgr.world import World


async def test_the_queue_of_a_pool_in_order(world: World) -> None:
    """The answer has the requested number of entries, each with its job's name, place and reason;
    an inner pool has none.
    """
    inner = world.pool("p", 10, 10)
    pool = world.pool("q", 10, 10, inner)
    holder, waiter, last = (world.job(pool, count) for count in (8, 5, 1))

    async with asking(world) as asked:
        await asked.queue(holder, waiter, last)

        async def queue(path: str, limit: int) -> list[pb.WaitingGangs]:
            request = pb.PoolWhyRequest(path=respool_pb2.ResourcePoolPath(value=path), queueLimit=limit)
            return list((await asked.stub.PoolWhy(request)).waiting)

        both, one, none, of_inner = [await queue("/p/q", limit) for limit in (100, 1, 0)] + [await queue("/p", 100)]

    assert [(waiter, 3, 0, "job"), (last, 1, 3, "job")] == [
        (each.jobId.value, each.gangCount, each.gangsAhead, each.jobName) for each in both
    ]
    assert [pb.RULE_POOL_LIMIT, pb.RULE_HEAD_OF_LINE] == [each.reason.rule for each in both]
    assert all(each.reason.text for each in both)
    assert (both[:1], [], []) == (one, none, of_inner)
