"""Client of the host manager of one cluster. Resolves the leader for each call, so it survives a failover."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import grpc

from peloton.api.private import hostmgr_pb2 as pb
from peloton.api.private import hostmgr_pb2_grpc
from peloton.api.v0.advice import advice_pb2, advice_pb2_grpc
from peloton.api.v0.maintenance import maintenance_pb2, maintenance_pb2_grpc
from peloton.model.advice import Marked
from peloton.model.daemon import DaemonPlan, DaemonReach, DaemonStep
from peloton.model.host import (
    Capacity,
    ClusterSums,
    Desired,
    HostLease,
    LaunchedBatch,
    LaunchResult,
    Placement,
    Prefetched,
)
from peloton.model.host_pool import HostPoolTotals
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import DomainCount
from peloton.model.maintenance import HostMaintenance, MaintenanceAct
from peloton.model.planned_capacity import FoundCapacity, PlannedPods
from peloton.model.pod import PodShape
from peloton.model.reason import Infeasible
from peloton.model.reservation import WaitingPod
from peloton.model.resources import Resources
from services.hostmgr import capacity_messages, messages
from services.hostmgr.domain_messages import counts_from_wire, counts_to_wire
from services.hostmgr.maintenance_messages import decode_step
from services.servers.grpc_errors import call_peer

T = TypeVar("T")

CALL_TIMEOUT_S = 20.0
LONG_TIMEOUT_S = 2 * CALL_TIMEOUT_S
"""The timeout of steps that write rows of many pods."""
PREFETCH_TIMEOUT_S = 5.0
FREE_TIMEOUT_S = 2.0
EVALUATION_TIMEOUT_S = 2.0
"""Short: an explanation omits this answer rather than wait for it, and a rebalance does without it."""
CAPACITY_TIMEOUT_S = 5.0
"""A plan omits this answer and reports that."""
NAME = "host manager"
NOWHERE: Mapping[PodShape, Sequence[DomainCount]] = {}


class HostManagerClient:
    """Implements ``ports.MaintenanceController`` and ``ports.ImagePrefetcher``; ``HostManagers`` combines several."""

    def __init__(self, channel: Callable[[], grpc.Channel]) -> None:
        """``channel`` returns a channel to the leader, or raises Unavailable."""
        self._channel = channel

    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        elsewhere: Mapping[PodShape, Sequence[DomainCount]] = NOWHERE,
        waiting: Sequence[WaitingPod] = (),
    ) -> HostLease:
        shapes = [shape for shape, _ in gangs]
        request = pb.AcquireHostsRequest(
            job_id=job_id,
            wanted=messages.encode_wanted(gangs),
            for_gang=for_gang,
            desired=messages.encode_desired(desired, shapes),
            elsewhere=counts_to_wire(elsewhere, shapes),
            waiting=messages.waiting_to_wire(waiting, shapes),
        )
        return messages.lease_from_wire(_call(self._stub().AcquireHosts, request), shapes)

    def count_domains(
        self, job_id: JobId, shapes: Sequence[PodShape], without: Sequence[int], for_gang: bool
    ) -> dict[PodShape, tuple[DomainCount, ...]]:
        wanted = messages.encode_wanted([(shape, 1) for shape in shapes])
        request = pb.CountDomainsRequest(job_id=job_id, wanted=wanted, without=without, for_gang=for_gang)
        return counts_from_wire(_call(self._stub().CountDomains, request).counts, shapes)

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        request = pb.LaunchRequest(job_id=job_id, lease_id=lease_id, placements=messages.placements_to_wire(placements))
        return messages.launch_result_from_wire(_call(self._stub().Launch, request, LONG_TIMEOUT_S))

    def place_and_launch(
        self, job_id: JobId, limit: int, for_gang: bool, other_clusters: Sequence[str]
    ) -> LaunchedBatch:
        request = pb.PlaceAndLaunchRequest(job_id=job_id, limit=limit, for_gang=for_gang, other_clusters=other_clusters)
        return messages.decode_launched_batch(_call(self._stub().PlaceAndLaunch, request, LONG_TIMEOUT_S), job_id)

    def release(self, lease_id: str) -> None:
        _call(self._stub().ReleaseHosts, pb.ReleaseHostsRequest(lease_id=lease_id))

    def kill_running(self, job_id: JobId) -> int:
        return _call(self._stub().KillRunning, pb.KillRunningRequest(job_id=job_id), LONG_TIMEOUT_S).killed

    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        wire = [pb.ImageOnHosts(image=image, hostnames=hosts) for image, hosts in images.items()]
        answer = _call(self._stub().PrefetchImages, pb.PrefetchImagesRequest(images=wire), PREFETCH_TIMEOUT_S)
        return Prefetched(answer.asked, answer.possible)

    def step_daemon(self, job_id: JobId, after: int) -> DaemonStep:
        request = pb.StepDaemonRequest(job_id=job_id, after=after)
        return messages.daemon_step_from_wire(_call(self._stub().StepDaemon, request, LONG_TIMEOUT_S))

    def reach(self, shape: PodShape) -> DaemonReach:
        """Return on how many hosts of the cluster a daemon with such pods runs, and why not on the others."""
        (pod,) = messages.encode_wanted([(shape, 1)])
        answer = _call(self._stub().ReachOfDaemon, pb.ReachOfDaemonRequest(pod=pod), EVALUATION_TIMEOUT_S)
        return messages.reach_from_wire(answer)

    def plan_daemon(self, shape: PodShape) -> DaemonPlan:
        """Return the free resources that a daemon with such pods would find on the hosts now."""
        (pod,) = messages.encode_wanted([(shape, 1)])
        answer = _call(self._stub().PlanDaemon, pb.ReachOfDaemonRequest(pod=pod), CAPACITY_TIMEOUT_S)
        return capacity_messages.daemon_plan_from_wire(answer)

    # Maintenance.

    def cordon(self, hostname: str) -> HostMaintenance | None:
        return self._take_step(self._stub().CordonHost, hostname)

    def drain(self, hostname: str) -> HostMaintenance | None:
        return self._take_step(self._stub().DrainHost, hostname, LONG_TIMEOUT_S)

    def take_down(self, hostname: str) -> HostMaintenance | None:
        return self._take_step(self._stub().TakeHostDown, hostname, LONG_TIMEOUT_S)

    def relabel(self, hostname: str) -> HostMaintenance | None:
        return self._take_step(self._stub().RelabelHost, hostname)

    def bring_up(self, hostname: str) -> HostMaintenance | None:
        return self._take_step(self._stub().BringHostUp, hostname, LONG_TIMEOUT_S)

    @staticmethod
    def _take_step(
        step: Callable[..., pb.MaintenanceStepResponse], hostname: str, bound_s: float = CALL_TIMEOUT_S
    ) -> HostMaintenance | None:
        return decode_step(_call(step, pb.MaintenanceStepRequest(hostname=hostname), bound_s))

    def advance_rebalance(self) -> None:
        _call(self._stub().AdvanceRebalance, pb.AdvanceRebalanceRequest(), LONG_TIMEOUT_S)

    def steer(self, hostname: str, act: MaintenanceAct) -> None:
        stub = maintenance_pb2_grpc.MaintenanceServiceStub(self._channel())
        match act:
            case MaintenanceAct.COMPLETE:
                _call(stub.Complete, maintenance_pb2.CompleteRequest(hostnames=[hostname]))
            case MaintenanceAct.CANCEL:
                _call(stub.Cancel, maintenance_pb2.CancelRequest(hostnames=[hostname]))
            case MaintenanceAct.FORCE:
                _call(stub.Force, maintenance_pb2.ForceRequest(hostnames=[hostname]))

    def capacity(self) -> Capacity:
        answer = _call(self._stub().ClusterCapacity, pb.ClusterCapacityRequest())
        registered = answer.registered if answer.HasField("registered") else answer.capacity
        up, revocable, all_of_it = map(messages.resources_from_wire, (answer.capacity, answer.revocable, registered))
        return Capacity(up, revocable, all_of_it, tuple(map(messages.host_pool_from_wire, answer.host_pools)))

    def sums(self) -> ClusterSums:
        return messages.sums_from_wire(_call(self._stub().SumUpHosts, pb.SumUpHostsRequest()))

    def free(self) -> tuple[Resources, str]:
        """Return the free, unleased resources of the cluster, and its kind."""
        answer = _call(self._stub().ClusterCapacity, pb.ClusterCapacityRequest(with_free=True), FREE_TIMEOUT_S)
        return messages.resources_from_wire(answer.free), answer.kind

    def host_pool_totals(self, hosts_of: str = "") -> tuple[dict[str, HostPoolTotals], list[Hostname]]:
        """Return the free resources by host pool, and the hosts that take pods in the pool ``hosts_of``. Raises
        Unimplemented while host pools are disabled."""
        return messages.capacity_from_wire(
            _call(self._stub().HostPoolRooms, pb.HostPoolRoomsRequest(hosts_of=hosts_of))
        )

    def advice(self) -> tuple[dict[Hostname, Marked], dict[JobId, Marked]]:
        """Return the hosts and services that are marked orange or red."""
        request = advice_pb2.AdviceRequest(marks=[advice_pb2.MARK_ORANGE, advice_pb2.MARK_RED])
        stub = advice_pb2_grpc.AdviceServiceStub(self._channel())
        return messages.marks_from_wire(_call(stub.Advice, request, EVALUATION_TIMEOUT_S))

    def evaluate(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasible]:
        """Return the pods that no host of the cluster could take even if it were empty, with the reason."""
        request = pb.JudgePodsRequest(pods=messages.encode_wanted([(shape, 1) for shape in shapes]))
        answer = _call(self._stub().JudgePods, request, EVALUATION_TIMEOUT_S)
        return messages.infeasible_shapes_from_wire(answer.infeasible, shapes)

    def find_capacity(self, pods: Sequence[PlannedPods]) -> list[FoundCapacity]:
        """Return for how many of these planned pods the cluster has free resources now."""
        answer = _call(self._stub().FindRoom, capacity_messages.pods_to_wire(pods), CAPACITY_TIMEOUT_S)
        return capacity_messages.capacity_from_wire(answer)

    def _stub(self) -> hostmgr_pb2_grpc.HostsStub:
        return hostmgr_pb2_grpc.HostsStub(self._channel())


def _call(method: Callable[..., T], request: object, bound_s: float = CALL_TIMEOUT_S) -> T:
    return call_peer(NAME, method, request, bound_s)
