"""Changes of pools that would strand work are refused, and the refusal names the obstacle."""

from __future__ import annotations

import grpc.aio

from peloton.api.v0.respool import respool_pb2 as pb
from peloton.api.v0.short_names import respool_pb2_grpc
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from services.resmgr.server import ResmgrServer, serve
from tests.unit.resmgr.test_loop import until
from tests.unit.resmgr.test_server import Manager, create, delete, get, refusal, update
from tests.unit.resmgr.world import World, fast, pool_config


async def test_busy_pools(world: World, manager: Manager, server: ResmgrServer) -> None:
    """A pool of a job that has not ended can neither be deleted nor become a parent, queued or not."""
    pool = await create(manager, "p", 1, 1)
    job = world.job(pool, 2)

    async def refusals() -> tuple[str, str]:
        return (await delete(manager, "/p")).isBusy.message, await refusal(manager, pool_config("child", 1, 1, pool))

    assert await refusals() == (
        f"resource pool is busy: 1 job has not ended, the first is {job}",
        f"resource pool /p cannot get child pools: 1 job has not ended, the first is {job}",
    )
    await server.loop.enqueue(job, 2)
    await until(lambda: len(world.states(job).get(PodState.READY, [])) == 1)
    assert await refusals() == (
        "resource pool is busy: its pods hold cpu 1, and wait for cpu 1",
        "resource pool /p cannot get child pools: its pods hold cpu 1, and wait for cpu 1",
    )

    world.kill_job(job)
    await server.loop.kill_queued(job)
    assert (await delete(manager, "/p")).isBusy.message.startswith("resource pool is busy: 1 job has not ended")
    world.settle(job)
    assert not (await delete(manager, "/p")).ListFields()


async def test_a_change_strands_no_gang(world: World, manager: Manager, server: ResmgrServer) -> None:
    """Limits and reservations stay above the demand of a queued gang, and the reservation above the allocation of
    non-preemptible pods; the same change is accepted once they are gone, or with force.
    """
    parent = await create(manager, "eng", 20, 40)
    pool = await create(manager, "p", 10, 20, parent)
    fixed = world.job(pool, 6, preemptible=False)
    await server.loop.enqueue(fixed, 6)
    await until(lambda: len(world.states(fixed).get(PodState.READY, [])) == 6)
    gang = world.job(pool, 15, gang=15)
    await server.loop.enqueue(gang, 15)

    async def message(
        reservation: float, limit: float, pool_id: str = pool, name: str = "p", above: str = parent
    ) -> str:
        answer = await update(manager, pool_id, pool_config(name, reservation, limit, above))
        return answer.invalidResourcePoolConfig.message

    assert await message(10, 14) == (
        f"job {gang} waits in /eng/p, and could never be admitted then: "
        "gang of 15: cpu 15 wanted, more than the pool limit of /eng/p: 14"
    )
    assert await message(5, 20) == "resource cpu, reservation 5 is less than 6 that non-preemptible pods hold"
    assert (await get(manager, pool)).poolinfo.config.resources[0].limit == 20
    assert await message(6, 15) == ""
    big = world.job(pool, 1, cpu=6, preemptible=False)
    await server.loop.enqueue(big, 1)
    assert await message(5.5, 15) == (
        f"job {big} waits in /eng/p, and could never be admitted then: "
        "cpu 6 wanted, more than the reservation for non-preemptible pods of "
        "/eng/p: 5.5"
    )

    assert not (await update(manager, pool, pool_config("p", 5, 14, parent), force=True)).ListFields()
    world.kill_job(fixed)
    await server.loop.kill_queued(fixed)
    assert await message(2, 14) == ""


async def test_a_limit_above_the_capacity_is_a_warning(world: World, manager: Manager, server: ResmgrServer) -> None:
    """A limit of the first level may be more than the hosts that are up have, and more than all hosts have: the answer
    warns with the numbers. An autoscaler may add hosts the next minute."""
    up, all_hosts = Resources.of(8, 1000, 1000), Resources.of(12, 1000, 1000)
    world.hosts.answer = (up, Resources(), all_hosts)
    await server.loop.learn_capacity()

    new = await manager.CreateResourcePool(pb.CreateRequest(config=pool_config("p", 10, 12)))
    again = await manager.UpdateResourcePool(pb.UpdateRequest(id=new.result, config=pool_config("p", 2, 12)))
    less = await manager.UpdateResourcePool(pb.UpdateRequest(id=new.result, config=pool_config("p", 2, 8)))
    beyond = await manager.UpdateResourcePool(pb.UpdateRequest(id=new.result, config=pool_config("p", 2, 24)))
    vast = await manager.CreateResourcePool(pb.CreateRequest(config=pool_config("q", 0, 100)))

    have = "more than 8, which is what the hosts that are up have"
    assert [[f"resource cpu, reservation 10 and limit 12 are {have}"], [f"resource cpu, limit 12 is {have}"], []] == [
        list(answer.warnings) for answer in (new, again, less)
    ]
    assert [[f"resource cpu, limit {limit} is {have}"] for limit in (24, 100)] == [
        list(answer.warnings) for answer in (beyond, vast)
    ]
    assert (await get(manager, new.result.value)).poolinfo.config.resources[0].limit == 24


async def test_a_limit_above_that_of_a_pool_is_refused(manager: Manager) -> None:
    """The limit of a pool with a configuration is a rule, and no child exceeds it."""
    parent = await create(manager, "eng", 10, 20)

    answer = await manager.CreateResourcePool(pb.CreateRequest(config=pool_config("maps", 5, 21, parent)))

    refused = "resource cpu, limit 21 exceeds parent limit 20 (the parent is /eng)"
    assert refused == answer.error.invalidResourcePoolConfig.message


async def test_what_a_pool_has_it_may_keep(world: World, manager: Manager, server: ResmgrServer) -> None:
    """Hosts are lost: the same reservation is accepted again, and other changes with it, but no larger one."""
    pool = await create(manager, "p", 60, 100)
    world.hosts.answer = (Resources.of(50, 1000, 1000), Resources())
    await server.loop.learn_capacity()

    assert not (await update(manager, pool, pool_config("p", 60, 100, owningTeam="maps"))).ListFields()
    assert not (await update(manager, pool, pool_config("p", 60, 101))).ListFields()
    assert "exceed parent `root` reservations 50" in str(await update(manager, pool, pool_config("p", 61, 100)))


async def test_a_pool_whose_job_has_ended_can_be_deleted_at_once(world: World) -> None:
    """A deletion applies the status log first, and does not depend on the period in which the loop reads it."""
    rare = fast(quiet_period_s=3_600, entitlement_period_s=3_600, preempts=False)
    server = await serve(world.storage, world.lifecycles, world.hosts, "127.0.0.1:0", rare)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            manager: Manager = respool_pb2_grpc.ResourceManagerStub(channel)
            pool = await create(manager, "p", 1, 1)
            job = world.job(pool, 1)
            await server.loop.enqueue(job, 1)
            await until(lambda: len(world.states(job).get(PodState.READY, [])) == 1)
            await server.loop.run_cycle()  # nothing is left to do, the loop waits for an hour
            world.finish(job, [0])
            world.settle(job)

            assert not (await delete(manager, "/p")).ListFields()
    finally:
        await server.stop()
