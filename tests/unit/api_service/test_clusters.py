"""Calls about hosts to the host managers of several clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.private import hostmgr_pb2, hostmgr_pb2_grpc
from peloton.api.v0.advice import advice_pb2, advice_pb2_grpc
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.api.v0.maintenance import maintenance_pb2, maintenance_pb2_grpc
from peloton.api.v0.rebalance import rebalance_pb2, rebalance_pb2_grpc
from peloton.errors import NotFound, Unavailable
from peloton.model.ids import JobId, PodId
from peloton.model.resources import Resources
from services.api.channels import AsyncLeaderChannels
from services.api.hosts import RemoteHosts
from services.api.server import start
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.no_storage import NoStorage

POD = PodId(JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000d"), 3, 2)


class HostManager:
    """A host manager whose hosts have the cluster's name as their first letter; it refuses hosts that begin with x."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[list[str]] = []
        self.server: Any = grpc.aio.server()

    async def serve(self) -> str:
        service: Any = self
        hostmgr_pb2_grpc.add_HostsServicer_to_server(service, self.server)
        host_svc_pb2_grpc.add_HostServiceServicer_to_server(service, self.server)
        maintenance_pb2_grpc.add_MaintenanceServiceServicer_to_server(service, self.server)
        rebalance_pb2_grpc.add_RebalanceServiceServicer_to_server(service, self.server)
        advice_pb2_grpc.add_AdviceServiceServicer_to_server(service, self.server)
        address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        await self.server.start()
        return address

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        async def raise_unimplemented(request: Any, context: Any) -> Any:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, name)

        return raise_unimplemented

    async def QueryHosts(self, request: Any, context: Any) -> Any:
        return host_svc_pb2.QueryHostsResponse(
            host_infos=[host_pb2.HostInfo(hostname=f"{self.name}1", cluster=self.name)]
        )

    async def StartMaintenance(self, request: Any, context: Any) -> Any:
        self.asked.append([request.hostname, *request.hostnames])
        return host_svc_pb2.StartMaintenanceResponse(hostname=request.hostname)

    async def ChangeHostPool(self, request: Any, context: Any) -> Any:
        self.asked.append([request.hostname, request.sourcePool, request.destinationPool])
        return host_svc_pb2.ChangeHostPoolResponse()

    async def CreateHostPool(self, request: Any, context: Any) -> Any:
        self.asked.append([request.name])
        return host_svc_pb2.CreateHostPoolResponse()

    async def Start(self, request: Any, context: Any) -> Any:
        if any(host.startswith("x") or "bad" in host for host in request.hostnames):
            await context.abort(grpc.StatusCode.ABORTED, "host is not a Peloton agent")
        self.asked.append([*request.hostnames, request.reason])
        return maintenance_pb2.StartResponse(
            hosts=[maintenance_pb2.HostMaintenance(hostname=host) for host in request.hostnames]
        )

    async def Query(self, request: Any, context: Any) -> Any:
        return maintenance_pb2.QueryResponse(
            hosts=[maintenance_pb2.HostMaintenance(hostname=f"{self.name}1")], away_max=2, host_count=20
        )

    async def PlanRebalance(self, request: Any, context: Any) -> Any:
        if request.moves_max > 1_000:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "too many")
        return rebalance_pb2.PlanRebalanceResponse(
            moves=[rebalance_pb2.Move(source=f"{self.name}1", cluster=self.name)]
        )

    async def Advice(self, request: Any, context: Any) -> Any:
        services = [advice_pb2.ServiceMark(job_id="web", cluster=self.name)]
        return advice_pb2.AdviceResponse(hosts=[advice_pb2.HostMark(hostname=f"{self.name}1")], services=services)

    async def ClusterCapacity(self, request: Any, context: Any) -> Any:
        return hostmgr_pb2.ClusterCapacityResponse(capacity=hostmgr_pb2.Resources(cpu_milli=1_000), host_count=1)

    async def BrowseSandbox(self, request: Any, context: Any) -> Any:
        if not request.hostname.startswith(self.name):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"host {request.hostname} is not registered with Mesos")
        return hostmgr_pb2.BrowseSandboxResponse(hostname=self.name)


class Storage(NoStorage):
    def clusters_of(self, hostnames: Collection[str]) -> dict[str, str]:
        return {name: name[0] for name in hostnames if name[:1] in ("a", "b")}


class World:
    def __init__(self, managers: dict[str, HostManager], addresses: dict[str, str], channel: Any) -> None:
        self.managers, self.addresses = managers, addresses
        self.hosts = host_svc_pb2_grpc.HostServiceStub(channel)
        self.maintenance = maintenance_pb2_grpc.MaintenanceServiceStub(channel)
        self.advice = advice_pb2_grpc.AdviceServiceStub(channel)
        self.rebalances = rebalance_pb2_grpc.RebalanceServiceStub(channel)

    def asked(self) -> dict[str, list[list[str]]]:
        return {name: manager.asked for name, manager in self.managers.items() if manager.asked}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    managers = {name: HostManager(name) for name in "ab"}
    addresses = {name: await manager.serve() for name, manager in managers.items()}
    wakes = RecordedWakes()
    storage: Any = Storage()
    server = await start(storage, wakes, lambda _: None, "127.0.0.1:0", clusters=lambda: addresses)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield World(managers, addresses, channel)
    await server.stop(0)
    for manager in managers.values():
        await manager.server.stop(None)


async def test_questions_are_asked_of_all(world: World) -> None:
    """Lists are joined and counts summed; the answer names a cluster that does not answer, and is an error if none
    does."""
    query = maintenance_pb2.QueryRequest()
    found = await world.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest())
    maintained = await world.maintenance.Query(query)

    assert (["a1", "b1"], []) == ([info.hostname for info in found.host_infos], list(found.silent_clusters))
    assert (["a1", "b1"], 4, 40) == ([h.hostname for h in maintained.hosts], maintained.away_max, maintained.host_count)

    world.addresses["a"] = ""
    found = await world.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest())
    assert (["b1"], ["a"]) == ([info.hostname for info in found.host_infos], list(found.silent_clusters))
    maintained = await world.maintenance.Query(query)
    assert (20, ["a"]) == (maintained.host_count, list(maintained.silent_clusters))
    world.addresses["b"] = ""
    with pytest.raises(grpc.aio.AioRpcError, match="no host manager answers, of the clusters a, b"):
        await world.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest())


async def test_each_cluster_is_rebalanced_by_itself(world: World) -> None:
    """The answer joins the moves of all clusters; a refusal by one cluster refuses the request."""
    plan = await world.rebalances.PlanRebalance(rebalance_pb2.PlanRebalanceRequest())
    assert [("a1", "a"), ("b1", "b")] == [(move.source, move.cluster) for move in plan.moves]

    with pytest.raises(grpc.aio.AioRpcError, match="too many") as refused:
        await world.rebalances.PlanRebalance(rebalance_pb2.PlanRebalanceRequest(moves_max=1_001))
    assert grpc.StatusCode.INVALID_ARGUMENT is refused.value.code()
    world.addresses["a"] = ""
    plan = await world.rebalances.PlanRebalance(rebalance_pb2.PlanRebalanceRequest())
    assert (["b1"], ["a"]) == ([move.source for move in plan.moves], list(plan.silent_clusters))


async def test_marks_are_those_of_all_clusters(world: World) -> None:
    """A service with pods in two clusters has a mark of each; clusters that do not answer are named."""
    found = await world.advice.Advice(advice_pb2.AdviceRequest())
    assert ["a1", "b1"] == [host.hostname for host in found.hosts]
    assert [("web", "a"), ("web", "b")] == [(one.job_id, one.cluster) for one in found.services]

    world.addresses["a"] = ""
    found = await world.advice.Advice(advice_pb2.AdviceRequest())
    assert (["b1"], ["a"]) == ([host.hostname for host in found.hosts], list(found.silent_clusters))


async def test_what_names_hosts_goes_to_their_clusters(world: World) -> None:
    """Each cluster receives one request with its own hosts and all other fields."""
    request = maintenance_pb2.StartRequest(hostnames=["b2", "a1", "b1"], reason="new kernel")

    answer = await world.maintenance.Start(request)

    assert ["a1", "b2", "b1"] == [host.hostname for host in answer.hosts]
    assert {"a": [["a1", "new kernel"]], "b": [["b2", "b1", "new kernel"]]} == world.asked()
    one = await world.hosts.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname="b3"))
    assert ("b3", ["b3"]) == (one.hostname, world.managers["b"].asked[-1])


async def test_a_change_of_a_host_pool_goes_to_the_cluster_of_its_host(world: World) -> None:
    """A change of an unknown or unnamed host goes to the first cluster, which refuses it; so does a change of all
    hosts."""
    change, create = host_svc_pb2.ChangeHostPoolRequest, host_svc_pb2.CreateHostPoolRequest

    for hostname in ("b3", "", "x1"):
        await world.hosts.ChangeHostPool(change(hostname=hostname, sourcePool="default", destinationPool="batch"))
    await world.hosts.CreateHostPool(create(name="batch"))

    assert {
        "b": [["b3", "default", "batch"]],
        "a": [["", "default", "batch"], ["x1", "default", "batch"], ["batch"]],
    } == (world.asked())


async def test_unknown_hosts_are_refused_first(world: World) -> None:
    """The first cluster with a leader refuses them before another cluster acts."""
    with pytest.raises(grpc.aio.AioRpcError, match="host is not a Peloton agent"):
        await world.maintenance.Start(maintenance_pb2.StartRequest(hostnames=["b1", "x1"]))
    assert {} == world.asked()


async def test_nothing_is_done_while_a_cluster_of_them_is_silent(world: World) -> None:
    """A refusal after other clusters have acted names their hosts."""
    world.addresses["b"], b = "", world.addresses["b"]
    with pytest.raises(grpc.aio.AioRpcError, match="no host manager of cluster b is known"):
        await world.maintenance.Start(maintenance_pb2.StartRequest(hostnames=["a1", "b1"]))
    assert {} == world.asked()

    world.addresses["b"] = b
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.maintenance.Start(maintenance_pb2.StartRequest(hostnames=["a1", "bbad"]))
    assert "host is not a Peloton agent (done already: a1)" == caught.value.details()
    await world.managers["b"].server.stop(None)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.maintenance.Start(maintenance_pb2.StartRequest(hostnames=["a1", "b1"]))
    dead = "the host manager of cluster b does not answer: it may be being replaced, try again (done already: a1)"
    assert dead == caught.value.details()


async def test_capacity_is_known_when_all_report_theirs(world: World) -> None:
    """The capacity is unknown if one cluster does not answer, and pools are then not compared with it."""
    channels = AsyncLeaderChannels(lambda _: None, lambda: world.addresses)
    assert Resources(2_000) == await RemoteHosts(channels).capacity()

    world.addresses["b"] = ""
    assert await RemoteHosts(channels).capacity() is None
    await channels.close()


async def test_a_sandbox_is_searched_for_in_all(world: World) -> None:
    """The cluster with the host answers; while a cluster is silent the host cannot be called unknown."""
    channels = AsyncLeaderChannels(lambda _: None, lambda: world.addresses)
    hosts = RemoteHosts(channels)

    assert "b" == (await hosts.browse_sandbox(POD, "b1", "agent")).hostname
    with pytest.raises(NotFound, match="host x1 is not registered"):
        await hosts.browse_sandbox(POD, "x1", "agent")
    world.addresses["b"] = ""
    with pytest.raises(Unavailable, match="cluster b"):
        await hosts.browse_sandbox(POD, "b1", "agent")
    world.addresses |= {"a": "127.0.0.1:1", "c": world.addresses["a"]}
    assert "a" == (await hosts.browse_sandbox(POD, "a1", "agent")).hostname
    await channels.close()
