"""The resource manager while host pools serve some workloads only."""

from __future__ import annotations

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.model.host import Capacity, HostPoolCapacity
from peloton.model.host_pool import Workload
from peloton.model.resources import Resources
from services.resmgr.audit import faults
from services.resmgr.recovery import rebuild
from services.resmgr.state import ResmgrState
from services.resmgr.wanted_hosts import find_wanted_hosts
from tests.unit.resmgr.asked import asking
from tests.unit.resmgr.world import FAST, World

BATCH = frozenset({Workload.BATCH, Workload.SHARED})
REST = frozenset(work for work in Workload if work) - BATCH


def capacity(batch: float, rest: float) -> Capacity:
    def resources(cpu: float) -> Resources:
        return Resources.of(cpu, 100_000, 100_000)

    pools = HostPoolCapacity("batch", BATCH, resources(batch)), HostPoolCapacity("default", REST, resources(rest))
    total = pools[0].up + pools[1].up
    return Capacity(total, Resources(), total, pools)


async def test_jobs_wait_for_hosts_that_serve_them(world: World) -> None:
    """Preemptible batch pods are admitted up to the capacity of their host pool alone; job why, respool why and respool
    tree give the numbers of its hosts.
    """
    world.hosts.answer = capacity(batch=3, rest=90)
    job = world.job(world.pool("p", 0, 80), 7)

    async with asking(world) as asked:
        await asked.queue(job)
        why, pool = await asked.why(job), await asked.why_pool("/p")
        tree = await asked.stub.PoolTree(pb.PoolTreeRequest())

    assert dict(why.instanceCounts) == {"READY": 3, "PENDING": 4}
    assert "cpu 1 wanted, 0 left of the entitlement of /p in host pool batch: 3" in why.text
    assert "in host pool batch, cpu: holds 3 of its entitlement 3, 4 more wanted" in pool.text
    root, leaf = (
        {part.hostPools: (part.amounts[0].limit, part.amounts[0].allocation, part.amounts[0].demand) for part in one}
        for one in (node.onHosts for node in tree.pools)
    )
    assert root == {"host pool batch": (3, 3, 4), "host pool default": (90, 0, 0)}
    assert leaf == {"host pool batch": (3, 3, 4)}
    assert [list(part.workloads) for part in tree.pools[0].onHosts] == [sorted(BATCH), sorted(REST)]


async def test_queued_pods_say_which_hosts_they_want(world: World) -> None:
    """Demand for hosts counts queued pods below their pool's limit that the hosts of their pool cannot take, even while
    it has no hosts. Pods that wait for the limit demand no hosts.
    """
    world.hosts.answer = capacity(batch=3, rest=90)
    wide, narrow = world.job(world.pool("wide", 0, 8), 20), world.job(world.pool("narrow", 0, 1), 5)

    async with asking(world) as asked:
        loop = asked.server.loop
        await asked.queue(wide, narrow)
        assert find_wanted_hosts(loop.state) == [(Workload.SHARED, Resources.of(1), 8 - 2)]

        world.hosts.answer = capacity(batch=0, rest=93)
        await loop.learn_capacity()
        await loop.run_cycle()
        assert find_wanted_hosts(loop.state) == [(Workload.SHARED, Resources.of(1), 8 - 2)]

        world.hosts.answer = capacity(batch=50, rest=43)
        await loop.learn_capacity()
        await loop.run_cycle()
        assert find_wanted_hosts(loop.state) == []


async def test_hosts_that_move_bring_their_capacity(world: World) -> None:
    """A waiting job continues when its host pool has more hosts; each pod is counted in one compartment, even when host
    pools come into use, when memory is rebuilt, and when host pools are no longer used.
    """
    job = world.job(world.pool("p", 0, 80), 7)

    async with asking(world, FAST) as asked:
        loop = asked.server.loop
        await loop.enqueue(job, 2)

        async def count_admitted(answer: Capacity) -> int:
            world.hosts.answer = answer
            await loop.learn_capacity()
            for _ in range(2):
                await loop.run_cycle()
            assert list(faults(loop.state)) == []
            again = rebuild(world.storage)
            again.take_over(loop.state)
            assert list(faults(again)) == []
            assert _list_held(again) == _list_held(loop.state)
            return loop.state.jobs[job].allocated_count

        first = await count_admitted(Capacity(*capacity(1, 1)[:3]))
        await loop.enqueue(job, 10)
        counts = [await count_admitted(one) for one in (capacity(3, 90), capacity(5, 88))]
        assert [first, *counts] == [2, 3, 5]
        assert _list_held(loop.state) == [5_000, 0]
        assert await count_admitted(Capacity(*capacity(5, 88)[:3])) == 7
        assert _list_held(loop.state) == []


def _list_held(state: ResmgrState) -> list[int]:
    """Return the held cpu by compartment."""
    return [int(part.non_slack[:, 0].sum()) for part in state.accounts.parts]
