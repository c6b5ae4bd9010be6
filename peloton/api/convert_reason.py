"""Conversion of reasons between the model and the private messages of roles."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.api.private import reason_pb2 as pb
from peloton.model.reason import (
    ClusterReason,
    ClusterRule,
    HostRule,
    Infeasible,
    Misfit,
    NoHost,
    PlacementReason,
    QosReason,
    QosRule,
    RefusingHosts,
    RequeueReason,
    RequeueRule,
)
from peloton.model.resources import Resources


def refusing_to_wire(hosts: Iterable[RefusingHosts]) -> list[pb.RefusingHosts]:
    return [
        pb.RefusingHosts(
            host_count=one.host_count,
            rule=one.misfit.rule,
            kind=one.misfit.kind,
            wanted=one.misfit.wanted,
            left=one.misfit.left,
            bound=one.misfit.bound,
            name=one.misfit.name,
        )
        for one in hosts
    ]


def refusing_from_wire(hosts: Iterable[pb.RefusingHosts]) -> tuple[RefusingHosts, ...]:
    return tuple(
        RefusingHosts(w.host_count, Misfit(HostRule(w.rule), w.kind, w.wanted, w.left, w.bound, w.name)) for w in hosts
    )


def infeasible_to_wire(one: Infeasible) -> pb.Infeasible:
    return pb.Infeasible(
        cluster=one.cluster,
        host_count=one.host_count,
        meeting_count=one.meeting_count,
        allowed_count=one.allowed_count,
        constraint=one.constraint,
        wanted=_amounts_to_wire(one.wanted),
        largest=_amounts_to_wire(one.largest),
        served_count=one.served_count,
        workload=one.workload,
    )


def infeasible_from_wire(wire: pb.Infeasible) -> Infeasible:
    return Infeasible(
        wire.cluster,
        wire.host_count,
        wire.meeting_count,
        wire.allowed_count,
        wire.constraint,
        _amounts_from_wire(wire.wanted),
        _amounts_from_wire(wire.largest),
        wire.served_count,
        wire.workload,
    )


def placement_to_wire(reason: PlacementReason) -> list[pb.ClusterReason]:
    return [
        pb.ClusterReason(
            cluster=one.cluster,
            rule=one.rule,
            pods=[
                pb.NoHost(pod_count=pods.pod_count, is_gang=pods.is_gang, hosts=refusing_to_wire(pods.hosts))
                for pods in one.pods
            ],
            more_count=one.more_count,
            detail=one.detail,
        )
        for one in reason
    ]


def placement_from_wire(wire: Iterable[pb.ClusterReason]) -> PlacementReason:
    return tuple(
        ClusterReason(
            one.cluster,
            ClusterRule(one.rule),
            tuple(NoHost(pods.pod_count, pods.is_gang, refusing_from_wire(pods.hosts)) for pods in one.pods),
            one.more_count,
            one.detail,
        )
        for one in wire
    )


def requeue_to_wire(reason: RequeueReason) -> pb.RequeueReason:
    return pb.RequeueReason(
        rule=reason.rule,
        count=reason.count,
        gang_size=reason.gang_size,
        seconds=reason.seconds,
        infeasible=[pb.Infeasibility(clusters=map(infeasible_to_wire, clusters)) for clusters in reason.infeasible],
        placement=placement_to_wire(reason.placement),
        more_count=reason.more_count,
    )


def requeue_from_wire(wire: pb.RequeueReason) -> RequeueReason:
    return RequeueReason(
        RequeueRule(wire.rule),
        wire.count,
        wire.gang_size,
        wire.seconds,
        tuple(tuple(map(infeasible_from_wire, one.clusters)) for one in wire.infeasible),
        placement_from_wire(wire.placement),
        wire.more_count,
    )


def qos_to_wire(reason: QosReason) -> pb.QosReason:
    return pb.QosReason(
        rule=reason.rule, hostname=reason.hostname, used=reason.used, total=reason.total, bound=reason.bound
    )


def qos_from_wire(wire: pb.QosReason) -> QosReason:
    return QosReason(QosRule(wire.rule), wire.hostname, wire.used, wire.total, wire.bound)


def _amounts_to_wire(amounts: Resources) -> pb.Amounts:
    return pb.Amounts(
        cpu_milli=amounts.cpu_milli,
        memory_mib=amounts.memory_mib,
        disk_mib=amounts.disk_mib,
        gpu_milli=amounts.gpu_milli,
    )


def _amounts_from_wire(wire: pb.Amounts) -> Resources:
    return Resources(wire.cpu_milli, wire.memory_mib, wire.disk_mib, wire.gpu_milli)
