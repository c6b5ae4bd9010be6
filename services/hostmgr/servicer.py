"""The host manager on gRPC: private calls of workers and the api, and the public v0 HostService."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc

from peloton.api.limits import MESSAGE_SIZES
from peloton.api.private import hostmgr_pb2 as pb
from peloton.api.private import hostmgr_pb2_grpc
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.api.v0.peloton_pb2 import Label
from peloton.errors import NotFound, Unavailable
from peloton.model.host import Host
from peloton.model.ids import JobId
from services.grpc_errors import answering
from services.hostmgr import messages
from services.hostmgr.manager import HostManagerCore
from services.hostmgr.mesos import operator

THREADS_MAX = 16


class HostsServicer(hostmgr_pb2_grpc.HostsServicer):
    def __init__(self, core: HostManagerCore) -> None:
        self._core = core

    @answering
    def AcquireHosts(self, request: pb.AcquireHostsRequest, context: grpc.ServicerContext) -> pb.AcquireHostsResponse:
        wanted = messages.wanted_from_wire(request.wanted)
        return messages.lease_to_wire(self._core.acquire_hosts(JobId(request.job_id), wanted, request.for_gang))

    @answering
    def ReleaseHosts(self, request: pb.ReleaseHostsRequest, context: grpc.ServicerContext) -> pb.ReleaseHostsResponse:
        self._core.release(request.lease_id)
        return pb.ReleaseHostsResponse()

    @answering
    def Launch(self, request: pb.LaunchRequest, context: grpc.ServicerContext) -> pb.LaunchResponse:
        placements = messages.placements_from_wire(request.placements)
        result = self._core.launch(JobId(request.job_id), request.lease_id, placements)
        return pb.LaunchResponse(
            launched=result.launched_count, refused=result.refused_count, failed=result.failed_count
        )

    @answering
    def KillRunning(self, request: pb.KillRunningRequest, context: grpc.ServicerContext) -> pb.KillRunningResponse:
        return pb.KillRunningResponse(killed=self._core.kill_running(JobId(request.job_id)))

    @answering
    def ClusterCapacity(
        self, request: pb.ClusterCapacityRequest, context: grpc.ServicerContext
    ) -> pb.ClusterCapacityResponse:
        capacity, revocable, count = self._core.pool.capacity()
        return pb.ClusterCapacityResponse(
            capacity=messages.resources_to_wire(capacity),
            revocable=messages.resources_to_wire(revocable),
            host_count=count,
        )

    @answering
    def BrowseSandbox(
        self, request: pb.BrowseSandboxRequest, context: grpc.ServicerContext
    ) -> pb.BrowseSandboxResponse:
        agent = self._core.pool.agent(request.hostname)
        if agent is None:
            raise NotFound(f"host {request.hostname} is not registered with Mesos")
        framework_id = self._core.driver.framework_id
        run = f"slaves/{request.agent_id}/frameworks/{framework_id}/executors/{request.pod_id}/runs/latest"
        try:
            paths = operator.browse(agent.address, f"{operator.agent_work_dir(agent.address)}/{run}")
        except OSError as error:
            raise Unavailable(f"get slave log failed on host:{request.hostname} due to: {error}") from error
        ip, _, port = agent.address.rpartition(":")
        master_ip, _, master_port = (self._core.driver.master or "").rpartition(":")
        return pb.BrowseSandboxResponse(
            hostname=ip, port=port, paths=paths, mesos_master_hostname=master_ip, mesos_master_port=master_port
        )


class HostServiceServicer(host_svc_pb2_grpc.HostServiceServicer):
    """v0 HostService. Maintenance and host pools answer UNIMPLEMENTED, as the generated base class does."""

    def __init__(self, core: HostManagerCore) -> None:
        self._core = core

    @answering
    def QueryHosts(
        self, request: host_svc_pb2.QueryHostsRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.QueryHostsResponse:
        wanted = set(request.host_states)
        infos = [_host_info(host) for host in self._core.pool.hosts()]
        return host_svc_pb2.QueryHostsResponse(host_infos=[i for i in infos if not wanted or i.state in wanted])


def _host_info(host: Host) -> host_pb2.HostInfo:
    state = host_pb2.HostState.Value(f"HOST_STATE_{host.state}")
    labels = [Label(key=key, value=value) for key, value in host.labels]
    return host_pb2.HostInfo(
        hostname=host.hostname, ip=host.ip, state=state, goal_state=host_pb2.HOST_STATE_UP, labels=labels
    )


def serve(core: HostManagerCore, address: str) -> tuple[grpc.Server, int]:
    """Start serving at ``host:port`` (port 0 picks one); returns the server and its port."""
    server = grpc.server(ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="hostmgr"), options=MESSAGE_SIZES)
    hostmgr_pb2_grpc.add_HostsServicer_to_server(HostsServicer(core), server)
    host_svc_pb2_grpc.add_HostServiceServicer_to_server(HostServiceServicer(core), server)  # type: ignore[abstract]
    port = server.add_insecure_port(address)
    server.start()
    return server, port
