"""Complete services are forwarded to the leader of another role, byte for byte."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.access.caller import CallerKind
from peloton.access.tokens import RANDOM_BYTES, make_token
from peloton.api.service_names import RESOURCE_MANAGER, add_under_all_names
from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.api.v0.respool import respool_pb2
from services.access.access import Access, Authenticators
from services.access.bindings import BindingsFile
from services.access.tokens import Tokens
from services.api.channels import CHANNELS_MAX, AsyncLeaderChannels
from services.api.server import ApiServer, start
from tests.late_server import late_server
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.no_storage import NoStorage


class ResourceManager:
    """A resource manager that returns the request that reached it."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.metadata: dict[str, Any] = {}
        self.deadlines_s: list[float] = []

    async def CreateResourcePool(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata = dict(context.invocation_metadata())
        self.deadlines_s.append(context.time_remaining())
        context.set_trailing_metadata((("answered-by", "resmgr"),))
        response = respool_pb2.CreateResponse()
        response.result.value = "made"
        response.MergeFromString(b"\xfa\x3f\x03new")  # field 1023, which this release does not define
        return response

    async def DeleteResourcePool(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "pool is held", (("held-by", "job-1"),))

    async def GetResourcePool(self, request: Any, context: Any) -> Any:
        return respool_pb2.GetResponse()

    UpdateResourcePool = LookupResourcePoolID = Query = GetResourcePool


class HostService(host_svc_pb2_grpc.HostServiceServicer):
    async def StartMaintenance(self, request: Any, context: Any) -> Any:
        return host_svc_pb2.StartMaintenanceResponse(hostname=request.hostname)


class Leaders:
    """The leaders of resmgr and of the only cluster; tests change them."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}

    def __call__(self, role: str) -> str | None:
        return self.addresses.get(role)

    def clusters(self) -> dict[str, str]:
        return {"local": self.addresses.get("local", "")}


@pytest.fixture
def leaders() -> Leaders:
    return Leaders()


@pytest.fixture
async def resmgr(leaders: Leaders) -> AsyncIterator[ResourceManager]:
    """Start a process that leads resmgr and hostmgr."""
    servicer, server = ResourceManager(), grpc.aio.server()
    add_under_all_names(server, servicer, RESOURCE_MANAGER)
    host_svc_pb2_grpc.add_HostServiceServicer_to_server(HostService(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    leaders.addresses = {"resmgr": address, "local": address}
    yield servicer
    await server.stop(None)


@pytest.fixture
async def api(leaders: Leaders) -> AsyncIterator[ApiServer]:
    wakes = RecordedWakes()
    server = await start(cast(Any, NoStorage()), wakes, leaders, "127.0.0.1:0", clusters=leaders.clusters)
    yield server
    await server.stop(0)


@pytest.fixture
async def channel(api: ApiServer) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{api.port}") as channel:
        yield channel


def create_pool(channel: grpc.aio.Channel, name: str = RESOURCE_MANAGER[0]) -> Any:
    method = cast(Any, channel).unary_unary(
        f"/{name}/CreateResourcePool",
        request_serializer=respool_pb2.CreateRequest.SerializeToString,
        response_deserializer=respool_pb2.CreateResponse.FromString,
    )
    request = respool_pb2.CreateRequest()
    request.config.name = "maps"
    return method(request, timeout=30, metadata=(("rpc-caller", "test"), ("username", "ann")))


@pytest.mark.parametrize("name", RESOURCE_MANAGER)
async def test_every_spelling_reaches_the_leader(resmgr: ResourceManager, channel: grpc.aio.Channel, name: str) -> None:
    """Each name of v0 ResourceManager is forwarded to the resource manager, with request and answer unchanged."""
    answer = await create_pool(channel, name)

    assert answer.result.value == "made"
    assert answer.SerializeToString().endswith(b"\xfa\x3f\x03new")
    assert [r.config.name for r in resmgr.requests] == ["maps"]


async def test_headers_and_deadline_travel(resmgr: ResourceManager, channel: grpc.aio.Channel) -> None:
    """The caller's headers but its credentials, and its remaining time, reach the leader; the leader's metadata reaches
    the caller.
    """
    call = create_pool(channel)
    await call

    assert (resmgr.metadata["rpc-caller"], resmgr.metadata.get("username")) == ("test", None)
    assert 0 < resmgr.deadlines_s[0] < 60
    assert ("answered-by", "resmgr") in list(await call.trailing_metadata())


async def test_a_leader_that_is_slow_to_answer_is_waited_for(
    resmgr: ResourceManager, leaders: Leaders, channel: grpc.aio.Channel
) -> None:
    """A leader without CPU time accepts connections without an answer; the call waits until it answers."""
    with late_server(leaders.addresses["resmgr"], 1.5) as address:
        leaders.addresses["resmgr"] = address
        answer = await create_pool(channel)

    assert "made" == answer.result.value


async def test_statuses_travel(resmgr: ResourceManager, channel: grpc.aio.Channel) -> None:
    """Code, text and trailing metadata of a refusal are the leader's."""
    method = cast(Any, channel).unary_unary(f"/{RESOURCE_MANAGER[0]}/DeleteResourcePool")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await method(b"")

    error = caught.value
    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "pool is held")
    assert ("held-by", "job-1") in list(error.trailing_metadata())


async def test_hosts_go_to_the_host_manager(resmgr: ResourceManager, channel: grpc.aio.Channel) -> None:
    """v0 HostService is served by the leading host manager."""
    stub = host_svc_pb2_grpc.HostServiceStub(channel)

    answer = await cast(Any, stub).StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname="h1"))

    assert answer.hostname == "h1"


async def test_no_leader(channel: grpc.aio.Channel) -> None:
    """The error UNAVAILABLE names the role without a leader."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await create_pool(channel)

    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == ("no leader of role resmgr is known: it is starting or being replaced, try again")


async def test_dead_leader(leaders: Leaders, channel: grpc.aio.Channel) -> None:
    """A leader that does not answer is UNAVAILABLE as well, with a text about the leader."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # so that no other process listens there
        leaders.addresses["resmgr"] = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await create_pool(channel)

    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    text = "the leader of role resmgr does not answer: it may be being replaced, try again"
    assert caught.value.details() == text


async def test_unknown_method_of_a_forwarded_service(resmgr: ResourceManager, channel: grpc.aio.Channel) -> None:
    """The leader answers an unknown method."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cast(Any, channel).unary_unary(f"/{RESOURCE_MANAGER[0]}/Nothing")(b"")

    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_channels_are_shared_and_bounded() -> None:
    """Each address has one channel; beyond the bound the oldest are closed."""
    addresses = [f"127.0.0.1:{port}" for port in range(1, CHANNELS_MAX + 4)]
    at = iter([addresses[0], addresses[0], *addresses[1:], addresses[0]])
    channels = AsyncLeaderChannels(lambda _: next(at))

    first, again = await channels.to("resmgr"), await channels.to("resmgr")
    for _ in addresses[1:]:
        await channels.to("resmgr")
    later = await channels.to("resmgr")
    await channels.close()

    assert first is again
    assert first is not later


async def test_a_forwarded_call_names_its_caller(resmgr: ResourceManager, leaders: Leaders, tmp_path: Path) -> None:
    """Credentials of the caller stay in the api."""
    token, row = make_token("ann b", CallerKind.USER, (), 0.0, time.time(), os.urandom(RANDOM_BYTES))
    (tmp_path / "tokens").write_text(row.to_line())
    (tmp_path / "roles").write_text('[[binding]]\nrole = "admin"\nsubjects = ["user:ann b"]\n')
    by = Authenticators(tokens=Tokens(str(tmp_path / "tokens")), bindings=BindingsFile(str(tmp_path / "roles")))
    storage: Any = NoStorage()
    api = await start(storage, RecordedWakes(), leaders, "127.0.0.1:0", clusters=leaders.clusters, access=Access(by))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{api.port}") as channel:
        method: Any = cast(Any, channel).unary_unary(f"/{RESOURCE_MANAGER[0]}/CreateResourcePool")
        await method(b"", timeout=30, metadata=(("authorization", f"Bearer {token}"),))
    await api.stop(0)
    assert "ann%20b" == resmgr.metadata["peloton-on-behalf-of"]
    assert "authorization" not in resmgr.metadata
