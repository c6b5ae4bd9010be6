"""The resource manager over gRPC: pools for clients of the original API, and the calls of workers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

import grpc
import grpc.aio
import pytest

from peloton.api.service_names import RESOURCE_MANAGER
from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2 as pb
from peloton.api.v0.short_names import respool_pb2_grpc
from peloton.errors import InvalidArgument, NotFound, Unavailable
from peloton.model.ids import ROOT_POOL_ID, JobId, PodId, RespoolId
from peloton.model.job import Queued
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from services.resmgr.client import ResourceManagerClient
from services.resmgr.server import ResmgrServer, serve
from tests.reasons import HOT, lacking_capacity
from tests.unit.resmgr.test_loop import until
from tests.unit.resmgr.world import FAST, World, pool_config

Manager: TypeAlias = "respool_pb2_grpc.ResourceManagerAsyncStub"


async def create(
    manager: Manager, name: str, reservation: float, limit: float, parent: str = ROOT_POOL_ID
) -> RespoolId:
    answer = await manager.CreateResourcePool(pb.CreateRequest(config=pool_config(name, reservation, limit, parent)))
    assert not answer.HasField("error"), answer
    return RespoolId(answer.result.value)


async def refusal(manager: Manager, config: pb.ResourcePoolConfig) -> str:
    """Return the message with which a create is rejected."""
    answer = await manager.CreateResourcePool(pb.CreateRequest(config=config))
    return answer.error.alreadyExists.message or answer.error.invalidResourcePoolConfig.message


async def update(
    manager: Manager, pool: str, config: pb.ResourcePoolConfig, force: bool = False
) -> pb.UpdateResponse.Error:
    request = pb.UpdateRequest(id=ResourcePoolID(value=pool), config=config, Force=force)
    return (await manager.UpdateResourcePool(request)).error


async def lookup(manager: Manager, path: str) -> pb.LookupResponse:
    return await manager.LookupResourcePoolID(pb.LookupRequest(path=pb.ResourcePoolPath(value=path)))


async def delete(manager: Manager, path: str) -> pb.DeleteResponse.Error:
    return (await manager.DeleteResourcePool(pb.DeleteRequest(path=pb.ResourcePoolPath(value=path)))).error


async def get(manager: Manager, pool: str = "", children: bool = False) -> pb.GetResponse:
    pool_id = ResourcePoolID(value=pool) if pool else None
    return await manager.GetResourcePool(pb.GetRequest(id=pool_id, includeChildPools=children))


# -- questions ------------------------------------------------------------------------------------------------------


async def test_nested_pools_are_found_by_path(manager: Manager) -> None:
    """Paths are names joined by slashes; one slash at the end is tolerated."""
    eng = await create(manager, "eng", 10, 50)
    maps = await create(manager, "maps", 5, 50, eng)

    assert [(await lookup(manager, path)).id.value for path in ("/", "/eng", "/eng/maps", "/eng/maps/")] == [
        ROOT_POOL_ID,
        eng,
        maps,
        maps,
    ]
    assert (await lookup(manager, "/maps")).error.notFound.message == "resource pool not found"
    assert (await lookup(manager, "")).error.invalidPath.message == "path cannot be empty"
    assert (await lookup(manager, "eng")).error.invalidPath.message == "path should begin with /"
    nothing = await manager.LookupResourcePoolID(pb.LookupRequest())
    assert nothing.error.invalidPath.message == "path cannot be nil"


async def test_missing_kinds_are_filled_in(manager: Manager) -> None:
    """A kind that the user leaves out has reservation 0, limit 0 and share 1; the policy is PriorityFIFO."""
    pool = await create(manager, "p", 10, 50)

    config = (await get(manager, pool)).poolinfo.config

    assert [(r.kind, r.reservation, r.limit, r.share) for r in config.resources] == [
        ("cpu", 10, 50, 1),
        ("gpu", 0, 0, 1),
        ("memory", 0, 0, 1),
        ("disk", 0, 0, 1),
    ]
    assert config.policy == pb.PriorityFIFO


async def test_root_is_the_cluster(manager: Manager) -> None:
    """The root is returned for an empty id: its reservation and limit are the capacity of the cluster, its share 1."""
    eng = await create(manager, "eng", 10, 50)

    answer = await get(manager, children=True)

    root = answer.poolinfo
    assert (root.id.value, root.path.value, root.parent.value) == (ROOT_POOL_ID, "/", "")
    assert [child.value for child in root.children] == [eng]
    assert [child.path.value for child in answer.childPools] == ["/eng"]
    assert [(r.kind, r.reservation, r.limit, r.share) for r in root.config.resources] == [
        ("cpu", 100, 100, 1),
        ("gpu", 0, 0, 1),
        ("memory", 100_000, 100_000, 1),
        ("disk", 100_000, 100_000, 1),
    ]


async def test_usage_is_reported(world: World, manager: Manager, server: ResmgrServer) -> None:
    """Allocation appears per kind, in cores, on the pool and its parents."""
    pool = await create(manager, "p", 10, 50)
    job = world.job(pool, 3, cpu=1.5)
    await server.loop.enqueue(job, 3)
    await until(lambda: len(world.states(job).get(PodState.READY, [])) == 3)

    pools = (await manager.Query(pb.QueryRequest())).resourcePools

    assert [p.path.value for p in pools] == ["/", "/p"]
    for found in pools:
        assert [(u.kind, u.allocation, u.slack) for u in found.usage] == [
            ("cpu", 4.5, 0),
            ("gpu", 0, 0),
            ("memory", 0, 0),
            ("disk", 0, 0),
        ]


async def test_unknown_pool(manager: Manager) -> None:
    """Get and update of an unknown id are answered with an error."""
    assert (await get(manager, "nope")).error.notFound.message == "resource pool not found"
    assert (await update(manager, "nope", pool_config("x", 1, 1))).notFound.message == "resource pool not found"


async def test_all_names_are_served(server: ResmgrServer) -> None:
    """Every spelling of the service's name answers."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        for name in RESOURCE_MANAGER:
            call = channel.unary_unary(
                f"/{name}/Query",
                request_serializer=pb.QueryRequest.SerializeToString,
                response_deserializer=pb.QueryResponse.FromString,
            )
            assert len((await call(pb.QueryRequest())).resourcePools) == 1


# -- changes --------------------------------------------------------------------------------------------------------


def _config(**changes: Any) -> pb.ResourcePoolConfig:
    return pool_config("p", 10, 50, **changes)


def _with(*resources: pb.ResourceConfig) -> pb.ResourcePoolConfig:
    config = pb.ResourcePoolConfig(name="p", parent=ResourcePoolID(value=ROOT_POOL_ID))
    config.resources.extend(resources)
    return config


R = pb.ResourceConfig


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            _with(R(kind="fpga")),
            "resource pool config has unknown resource type fpga (there are cpu, gpu, memory, disk, and names with a "
            "prefix: license/NAME, mesos/NAME, example.com/NAME)",
        ),
        (_with(R(kind="license/a", limit=1.5)), "resource license/a, limit 1.5 is not a whole number"),
        (
            _with(*(R(kind=f"license/{at:02}", limit=1) for at in range(17))),
            "resource pools would have 17 extended resources, at most 16 are allowed: "
            + ", ".join(f"license/{at:02}" for at in range(17)),
        ),
        (
            _with(R(kind="cpu"), R(kind="cpu")),
            "resource pool config has multiple configurations for resource type cpu",
        ),
        (
            _with(R(kind="cpu", reservation=-1)),
            "resource pool config resource values can not be negative cpu: Reservation -1",
        ),
        (_with(R(kind="gpu", share=-0.5)), "resource pool config resource values can not be negative gpu: Share -0.5"),
        (_with(R(kind="cpu", reservation=20, limit=10.5)), "resource cpu, reservation 20 exceeds limit 10.5"),
        (_config(parent="nope"), "resource pool parent ID: nope not found"),
        (
            _with(R(kind="cpu", reservation=95, limit=96)),
            "Aggregated child reservation 105 of kind `cpu` exceed parent `root` reservations 100 "
            "(the parent is /, its other children have 10)",
        ),
        (
            _config(controllerLimit=pb.ControllerLimit(maxPercent=101)),
            "controller limit, max percent cannot be more than 100",
        ),
        (pool_config("first", 0, 1), "resource pool:first already exists"),
        (pool_config("a/b", 0, 1), "resource pool name 'a/b' must not be empty or contain '/'"),
        (pool_config("a" * 256, 0, 1), "resource pool name has 256 characters, at most 255 are allowed"),
        (pool_config("p", 0.00001, 1), "resource cpu, reservation 1e-05 is less than 0.001, the smallest amount"),
        (_with(R(kind="memory", limit=0.5)), "resource memory, limit 0.5 is less than 1, the smallest amount"),
    ],
)
async def test_refused_configurations(manager: Manager, config: pb.ResourcePoolConfig, message: str) -> None:
    """Each rule rejects with the original's message (the last rows: our own for cases that it accepted), and no pool is
    created.
    """
    await create(manager, "first", 10, 50)

    assert await refusal(manager, config) == message
    assert len((await manager.Query(pb.QueryRequest())).resourcePools) == 2


async def test_missing_parts(manager: Manager) -> None:
    """Requests without a configuration or an id are refused, and so is an override of the root."""
    empty = await manager.CreateResourcePool(pb.CreateRequest())

    assert empty.error.invalidResourcePoolConfig.message == "resource pool config cannot be <nil>"
    for request, message in (
        (pb.UpdateRequest(config=_config()), "resource pool ID cannot be <nil>"),
        (pb.UpdateRequest(id=ResourcePoolID(value="x")), "resource pool config cannot be <nil>"),
        (pb.UpdateRequest(id=ResourcePoolID(value="root"), config=_config()), "cannot override root"),
    ):
        answer = await manager.UpdateResourcePool(request)
        assert answer.error.invalidResourcePoolConfig.message == message


async def test_licenses_of_pools(manager: Manager) -> None:
    """Pools below the root may have any number of licenses; those below them have no more than their parents, and a
    pool that does not name a kind has none of it.
    """
    top = _with(R(kind="license/a", reservation=3, limit=10))
    top.name = "top"
    created = await manager.CreateResourcePool(pb.CreateRequest(config=top))
    inner = _with(R(kind="license/a", limit=11), R(kind="license/b", limit=1))
    inner.parent.value = created.result.value

    assert await refusal(manager, inner) == (
        "resource license/a, limit 11 exceeds parent limit 10 (the parent is /top)"
    )
    inner.resources[0].limit = 10
    assert await refusal(manager, inner) == "resource license/b, limit 1 exceeds parent limit 0 (the parent is /top)"
    del inner.resources[1]
    await manager.CreateResourcePool(pb.CreateRequest(config=inner))
    without = _with()
    without.name = "top"
    refused = await update(manager, created.result.value, without)
    assert refused.invalidResourcePoolConfig.message == "resource license/a, limit 0 is less than 10 of child p"
    root = (await get(manager, ROOT_POOL_ID)).poolinfo
    assert [(each.kind, each.limit) for each in root.config.resources][-1] == ("license/a", 10)
    assert [each.kind for each in root.usage] == ["cpu", "gpu", "memory", "disk", "license/a"]


async def test_update(manager: Manager) -> None:
    """An update counts a pool's own old reservation out; it keeps parents above children, and pools where they are."""
    eng = await create(manager, "eng", 60, 80)
    ops = await create(manager, "ops", 40, 80)
    maps = await create(manager, "maps", 30, 70, eng)

    def message(error: pb.UpdateResponse.Error) -> str:
        return error.invalidResourcePoolConfig.message

    assert message(await update(manager, eng, pool_config("eng", 50, 80))) == ""
    assert message(await update(manager, eng, pool_config("eng", 61, 80))) == (
        "Aggregated child reservation 101 of kind `cpu` exceed parent `root` reservations 100 (the parent is /, its "
        "other children have 40)"
    )
    assert message(await update(manager, eng, pool_config("eng", 20, 80))) == (
        "resource cpu, reservation 20 is less than 30 of the child pools"
    )
    assert message(await update(manager, eng, pool_config("eng", 50, 60))) == (
        "resource cpu, limit 60 is less than 70 of child maps"
    )
    assert message(await update(manager, maps, pool_config("maps", 30, 70, ops))) == (
        f"parent override not allowed, actual {eng}, override {ops} (/eng is the parent, not /ops)"
    )
    assert message(await update(manager, maps, pool_config("maps", 30, 70, maps))) == (
        f"resource pool ID: {maps} and parent ID: {maps} cannot be same"
    )
    assert message(await update(manager, ops, pool_config("eng", 1, 1))) == "resource pool:eng already exists"


async def test_forced_update_skips_the_rules(manager: Manager) -> None:
    """Force changes a pool whatever the numbers."""
    pool = await create(manager, "p", 10, 50)

    assert not (await update(manager, pool, pool_config("p", 500, 600), force=True)).ListFields()
    assert (await get(manager, pool)).poolinfo.config.resources[0].limit == 600


NO_NUMBERS: dict[str, tuple[dict[str, float], str]] = {
    "reservation": ({"reservation": math.nan}, "resource cpu, reservation nan is not a finite number"),
    "limit": ({"limit": math.inf}, "resource cpu, limit inf is not a finite number"),
    "share": ({"share": math.inf}, "resource cpu, share inf is not a finite number"),
    "controller": ({"controllerLimit": math.nan}, "controllerLimit, maxPercent nan is not a finite number"),
    "slack": ({"slackLimit": -math.inf}, "slackLimit, maxPercent -inf is not a finite number"),
    "far too much": ({"slackLimit": 1e300}, "slackLimit, maxPercent 1e+300 is more than 10000"),
}


@pytest.mark.parametrize(("changes", "text"), NO_NUMBERS.values(), ids=NO_NUMBERS.keys())
async def test_what_is_no_amount_is_refused(manager: Manager, changes: dict[str, float], text: str) -> None:
    """An amount that is no number is rejected with its field, even by force; the tree is unchanged."""
    pool = await create(manager, "p", 10, 50)
    config = pool_config("p", 10, 50)
    for name, value in changes.items():
        if name.endswith("Limit"):
            getattr(config, name).maxPercent = value
        else:
            setattr(config.resources[0], name, value)

    assert await refusal(manager, config) == text
    assert (await update(manager, pool, config, force=True)).invalidResourcePoolConfig.message == text
    assert (await get(manager, pool)).poolinfo.config.resources[0].limit == 50


async def test_delete(manager: Manager, world: World) -> None:
    """Idle leaves alone are deleted; other paths are answered with the original's errors."""
    eng = await create(manager, "eng", 10, 50)
    await create(manager, "maps", 5, 50, eng)

    assert (await delete(manager, "/eng")).isNotLeaf.message == "resource pool is not leaf"
    assert (await delete(manager, "/nope")).notFound.message == "resource pool not found"
    assert (await delete(manager, "eng")).notFound.message == "resource pool not found"
    assert (await delete(manager, "/")).isNotLeaf.message == "resource pool is not leaf"
    assert not (await delete(manager, "/eng/maps")).ListFields()
    assert not (await delete(manager, "/eng")).ListFields()
    assert (await delete(manager, "/")).HasField("notDeleted")
    assert world.storage.pools.specs() == ()


async def test_pools_survive_a_restart(world: World, manager: Manager, server: ResmgrServer) -> None:
    """A new resource manager serves the same tree."""
    eng = await create(manager, "eng", 10, 50)
    await create(manager, "maps", 5, 50, eng)
    before = (await manager.Query(pb.QueryRequest())).resourcePools
    await server.stop()

    again = await serve(world.storage, world.lifecycles, world.hosts, "127.0.0.1:0", FAST)
    try:
        await until(lambda: again.loop.state.capacity is not None)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{again.port}") as channel:
            after = (await respool_pb2_grpc.ResourceManagerStub(channel).Query(pb.QueryRequest())).resourcePools
    finally:
        await again.stop()

    assert list(after) == list(before)


@pytest.mark.parametrize("ask", [lambda m: create(m, "p", 1, 1), get], ids=["create", "get the root"])
async def test_a_call_waits_for_the_cluster(
    ask: Callable[[Manager], Awaitable[Any]], world: World, manager: Manager, server: ResmgrServer
) -> None:
    """The size of the root is unknown until a host manager has answered: UNAVAILABLE, try again."""
    answer, world.hosts.answer = world.hosts.answer, None
    server.loop.state.capacity = None

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(manager)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == ("the capacity of the cluster is not known yet: no host manager leads at present")

    world.hosts.answer = answer
    await ask(manager)
    assert (await get(manager)).poolinfo.config.resources[0].limit == 100


# -- workers --------------------------------------------------------------------------------------------------------


async def test_client(world: World, server: ResmgrServer) -> None:
    """The workers' client queues, kills and notes over the wire, and errors come back as Peloton's."""
    job = world.job(world.pool("p", 1, 1), 3, cpu=2)  # never admitted; an admission would make placement start again
    server.loop.state.put_pool(world.storage.pools.specs()[0])
    channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
    client = ResourceManagerClient(lambda: channel)
    unknown = JobId("a1a1a1a1-0000-4000-8000-000000000000")
    try:
        assert await asyncio.to_thread(client.enqueue, job, 2) == Queued(2)
        await asyncio.to_thread(client.note_unplaced, job, 1, lacking_capacity(1))
        assert server.loop.state.count_unplaced(job) == (1, lacking_capacity(1))
        with pytest.raises(InvalidArgument, match="invalid pod id 'x'"):
            await asyncio.to_thread(client.evict, [(cast("Any", "x"), HOT)])
        with pytest.raises(InvalidArgument, match="1001 pods are to be evicted, at most 1000 at a time"):
            await asyncio.to_thread(client.evict, [(PodId(job, 0, 1), HOT)] * 1001)
        world.kill_job(job)
        assert await asyncio.to_thread(client.kill_queued, job) == 2
        with pytest.raises(NotFound, match=f"resource manager: job {unknown} not found"):
            await asyncio.to_thread(client.enqueue, unknown, 1)
        await server.stop()
        with pytest.raises(Unavailable):
            await asyncio.to_thread(client.enqueue, job, 1)
    finally:
        channel.close()


async def test_capacity_change_moves_the_root(world: World, manager: Manager, server: ResmgrServer) -> None:
    """New hosts show up in the root without a restart."""
    world.hosts.answer = (Resources.of(200), Resources())

    await until(lambda: server.loop.state.capacity == Resources.of(200))

    assert (await get(manager)).poolinfo.config.resources[0].limit == 200


async def test_a_pool_names_who_changed_it(manager: Manager) -> None:
    """The change log has the user on whose behalf the api calls, and stays as it was for a call without one."""
    pool = await create(manager, "eng", 10, 50)
    before = (await get(manager, pool)).poolinfo.config
    headers = (("peloton-on-behalf-of", "ann%40example.org"),)
    request = pb.UpdateRequest(id=ResourcePoolID(value=pool), config=pool_config("maps", 10, 50))

    await manager.UpdateResourcePool(request, metadata=headers)
    after = (await get(manager, pool)).poolinfo.config

    assert ("", "ann@example.org") == (before.changeLog.updatedBy, after.changeLog.updatedBy)
    assert after.changeLog.updatedAt > before.changeLog.updatedAt
