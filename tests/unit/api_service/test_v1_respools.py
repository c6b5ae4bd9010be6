"""v1alpha ResourcePoolService and HostService through the leaders' v0 services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from peloton.api.service_names import RESOURCE_MANAGER, add_under_all_names
from peloton.api.v0.host import host_pb2 as v0_host_pb2
from peloton.api.v0.host.svc import host_svc_pb2 as v0_host_svc_pb2
from peloton.api.v0.host.svc import host_svc_pb2_grpc as v0_host_svc_pb2_grpc
from peloton.api.v0.respool import respool_pb2 as v0
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.host import host_pb2
from peloton.api.v1alpha.host.svc import host_svc_pb2
from peloton.api.v1alpha.host.svc.host_svc_pb2_grpc import HostServiceStub
from peloton.api.v1alpha.respool import respool_pb2
from peloton.api.v1alpha.respool.svc import respool_svc_pb2 as svc
from peloton.api.v1alpha.respool.svc.respool_svc_pb2_grpc import ResourcePoolServiceStub
from services.api.server import start
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.no_storage import NoStorage
from tests.unit.api_service.story import expect_refusal

Status = grpc.StatusCode
POOL = v0.ResourcePoolInfo(config=v0.ResourcePoolConfig(name="maps"), path=v0.ResourcePoolPath(value="/eng/maps"))
POOL.id.value = "p1"


class ResourceManager:
    """A resource manager with one pool, which answers with the error that a test sets."""

    def __init__(self) -> None:
        self.error: dict[str, str] = {}
        self.requests: list[Any] = []

    def _answer(self, kind: type[Any], request: Any, **fields: Any) -> Any:
        self.requests.append(request)
        answer = kind(**fields)
        for name, message in self.error.items():
            if name in kind.Error.DESCRIPTOR.fields_by_name:
                getattr(answer.error, name).message = message
        return answer

    async def CreateResourcePool(self, request: Any, context: Any) -> Any:
        return self._answer(v0.CreateResponse, request, result=POOL.id, warnings=["much"])

    async def GetResourcePool(self, request: Any, context: Any) -> Any:
        return self._answer(v0.GetResponse, request, poolinfo=POOL, childPools=[POOL])

    async def DeleteResourcePool(self, request: Any, context: Any) -> Any:
        return self._answer(v0.DeleteResponse, request)

    async def UpdateResourcePool(self, request: Any, context: Any) -> Any:
        return self._answer(v0.UpdateResponse, request, warnings=["more"])

    async def LookupResourcePoolID(self, request: Any, context: Any) -> Any:
        return self._answer(v0.LookupResponse, request, id=POOL.id)

    async def Query(self, request: Any, context: Any) -> Any:
        return self._answer(v0.QueryResponse, request, resourcePools=[POOL])


class HostService(v0_host_svc_pb2_grpc.HostServiceServicer):
    async def QueryHosts(self, request: Any, context: Any) -> Any:
        info = v0_host_pb2.HostInfo(hostname="h1", state=v0_host_pb2.HOST_STATE_UP, current_pool="default")
        return v0_host_svc_pb2.QueryHostsResponse(host_infos=[info])


@pytest.fixture
async def resmgr() -> AsyncIterator[tuple[ResourceManager, str]]:
    """Start a process that leads resmgr and hostmgr, and return its address."""
    servicer, server = ResourceManager(), grpc.aio.server()
    add_under_all_names(server, servicer, RESOURCE_MANAGER)
    v0_host_svc_pb2_grpc.add_HostServiceServicer_to_server(HostService(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield servicer, address
    await server.stop(None)


@pytest.fixture
async def api(resmgr: tuple[ResourceManager, str], request: pytest.FixtureRequest) -> AsyncIterator[grpc.aio.Channel]:
    address = None if getattr(request, "param", "") == "no leader" else resmgr[1]
    wakes = RecordedWakes()
    storage: Any = NoStorage()
    server = await start(storage, wakes, lambda _: address, "127.0.0.1:0", clusters=lambda: {"local": address or ""})
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel
    await server.stop(0)


@pytest.fixture
def respools(api: grpc.aio.Channel) -> Any:
    return ResourcePoolServiceStub(api)


@pytest.fixture
def servicer(resmgr: tuple[ResourceManager, str]) -> ResourceManager:
    return resmgr[0]


def wire_id(value: str) -> Any:
    return svc.GetResourcePoolRequest(respool_id=peloton_pb2.ResourcePoolID(value=value)).respool_id


async def test_create(respools: Any, servicer: ResourceManager) -> None:
    """The request has the spec in v0's form; the answer has the id."""
    spec = respool_pb2.ResourcePoolSpec(
        name="maps", policy=respool_pb2.SCHEDULING_POLICY_PRIORITY_FIFO, owning_team="maps"
    )
    spec.resources.add(kind="cpu", reservation=1, limit=2, share=3, type=respool_pb2.RESERVATION_TYPE_STATIC)
    spec.parent.value = "root"
    response = await respools.CreateResourcePool(svc.CreateResourcePoolRequest(spec=spec))

    config = servicer.requests[0].config
    assert (response.respool_id.value, list(response.warnings)) == ("p1", ["much"])
    assert (config.name, config.owningTeam, config.policy, config.parent.value) == ("maps", "maps", 1, "root")
    assert config.resources[0] == v0.ResourceConfig(kind="cpu", reservation=1, limit=2, share=3, type=v0.STATIC)


async def test_reads(respools: Any, servicer: ResourceManager) -> None:
    """The calls return one pool with its children, the id of a path, and all pools."""
    one = await respools.GetResourcePool(svc.GetResourcePoolRequest(respool_id=wire_id("p1"), include_child_pools=True))
    root = await respools.GetResourcePool(svc.GetResourcePoolRequest())
    found = await respools.LookupResourcePoolID(
        svc.LookupResourcePoolIDRequest(path=respool_pb2.ResourcePoolPath(value="/eng/maps"))
    )
    every = await respools.QueryResourcePools(svc.QueryResourcePoolsRequest())

    assert (one.respool.spec.name, one.respool.path.value) == ("maps", "/eng/maps")
    assert list(one.child_respools) == [one.respool] == list(every.respools)
    assert root.respool == one.respool
    assert found.respool_id.value == "p1"
    asked = servicer.requests
    assert (asked[0].id.value, asked[0].includeChildPools, asked[1].HasField("id")) == ("p1", True, False)


async def test_delete_and_update(respools: Any, servicer: ResourceManager) -> None:
    """A pool is deleted by its id, whose path is looked up; an update may be forced."""
    await respools.DeleteResourcePool(svc.DeleteResourcePoolRequest(respool_id=wire_id("p1")))
    update = svc.UpdateResourcePoolRequest(respool_id=wire_id("p1"), Force=True)
    update.spec.name = "maps"
    answer = await respools.UpdateResourcePool(update)
    assert ["more"] == list(answer.warnings)
    lookup, delete, put = servicer.requests

    assert (lookup.id.value, delete.path.value) == ("p1", "/eng/maps")
    assert (put.id.value, put.config.name, put.Force) == ("p1", "maps", True)


DELETE = svc.DeleteResourcePoolRequest(respool_id=wire_id("p1"))
ERRORS: dict[str, tuple[str, str, Any, grpc.StatusCode]] = {
    "exists": ("alreadyExists", "CreateResourcePool", svc.CreateResourcePoolRequest(), Status.ALREADY_EXISTS),
    "invalid": (
        "invalidResourcePoolConfig",
        "UpdateResourcePool",
        svc.UpdateResourcePoolRequest(),
        Status.INVALID_ARGUMENT,
    ),
    "unknown": ("notFound", "GetResourcePool", svc.GetResourcePoolRequest(), Status.NOT_FOUND),
    "unknown, to delete": ("notFound", "DeleteResourcePool", DELETE, Status.NOT_FOUND),
    "no leaf": ("isNotLeaf", "DeleteResourcePool", DELETE, Status.INVALID_ARGUMENT),
    "busy": ("isBusy", "DeleteResourcePool", DELETE, Status.ABORTED),
    "not deleted": ("notDeleted", "DeleteResourcePool", DELETE, Status.UNAVAILABLE),
    "path": (
        "invalidPath",
        "LookupResourcePoolID",
        svc.LookupResourcePoolIDRequest(),
        Status.INVALID_ARGUMENT,
    ),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_errors(respools: Any, servicer: ResourceManager, name: str) -> None:
    """The error inside v0's answer becomes a status with the same text."""
    field, method, request, code = ERRORS[name]
    servicer.error = {field: f"the text of {field}"}

    assert await expect_refusal(getattr(respools, method)(request)) == (code, f"the text of {field}")


@pytest.mark.parametrize(
    ("pool", "text"), [("", "resource pool ID is null"), ("root", "cannot delete root resource pool")]
)
async def test_the_root_is_not_deleted(respools: Any, servicer: ResourceManager, pool: str, text: str) -> None:
    """The root can be deleted neither by its name nor by an empty one."""
    request = svc.DeleteResourcePoolRequest(respool_id=wire_id(pool))

    assert await expect_refusal(respools.DeleteResourcePool(request)) == (Status.INVALID_ARGUMENT, text)
    assert servicer.requests == []


async def test_an_id_of_ones_own(respools: Any) -> None:
    """A given id is refused, since Peloton chooses the id."""
    assert await expect_refusal(
        respools.CreateResourcePool(svc.CreateResourcePoolRequest(respool_id=wire_id("mine")))
    ) == (
        Status.INVALID_ARGUMENT,
        "respool_id 'mine' is given: Peloton chooses the id itself",
    )


@pytest.mark.parametrize("api", ["no leader"], indirect=True)
async def test_without_a_leader(respools: Any, api: grpc.aio.Channel) -> None:
    """The error is temporary, so the call may be repeated."""
    code, _ = await expect_refusal(respools.QueryResourcePools(svc.QueryResourcePoolsRequest()))

    assert code == Status.UNAVAILABLE


async def test_hosts(api: grpc.aio.Channel) -> None:
    """v1alpha HostService is the host manager's v0 service, maintenance included."""
    hosts = cast(Any, HostServiceStub(api))
    response = await hosts.QueryHosts(host_svc_pb2.QueryHostsRequest())
    code, _ = await expect_refusal(hosts.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname="h1")))

    assert [(info.hostname, info.state) for info in response.host_infos] == [("h1", host_pb2.HOST_STATE_UP)]
    assert code == Status.UNIMPLEMENTED  # as this host manager answers


TWINS = {
    "pool specs": (v0.ResourcePoolConfig, respool_pb2.ResourcePoolSpec),
    "pools": (v0.ResourcePoolInfo, respool_pb2.ResourcePoolInfo),
    **{
        f"hosts, {name}": (getattr(v0_host_svc_pb2, name), getattr(host_svc_pb2, name))
        for name in host_svc_pb2.DESCRIPTOR.message_types_by_name
    },
}


def layout(message: Descriptor) -> dict[int, Any]:
    """Return number -> (is repeated, type) of each field; the type of a message is its own layout."""
    return {field.number: (field.is_repeated, _inside(field)) for field in message.fields}


def _inside(field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return layout(field.message_type)
    signed_alike = {FieldDescriptor.TYPE_UINT64: FieldDescriptor.TYPE_INT64}
    return signed_alike.get(field.type, field.type)


def make_shares(mine: dict[int, Any], theirs: dict[int, Any]) -> dict[int, Any]:
    """Return the part of ``theirs`` with the numbers in ``mine``."""
    found: dict[int, Any] = {}
    for number in mine.keys() & theirs.keys():
        (_, mine_inside), (is_repeated, inside) = mine[number], theirs[number]
        is_message = isinstance(mine_inside, dict) and isinstance(inside, dict)
        found[number] = (is_repeated, make_shares(mine_inside, inside) if is_message else inside)
    return found


@pytest.mark.parametrize("name", TWINS)
def test_messages_that_cross_as_bytes(name: str) -> None:
    """Every field of the v1alpha message has v0's number and type."""
    old, new = TWINS[name]
    mine = layout(new.DESCRIPTOR)

    assert make_shares(mine, layout(old.DESCRIPTOR)) == mine
