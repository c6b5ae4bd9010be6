"""Requests of the api to the leading host manager."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.private import hostmgr_pb2, hostmgr_pb2_grpc
from peloton.errors import NotFound, Unavailable
from peloton.model.ids import JobId, PodId
from peloton.model.resources import Resources
from services.api import hosts as hosts_module
from services.api.channels import AsyncLeaderChannels
from services.api.hosts import RemoteHosts

POD = PodId(JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000d"), 3, 2)


class Hosts(hostmgr_pb2_grpc.HostsServicer):
    def __init__(self) -> None:
        self.host_count = 2
        self.registered: hostmgr_pb2.Resources | None = None
        self.capacity_calls = 0
        self.kind = "mesos"

    async def ClusterCapacity(self, request: Any, context: Any) -> Any:
        self.capacity_calls += 1
        amounts = hostmgr_pb2.Resources(cpu_milli=8_000, memory_mib=1_024, disk_mib=10, gpu_milli=500)
        return hostmgr_pb2.ClusterCapacityResponse(
            capacity=amounts, host_count=self.host_count, registered=self.registered, kind=self.kind
        )

    async def BrowseSandbox(self, request: Any, context: Any) -> Any:
        if request.hostname == "gone":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no agent on host gone")
        return hostmgr_pb2.BrowseSandboxResponse(paths=[request.pod_id, request.hostname, request.agent_id])

    async def ReadFile(self, request: Any, context: Any) -> Any:
        if request.path != "stdout":
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no file {request.path}")
        said = f"{request.pod_id} {request.offset} {request.follow}"
        return hostmgr_pb2.ReadFileResponse(data=said.encode(), is_end=True)

    async def ExchangeWithCommand(self, request: Any, context: Any) -> Any:
        if request.session != "s":
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no session {request.session}")
        return hostmgr_pb2.ExchangeWithCommandResponse(stdout=request.data, exit_code=0)


@pytest.fixture
def servicer() -> Hosts:
    return Hosts()


@pytest.fixture
async def remote(servicer: Hosts) -> AsyncIterator[RemoteHosts]:
    server = grpc.aio.server()
    hostmgr_pb2_grpc.add_HostsServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channels = AsyncLeaderChannels(lambda _: None, lambda: {"local": f"127.0.0.1:{port}"})
    yield RemoteHosts(channels)
    await channels.close()
    await server.stop(None)


async def test_capacity_is_remembered(remote: RemoteHosts, servicer: Hosts) -> None:
    """The capacity is requested once within its maximum age."""
    first, second = await remote.capacity(), await remote.capacity()

    assert first == second == Resources(8_000, 1_024, 10, 500)
    assert servicer.capacity_calls == 1


async def test_hosts_in_maintenance_count(remote: RemoteHosts, servicer: Hosts) -> None:
    """Capacity includes hosts in maintenance."""
    servicer.registered = hostmgr_pb2.Resources(cpu_milli=12_000)

    assert await remote.capacity() == Resources(12_000)


async def test_kinds_are_those_of_all_clusters(remote: RemoteHosts, servicer: Hosts) -> None:
    """The kinds of clusters are part of the capacity's answer."""
    await remote.capacity()

    assert await remote.kinds() == {"mesos"}
    assert servicer.capacity_calls == 1


async def test_kinds_are_not_known_while_one_is_not(remote: RemoteHosts, servicer: Hosts) -> None:
    """A host manager of an earlier release reports no kinds, so they are unknown."""
    servicer.kind = ""

    assert await remote.kinds() == frozenset()


async def test_capacity_grows_old(remote: RemoteHosts, servicer: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The capacity is requested again after its maximum age."""
    monkeypatch.setattr(hosts_module, "CAPACITY_AGE_MAX_S", 0.0)
    await remote.capacity()
    await remote.capacity()

    assert servicer.capacity_calls == 2


async def test_a_capacity_that_refuses_a_job_is_younger(remote: RemoteHosts, servicer: Hosts) -> None:
    """The capacity is requested again before its maximum age."""
    await remote.capacity()
    await remote.refresh(3600.0)
    assert 1 == servicer.capacity_calls

    await remote.refresh(0.0)

    assert 2 == servicer.capacity_calls


async def test_capacity_without_hosts(remote: RemoteHosts, servicer: Hosts) -> None:
    """A cluster without hosts so far has an unknown capacity, not an empty one."""
    servicer.host_count = 0

    assert await remote.capacity() is None


async def test_capacity_without_a_leader() -> None:
    """The capacity without a host manager is unknown, which is not an error."""
    assert await RemoteHosts(AsyncLeaderChannels(lambda _: None)).capacity() is None


async def test_browse(remote: RemoteHosts) -> None:
    """The request has the run, its host and its agent."""
    answer = await remote.browse_sandbox(POD, "h1", "agent-1")

    assert list(answer.paths) == [str(POD), "h1", "agent-1"]


async def test_browse_errors(remote: RemoteHosts) -> None:
    """A refusal keeps its code and text; a missing leader is Unavailable."""
    with pytest.raises(NotFound, match="no agent on host gone"):
        await remote.browse_sandbox(POD, "gone", "agent-1")
    with pytest.raises(Unavailable, match="no host manager"):
        await RemoteHosts(AsyncLeaderChannels(lambda _: None)).browse_sandbox(POD, "h1", "agent-1")


async def test_a_piece_of_a_file(remote: RemoteHosts) -> None:
    """The request has the first byte; a refusal keeps its code."""
    piece = await remote.read_file(POD, "h1", "a1", "stdout", 12, True)
    assert (piece.data, piece.is_end) == (f"{POD} 12 True".encode(), True)
    with pytest.raises(NotFound, match="no file core"):
        await remote.read_file(POD, "h1", "a1", "core", 0, False)


async def test_an_exchange_with_a_command(remote: RemoteHosts) -> None:
    """The exchange is forwarded unchanged; a refusal keeps its code."""
    request = hostmgr_pb2.ExchangeWithCommandRequest(pod_id=str(POD), session="s", data=b"typed")
    answer = await remote.exchange(request)
    assert hostmgr_pb2.ExchangeWithCommandResponse(stdout=b"typed", exit_code=0) == answer
    request.session = "gone"
    with pytest.raises(NotFound, match="no session gone"):
        await remote.exchange(request)
