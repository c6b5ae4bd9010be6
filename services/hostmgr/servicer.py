"""The host manager over gRPC: private calls of workers and the api, alongside the public services about hosts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc

from peloton.api.private import hostmgr_pb2 as pb
from peloton.api.private import hostmgr_pb2_grpc
from peloton.api.v0.advice import advice_pb2_grpc
from peloton.api.v0.host.svc import host_svc_pb2_grpc
from peloton.api.v0.maintenance import maintenance_pb2_grpc
from peloton.errors import InvalidArgument, Unavailable, Unimplemented
from peloton.hosts.capacity_finder import UNRECORDED_JOB
from peloton.hosts.state import HOSTS_UNKNOWN
from peloton.model.host import PREFETCH_MAX
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.text import shorten
from peloton.ports import ImagePrefetcher
from services.hostmgr import capacity_messages, messages
from services.hostmgr.advisor import AdviceServicer, HostAdvisor
from services.hostmgr.domain_messages import counts_from_wire, counts_to_wire
from services.hostmgr.driver import PodOnHost
from services.hostmgr.host_pool_controller import HostPoolController
from services.hostmgr.host_services import NO_POOLS, HostServiceServicer, MaintenanceServicer, Uses
from services.hostmgr.maintenance import MaintenanceController
from services.hostmgr.maintenance_messages import encode_step
from services.hostmgr.manager import HostManagerCore
from services.hostmgr.rebalancer import Rebalancer, RebalanceServicer
from services.hostmgr.views import ClusterViews, ViewsServicer
from services.servers.grpc_bounds import CALLS_OF_ROLE_MAX, ReceiveOnThreads
from services.servers.grpc_requests import SERVER_OPTIONS, RequestsOfThreads
from services.servers.role_surface import roles_only_on_threads
from services.telemetry.calls import measure_threads
from services.tls.transport import PLAINTEXT, Transport

THREADS_MAX = 16
EVALUATED_MAX = 1_000
"""Limit of pod shapes in one call."""
Step = pb.MaintenanceStepRequest


class HostsServicer(hostmgr_pb2_grpc.HostsServicer):
    def __init__(
        self,
        core: HostManagerCore,
        maintenance: MaintenanceController,
        images: ImagePrefetcher,
        rebalancer: Rebalancer,
        uses: Uses,
    ) -> None:
        self._core = core
        self._maintenance = maintenance
        self._images = images
        self._rebalancer = rebalancer
        self._uses = uses

    def AcquireHosts(self, request: pb.AcquireHostsRequest, context: grpc.ServicerContext) -> pb.AcquireHostsResponse:
        wanted = messages.decode_wanted(request.wanted)
        shapes = [shape for shape, _ in wanted]
        desired = messages.decode_desired(request.desired, shapes)
        elsewhere = counts_from_wire(request.elsewhere, shapes)
        waiting = messages.waiting_from_wire(request.waiting, shapes)
        lease = self._core.acquire_hosts(JobId(request.job_id), wanted, request.for_gang, desired, elsewhere, waiting)
        return messages.lease_to_wire(lease, shapes)

    def CountDomains(self, request: pb.CountDomainsRequest, context: grpc.ServicerContext) -> pb.CountDomainsResponse:
        shapes = [shape for shape, _ in messages.decode_wanted(request.wanted)]
        counts = self._core.count_domains(JobId(request.job_id), shapes, request.without, request.for_gang)
        return pb.CountDomainsResponse(counts=counts_to_wire(counts, shapes))

    def ReleaseHosts(self, request: pb.ReleaseHostsRequest, context: grpc.ServicerContext) -> pb.ReleaseHostsResponse:
        self._core.release(request.lease_id)
        return pb.ReleaseHostsResponse()

    def Launch(self, request: pb.LaunchRequest, context: grpc.ServicerContext) -> pb.LaunchResponse:
        placements = messages.placements_from_wire(request.placements)
        result = self._core.launch(JobId(request.job_id), request.lease_id, placements)
        return pb.LaunchResponse(
            launched=result.launched_count, refused=result.refused_count, failed=result.failed_count
        )

    def PlaceAndLaunch(
        self, request: pb.PlaceAndLaunchRequest, context: grpc.ServicerContext
    ) -> pb.PlaceAndLaunchResponse:
        others = frozenset(request.other_clusters)
        result = self._core.place_and_launch(JobId(request.job_id), request.limit, request.for_gang, others)
        return messages.encode_launched_batch(result)

    def KillRunning(self, request: pb.KillRunningRequest, context: grpc.ServicerContext) -> pb.KillRunningResponse:
        return pb.KillRunningResponse(killed=self._core.kill_running(JobId(request.job_id)))

    def ClusterCapacity(
        self, request: pb.ClusterCapacityRequest, context: grpc.ServicerContext
    ) -> pb.ClusterCapacityResponse:
        capacity, revocable, count = self._core.cache.capacity()
        return pb.ClusterCapacityResponse(
            capacity=messages.resources_to_wire(capacity),
            revocable=messages.resources_to_wire(revocable),
            host_count=count,
            free=messages.resources_to_wire(self._core.cache.free()) if request.with_free else None,
            registered=messages.resources_to_wire(self._core.cache.sum_registered()),
            kind=self._core.driver.capabilities.kind,
            host_pools=map(messages.host_pool_to_wire, self._core.cache.host_pools.capacities()),
        )

    def SumUpHosts(self, request: pb.SumUpHostsRequest, context: grpc.ServicerContext) -> pb.SumUpHostsResponse:
        capacity, revocable, _ = self._core.cache.capacity()
        return messages.sums_to_wire(self._core.cache.sums.now(capacity, revocable, self._uses()))

    def HostPoolRooms(
        self, request: pb.HostPoolRoomsRequest, context: grpc.ServicerContext
    ) -> pb.HostPoolRoomsResponse:
        cache = self._core.cache
        if not cache.host_pools.are_used:
            raise Unimplemented(NO_POOLS)
        if not cache.are_hosts_known:
            raise Unavailable(HOSTS_UNKNOWN)
        return messages.capacity_to_wire(cache.host_pools.totals(), cache.host_pools.hosts_of(request.hosts_of))

    def JudgePods(self, request: pb.JudgePodsRequest, context: grpc.ServicerContext) -> pb.JudgePodsResponse:
        if len(request.pods) > EVALUATED_MAX:
            raise InvalidArgument(f"{len(request.pods)} pod shapes in one call, the limit is {EVALUATED_MAX}")
        shapes = [shape for shape, _ in messages.decode_wanted(request.pods)]
        return pb.JudgePodsResponse(
            infeasible=messages.infeasible_shapes_to_wire(self._core.cache.evaluate(shapes), shapes)
        )

    def FindRoom(self, request: pb.FindRoomRequest, context: grpc.ServicerContext) -> pb.FindRoomResponse:
        if len(request.pods) > EVALUATED_MAX:
            raise InvalidArgument(f"{len(request.pods)} pod shapes in one call, the limit is {EVALUATED_MAX}")
        if not self._core.cache.are_hosts_known:
            raise Unavailable(HOSTS_UNKNOWN)
        pods = capacity_messages.pods_from_wire(request.pods)
        counts = self._core.count_domains(UNRECORDED_JOB, [each.shape for each in pods])
        return capacity_messages.capacity_to_wire(self._core.cache.finder.find(pods, counts))

    def BrowseSandbox(
        self, request: pb.BrowseSandboxRequest, context: grpc.ServicerContext
    ) -> pb.BrowseSandboxResponse:
        pod = self._pod_with_files(request)
        try:
            found = self._core.driver.sandbox(pod)
        except OSError as error:
            raise Unavailable(f"get slave log failed on host:{shorten(request.hostname)} due to: {error}") from error
        ip, _, port = found.address.rpartition(":")
        control_plane_ip, _, control_plane_port = found.control_plane.rpartition(":")
        return pb.BrowseSandboxResponse(
            hostname=ip,
            port=port,
            paths=found.paths,
            mesos_master_hostname=control_plane_ip,
            mesos_master_port=control_plane_port,
            container_id=found.container_id,
        )

    def ReadFile(self, request: pb.ReadFileRequest, context: grpc.ServicerContext) -> pb.ReadFileResponse:
        pod = self._pod_with_files(request)
        try:
            piece = self._core.driver.read_file(pod, request.path, request.offset, request.follow)
        except OSError as error:
            raise Unavailable(f"file {shorten(request.path)} of pod {pod.pod_id} cannot be read: {error}") from error
        return pb.ReadFileResponse(data=piece.data, is_end=piece.is_end)

    def ExchangeWithCommand(
        self, request: pb.ExchangeWithCommandRequest, context: grpc.ServicerContext
    ) -> pb.ExchangeWithCommandResponse:
        pod = self._pod_with_files(request)
        try:
            answer = self._core.driver.exchange(pod, messages.exchange_from_wire(request))
        except OSError as error:
            raise Unavailable(f"command in pod {pod.pod_id}: {error}") from error
        return pb.ExchangeWithCommandResponse(**answer._asdict())

    def _pod_with_files(
        self, request: pb.BrowseSandboxRequest | pb.ReadFileRequest | pb.ExchangeWithCommandRequest
    ) -> PodOnHost:
        try:
            pod = PodOnHost(PodId.parse(request.pod_id), request.hostname, request.agent_id)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        if not self._core.driver.capabilities.serves_files:
            raise Unimplemented("the cluster does not serve files of pods")
        return pod

    def PrefetchImages(
        self, request: pb.PrefetchImagesRequest, context: grpc.ServicerContext
    ) -> pb.PrefetchImagesResponse:
        count = sum(len(row.hostnames) for row in request.images)
        if count > PREFETCH_MAX:
            raise InvalidArgument(f"prefetch of {count} images on hosts: at most {PREFETCH_MAX} in one call")
        images = {row.image: [Hostname(name) for name in row.hostnames] for row in request.images}
        done = self._images.prefetch(images)
        return pb.PrefetchImagesResponse(asked=done.asked_count, possible=done.is_possible)

    def StepDaemon(self, request: pb.StepDaemonRequest, context: grpc.ServicerContext) -> pb.StepDaemonResponse:
        return messages.daemon_step_to_wire(self._core.daemons.step(JobId(request.job_id), request.after))

    def ReachOfDaemon(
        self, request: pb.ReachOfDaemonRequest, context: grpc.ServicerContext
    ) -> pb.ReachOfDaemonResponse:
        ((shape, _),) = messages.decode_wanted([request.pod])
        return messages.reach_to_wire(self._core.daemons.reach(shape))

    def PlanDaemon(self, request: pb.ReachOfDaemonRequest, context: grpc.ServicerContext) -> pb.PlanDaemonResponse:
        ((shape, _),) = messages.decode_wanted([request.pod])
        return capacity_messages.daemon_plan_to_wire(self._core.daemons.plan(shape))

    def CordonHost(self, request: Step, context: grpc.ServicerContext) -> pb.MaintenanceStepResponse:
        return encode_step(self._maintenance.cordon(request.hostname))

    def DrainHost(self, request: Step, context: grpc.ServicerContext) -> pb.MaintenanceStepResponse:
        return encode_step(self._maintenance.drain(request.hostname))

    def TakeHostDown(self, request: Step, context: grpc.ServicerContext) -> pb.MaintenanceStepResponse:
        return encode_step(self._maintenance.take_down(request.hostname))

    def RelabelHost(self, request: Step, context: grpc.ServicerContext) -> pb.MaintenanceStepResponse:
        return encode_step(self._maintenance.relabel(request.hostname))

    def BringHostUp(self, request: Step, context: grpc.ServicerContext) -> pb.MaintenanceStepResponse:
        return encode_step(self._maintenance.bring_up(request.hostname))

    def AdvanceRebalance(
        self, request: pb.AdvanceRebalanceRequest, context: grpc.ServicerContext
    ) -> pb.AdvanceRebalanceResponse:
        self._rebalancer.advance()
        return pb.AdvanceRebalanceResponse()


def serve(
    core: HostManagerCore,
    maintenance: MaintenanceController,
    images: ImagePrefetcher,
    uses: Uses,
    address: str,
    deadline_s: int,
    rebalancer: Rebalancer,
    advisor: HostAdvisor,
    views: ClusterViews,
    host_pools: HostPoolController | None = None,
    direct_calls: bool = True,
    transport: Transport = PLAINTEXT,
) -> tuple[grpc.Server, int]:
    """Start to serve at ``host:port`` (port 0 picks one); return the server and its port. ``deadline_s`` is the
    default deadline of drains. ``host_pools`` is None while host pools are disabled. Without ``direct_calls`` only
    other roles may call public services."""
    threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="hostmgr")
    for_roles = roles_only_on_threads(transport, direct_calls)
    around = [ReceiveOnThreads(), *for_roles, *measure_threads(), RequestsOfThreads()]
    bound = CALLS_OF_ROLE_MAX
    server = grpc.server(threads, interceptors=around, options=SERVER_OPTIONS, maximum_concurrent_rpcs=bound)
    hostmgr_pb2_grpc.add_HostsServicer_to_server(HostsServicer(core, maintenance, images, rebalancer, uses), server)
    hosts = HostServiceServicer(core.cache, maintenance, uses, deadline_s, advisor, host_pools)
    host_svc_pb2_grpc.add_HostServiceServicer_to_server(hosts, server)
    steps = MaintenanceServicer(maintenance, deadline_s, rebalancer, views.job_names, host_pools)
    maintenance_pb2_grpc.add_MaintenanceServiceServicer_to_server(steps, server)
    advice_pb2_grpc.add_AdviceServiceServicer_to_server(AdviceServicer(advisor, maintenance.cluster), server)
    hostmgr_pb2_grpc.add_ViewsServicer_to_server(ViewsServicer(views), server)
    server.add_generic_rpc_handlers((RebalanceServicer(rebalancer).handler(),))
    port = transport.bind(server, address)
    server.start()
    return server, port
