"""Public services for hosts: the HostService of v0 and v1alpha, and the MaintenanceService, which is an addition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import grpc

from peloton.api.convert_overview import host_amounts
from peloton.api.convert_time import rfc3339
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.api.v0.maintenance import maintenance_pb2_grpc
from peloton.api.v0.peloton_pb2 import Label
from peloton.errors import InvalidArgument, PelotonError, Unimplemented
from peloton.lifecycle.reason_text import Names
from peloton.model.advice import Mark
from peloton.model.departure import HostDeparture
from peloton.model.host import Host, HostState
from peloton.model.host_pool import HostPool, Workload
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance, MaintenanceAct, MaintenanceRequest
from peloton.model.resources import Resources
from peloton.model.text import quote, shorten
from peloton.scheduling.departures import departures
from peloton.scheduling.qos import Use
from services.hostmgr.advisor import HostAdvisor
from services.hostmgr.host_pool_controller import HostPoolController
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.maintenance import MaintenanceController
from services.hostmgr.rebalancer import Rebalancer

Uses = Callable[[], Mapping[Hostname, Use]]
"""Measured use by host; hosts without measurements are absent."""
JobNames = Callable[[Iterable[str]], Names]
"""Names of jobs by id."""

NO_POOLS = "host pools not enabled"
HOSTS_PER_CALL_MAX = 1_000
REASON_MAX = 500
NUMBERS = {state: host_pb2.HostState.Value(f"HOST_STATE_{state}") for state in HostState}


class HostServiceServicer(host_svc_pb2_grpc.HostServiceServicer):
    """The v0 HostService. Without a ``controller`` host pools are disabled, and calls about them are UNIMPLEMENTED."""

    def __init__(
        self,
        cache: HostCache,
        maintenance: MaintenanceController,
        uses: Uses,
        deadline_s: int,
        advisor: HostAdvisor,
        controller: HostPoolController | None = None,
    ) -> None:
        self._cache = cache
        self._advisor = advisor
        self._maintenance = maintenance
        self._uses = uses
        self._deadline_s = deadline_s
        self._controller = controller

    def QueryHosts(
        self, request: host_svc_pb2.QueryHostsRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.QueryHostsResponse:
        wanted = set(request.host_states)
        uses = self._uses()
        cluster = self._maintenance.cluster
        names = _check_hostnames(request.hostnames) if request.hostnames else ()
        infos = [_host_info(host, uses.get(host.hostname), cluster) for host in self._cache.hosts(names)]
        marked = {one.hostname: one for one in self._advisor.host_marks({Mark.ORANGE, Mark.RED})}
        for info in infos:
            if one := marked.get(Hostname(info.hostname)):
                info.marked = f"{one.mark}: {one.reason}"
        return host_svc_pb2.QueryHostsResponse(host_infos=[i for i in infos if not wanted or i.state in wanted])

    def StartMaintenance(
        self, request: host_svc_pb2.StartMaintenanceRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.StartMaintenanceResponse:
        waiting_for: list[str] = []

        def start(hostname: str) -> None:
            wanted = MaintenanceRequest(Hostname(hostname), "", deadline_s=self._deadline_s)
            waiting_for.extend(
                host.progress.waiting_for for host in self._maintenance.request([wanted]) if host.waits_for_turn
            )

        _apply_to_each(request, start)
        return host_svc_pb2.StartMaintenanceResponse(hostname=request.hostname, waiting_for="; ".join(waiting_for))

    def CompleteMaintenance(
        self, request: host_svc_pb2.CompleteMaintenanceRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.CompleteMaintenanceResponse:
        _apply_to_each(request, lambda hostname: self._maintenance.steer([hostname], MaintenanceAct.COMPLETE))
        return host_svc_pb2.CompleteMaintenanceResponse(hostname=request.hostname)

    def ListHostPools(
        self, request: host_svc_pb2.ListHostPoolsRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.ListHostPoolsResponse:
        return host_svc_pb2.ListHostPoolsResponse(pools=[_pool_info(*one) for one in self._host_pools().all()])

    def CreateHostPool(
        self, request: host_svc_pb2.CreateHostPoolRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.CreateHostPoolResponse:
        pool = request.name, _workloads(request.serves), _percents(request.factors), request.minimum
        self._host_pools().create(*pool)
        return host_svc_pb2.CreateHostPoolResponse()

    def UpdateHostPool(
        self, request: host_svc_pb2.UpdateHostPoolRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.UpdateHostPoolResponse:
        if request.serves and not request.sets_serves:
            raise InvalidArgument(f"host pool {shorten(request.name)}: serves is given, and sets_serves is not set")
        serves = _workloads(request.serves) if request.sets_serves else None
        minimum = request.minimum if request.HasField("minimum") else None
        changed = self._host_pools().update(request.name, serves, _percents(request.factors), minimum)
        return host_svc_pb2.UpdateHostPoolResponse(pool=_pool_info(changed))

    def DeleteHostPool(
        self, request: host_svc_pb2.DeleteHostPoolRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.DeleteHostPoolResponse:
        self._host_pools().delete(request.name)
        return host_svc_pb2.DeleteHostPoolResponse()

    def ChangeHostPool(
        self, request: host_svc_pb2.ChangeHostPoolRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.ChangeHostPoolResponse:
        self._host_pools().change(request.hostname, request.sourcePool, request.destinationPool)
        return host_svc_pb2.ChangeHostPoolResponse()

    def MoveHosts(
        self, request: host_svc_pb2.MoveHostsRequest, context: grpc.ServicerContext
    ) -> host_svc_pb2.MoveHostsResponse:
        self._host_pools().resize(
            (request.sourcePool, request.srcPoolDesiredHosts), (request.destinationPool, request.destPoolDesiredHosts)
        )
        return host_svc_pb2.MoveHostsResponse()

    def _host_pools(self) -> HostPoolController:
        if self._controller is None:
            raise Unimplemented(NO_POOLS)
        return self._controller


def _pool_info(pool: HostPool, hosts: Sequence[Hostname] = ()) -> host_pb2.HostPoolInfo:
    cpu, memory, disk = (percent / 100 for percent in pool.factors)
    factors = host_pb2.HostPoolFactors(cpu=cpu, memory=memory, disk=disk)
    return host_pb2.HostPoolInfo(
        name=pool.name, hosts=hosts, serves=sorted(pool.serves), factors=factors, minimum=pool.minimum
    )


def _workloads(texts: Sequence[str]) -> frozenset[Workload]:
    known = [work.value for work in Workload if work]
    if unknown := sorted(set(texts) - set(known)):
        raise InvalidArgument(f"unknown workload {quote(unknown[0])}: want {', '.join(known)}")
    return frozenset(map(Workload, texts))


def _percents(factors: host_pb2.HostPoolFactors) -> dict[str, int]:
    """Return the factors that are set, as percentages: a factor has two decimal places."""
    given = {kind: getattr(factors, kind) for kind in ("cpu", "memory", "disk") if factors.HasField(kind)}
    if bad := [f"{kind}={factor}" for kind, factor in given.items() if not math.isfinite(factor)]:
        raise InvalidArgument(f"factor {bad[0]} is not a number")
    return {f"{kind}_percent": round(factor * 100) for kind, factor in given.items()}


def _apply_to_each(request: Any, act: Callable[[str], object]) -> None:
    """Apply ``act`` to the host of the call, or to each host of the deprecated list. One error names all failures."""
    if request.hostname:
        act(request.hostname)
        return
    hostnames = _check_hostnames(request.hostnames)
    errors: list[tuple[str, PelotonError]] = []
    for hostname in hostnames:
        try:
            act(hostname)
        except PelotonError as error:
            errors.append((hostname, error))
    if errors:
        first = type(errors[0][1])  # usually the type of all of them
        raise first("; ".join(e.message if name in e.message else f"{name}: {e.message}" for name, e in errors))


def _host_info(host: Host, use: Use | None, cluster: str) -> host_pb2.HostInfo:
    labels = [Label(key=key, value=value) for key, value in host.labels]
    info = host_pb2.HostInfo(
        hostname=host.hostname,
        ip=host.ip,
        state=NUMBERS[host.state],
        goal_state=NUMBERS[host.goal],
        labels=labels,
        slack_cpu=host.revocable.cpu_milli / 1000,
        slack_held_cpu=host.revocable_held.cpu_milli / 1000,
        cluster=cluster,
        avoided=host.avoided,
        reserved=host.reserved,
        current_pool=host.pool.current if host.pool else "",
        desired_pool=host.pool.desired if host.pool else "",
    )
    if any(host.capacity):  # the host is registered
        info.capacity.CopyFrom(host_amounts(host.capacity))
        info.free.CopyFrom(host_amounts(host.free))
    if use is not None:
        info.used.CopyFrom(host_amounts(Resources(use.cpu_milli, use.memory_mib)))
    return info


class MaintenanceServicer(maintenance_pb2_grpc.MaintenanceServiceServicer):
    """The MaintenanceService. Without a ``controller`` host pools are disabled, and moves are UNIMPLEMENTED."""

    def __init__(
        self,
        maintenance: MaintenanceController,
        deadline_s: int,
        rebalancer: Rebalancer,
        names: JobNames,
        controller: HostPoolController | None = None,
    ) -> None:
        self._maintenance = maintenance
        self._deadline_s = deadline_s
        self._rebalancer = rebalancer
        self._names = names
        self._controller = controller

    def Plan(self, request: pb.PlanRequest, context: grpc.ServicerContext) -> pb.PlanResponse:
        hosted_pods = self._maintenance.hosted_pods([Hostname(name) for name in _check_hostnames(request.hostnames)])
        found = departures(hosted_pods, *self._rebalancer.snapshot(hosted_pods.keys()))
        names = self._names(job.job_id for host in found for job in host.jobs)
        return pb.PlanResponse(hosts=[_departure(host, self._maintenance.cluster, names) for host in found])

    def Start(self, request: pb.StartRequest, context: grpc.ServicerContext) -> pb.StartResponse:
        if len(request.reason) > REASON_MAX:
            raise InvalidArgument(f"the reason has {len(request.reason)} characters, the limit is {REASON_MAX}")
        deadline_s = request.deadline_seconds if request.HasField("deadline_seconds") else self._deadline_s
        requests = [
            MaintenanceRequest(Hostname(name), "", request.at_most, deadline_s, request.reason)
            for name in _check_hostnames(request.hostnames)
        ]
        return pb.StartResponse(hosts=self._wire(self._maintenance.request(requests)))

    def Move(self, request: pb.MoveRequest, context: grpc.ServicerContext) -> pb.MoveResponse:
        if self._controller is None:
            raise Unimplemented(NO_POOLS)
        hostnames = _check_hostnames(request.hostnames)
        self._controller.move(hostnames, request.host_pool, request.at_most)
        moving = [host for host in self._maintenance.hosts() if host.is_move and host.hostname in hostnames]
        return pb.MoveResponse(hosts=self._wire(moving))

    def Complete(self, request: pb.CompleteRequest, context: grpc.ServicerContext) -> pb.CompleteResponse:
        hosts = self._maintenance.steer(_check_hostnames(request.hostnames), MaintenanceAct.COMPLETE)
        return pb.CompleteResponse(hosts=self._wire(hosts))

    def Cancel(self, request: pb.CancelRequest, context: grpc.ServicerContext) -> pb.CancelResponse:
        return pb.CancelResponse(
            hosts=self._wire(self._maintenance.steer(_check_hostnames(request.hostnames), MaintenanceAct.CANCEL))
        )

    def Force(self, request: pb.ForceRequest, context: grpc.ServicerContext) -> pb.ForceResponse:
        hosts = self._maintenance.steer(_check_hostnames(request.hostnames), MaintenanceAct.FORCE)
        return pb.ForceResponse(hosts=self._wire(hosts))

    def Query(self, request: pb.QueryRequest, context: grpc.ServicerContext) -> pb.QueryResponse:
        wanted = set(request.hostnames)
        hosts = [host for host in self._maintenance.hosts() if not wanted or host.hostname in wanted]
        unavailable_max, host_count = self._maintenance.unavailable_max(), self._maintenance.host_count()
        return pb.QueryResponse(hosts=self._wire(hosts), away_max=unavailable_max, host_count=host_count)

    def _wire(self, hosts: Sequence[HostMaintenance]) -> list[pb.HostMaintenance]:
        return _wire(hosts, self._names(one.job_id for host in hosts for one in host.progress.blockers))


def _check_hostnames(hostnames: Sequence[str]) -> list[str]:
    """Return the names without duplicates, in the order of the call. Raises InvalidArgument."""
    if not hostnames or not all(hostnames):
        raise InvalidArgument("no host is named" if not hostnames else "a hostname is empty")
    if len(hostnames) > HOSTS_PER_CALL_MAX:
        raise InvalidArgument(f"the call names {len(hostnames)} hosts, the limit is {HOSTS_PER_CALL_MAX}")
    return list(dict.fromkeys(hostnames))


def _departure(host: HostDeparture, cluster: str, names: Names) -> pb.HostDeparture:
    return pb.HostDeparture(
        hostname=host.hostname,
        cluster=cluster,
        leaving_count=host.leaving_count,
        unchecked_count=host.unchecked_count,
        jobs=[
            pb.JobDeparture(
                job_id=job.job_id,
                job_name=names.get(job.job_id, ""),
                departure=pb.Departure.Value(f"DEPARTURE_{job.departure}"),
                pod_count=job.pod_count,
                allowed_count=job.allowed_count,
                homeless_count=job.homeless_count,
            )
            for job in host.jobs
        ],
    )


def _wire(hosts: Sequence[HostMaintenance], names: Names) -> list[pb.HostMaintenance]:
    return [
        pb.HostMaintenance(
            hostname=host.hostname,
            state=NUMBERS[host.state],
            goal_state=NUMBERS[host.goal],
            ip=host.ip,
            at_most=host.at_most,
            deadline_seconds=host.deadline_s,
            forced=host.is_forced,
            reason=host.reason,
            requested_time=rfc3339(host.requested_ns),
            drain_time=rfc3339(host.drained_from_ns),
            changed_time=rfc3339(host.changed_ns),
            deadline=rfc3339(host.deadline_ns),
            pod_count=host.progress.pod_count,
            leaving_count=host.progress.leaving_count,
            blockers=[
                pb.Blocker(job_id=b.job_id, job_name=names.get(b.job_id, ""), pod_count=b.pod_count, reason=b.reason)
                for b in host.progress.blockers
            ],
            waiting_for=host.progress.waiting_for,
            cluster=host.cluster,
            to_pool=host.to_pool,
        )
        for host in hosts
    ]
