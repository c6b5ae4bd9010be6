"""Conversion of the host manager's private messages to and from the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from peloton.api.convert_reason import (
    infeasible_from_wire,
    infeasible_to_wire,
    refusing_from_wire,
    refusing_to_wire,
)
from peloton.api.private import hostmgr_pb2 as pb
from peloton.api.private import reason_pb2
from peloton.model.host import (
    POD_SLOTS_UNLIMITED,
    Desired,
    HostLease,
    LaunchResult,
    LeasedHost,
    PlacedPod,
    Placement,
)
from peloton.model.ids import Hostname
from peloton.model.pod import AllOf, AnyOf, Constraint, HostLabel, PodLabel, PodShape, Strategy
from peloton.model.reason import Infeasible
from peloton.model.resources import Resources
from services.hostmgr.driver import CommandStart, Exchange

_Kind = pb.Constraint


def resources_to_wire(resources: Resources) -> pb.Resources:
    cpu, memory, disk, gpu = resources
    return pb.Resources(cpu_milli=cpu, memory_mib=memory, disk_mib=disk, gpu_milli=gpu)


def resources_from_wire(wire: pb.Resources) -> Resources:
    return Resources(wire.cpu_milli, wire.memory_mib, wire.disk_mib, wire.gpu_milli)


def constraint_to_wire(constraint: Constraint) -> pb.Constraint:
    match constraint:
        case HostLabel(key, value, condition, count):
            return pb.Constraint(kind=_Kind.HOST_LABEL, key=key, value=value, condition=condition, count=count)
        case PodLabel(key, value, condition, count):
            return pb.Constraint(kind=_Kind.POD_LABEL, key=key, value=value, condition=condition, count=count)
        case AllOf(parts):
            return pb.Constraint(kind=_Kind.ALL_OF, parts=[constraint_to_wire(part) for part in parts])
        case AnyOf(parts):
            return pb.Constraint(kind=_Kind.ANY_OF, parts=[constraint_to_wire(part) for part in parts])


def constraint_from_wire(wire: pb.Constraint) -> Constraint:
    if wire.kind == _Kind.HOST_LABEL:
        return HostLabel(wire.key, wire.value, wire.condition, wire.count)
    if wire.kind == _Kind.POD_LABEL:
        return PodLabel(wire.key, wire.value, wire.condition, wire.count)
    parts = tuple(constraint_from_wire(part) for part in wire.parts)
    return AllOf(parts) if wire.kind == _Kind.ALL_OF else AnyOf(parts)


def wanted_to_wire(gangs: Iterable[tuple[PodShape, int]]) -> list[pb.Wanted]:
    return [
        pb.Wanted(
            resources=resources_to_wire(shape.resources),
            port_count=shape.port_count,
            revocable=shape.revocable,
            constraint=constraint_to_wire(shape.constraint) if shape.constraint else None,
            pod_count=count,
            spread=shape.strategy is Strategy.SPREAD_JOB,
            emptiest_first=shape.strategy is Strategy.EMPTIEST_HOST,
        )
        for shape, count in gangs
    ]


def _strategy(wanted: pb.Wanted) -> Strategy:
    if wanted.emptiest_first:
        return Strategy.EMPTIEST_HOST
    return Strategy.SPREAD_JOB if wanted.spread else Strategy.PACK_HOST


def wanted_from_wire(wanted: Iterable[pb.Wanted]) -> list[tuple[PodShape, int]]:
    return [
        (
            PodShape(
                resources_from_wire(w.resources),
                w.port_count,
                w.revocable,
                strategy=_strategy(w),
                constraint=constraint_from_wire(w.constraint) if w.HasField("constraint") else None,
            ),
            w.pod_count,
        )
        for w in wanted
    ]


def desired_to_wire(desired: Iterable[Desired], shapes: Sequence[PodShape]) -> list[pb.Desired]:
    return [
        pb.Desired(instance_id=d.instance_id, hostname=d.hostname, wanted_index=shapes.index(d.shape)) for d in desired
    ]


def desired_from_wire(desired: Iterable[pb.Desired], shapes: Sequence[PodShape]) -> list[Desired]:
    return [Desired(d.instance_id, Hostname(d.hostname), shapes[d.wanted_index]) for d in desired]


def lease_to_wire(lease: HostLease, shapes: Sequence[PodShape]) -> pb.AcquireHostsResponse:
    hosts = [
        pb.LeasedHost(
            hostname=h.hostname,
            free=resources_to_wire(h.free),
            revocable=resources_to_wire(h.revocable),
            ports=[pb.PortRange(begin=begin, end=end) for begin, end in h.ports],
            labels=dict(h.labels),
            pod_labels=[pb.PodLabelCount(key=k, value=v, pod_count=count) for (k, v), count in h.pod_labels],
            capacity=resources_to_wire(h.capacity),
            shunned=h.is_shunned,
            pod_slots=h.pod_slots if h.pod_slots < POD_SLOTS_UNLIMITED else None,
        )
        for h in lease.hosts
    ]
    return pb.AcquireHostsResponse(
        lease_id=lease.lease_id,
        hosts=hosts,
        refused=[
            pb.RefusedPods(wanted_index=at, hosts=refusing_to_wire(lease.refused[shape]))
            for at, shape in enumerate(shapes)
            if shape in lease.refused
        ],
        awaited=dict(lease.awaited),
        infeasible=infeasible_shapes_to_wire(lease.infeasible, shapes),
    )


def infeasible_shapes_to_wire(
    found: Mapping[PodShape, Infeasible], shapes: Sequence[PodShape]
) -> dict[int, reason_pb2.Infeasible]:
    """By index of the shape in the request."""
    return {at: infeasible_to_wire(found[shape]) for at, shape in enumerate(shapes) if shape in found} if found else {}


def infeasible_shapes_from_wire(
    wire: Mapping[int, reason_pb2.Infeasible], shapes: Sequence[PodShape]
) -> dict[PodShape, Infeasible]:
    return {shapes[at]: infeasible_from_wire(why) for at, why in sorted(wire.items())}


def lease_from_wire(wire: pb.AcquireHostsResponse, shapes: Sequence[PodShape]) -> HostLease:
    """``shapes`` of the request, in its order."""
    hosts = tuple(
        LeasedHost(
            Hostname(h.hostname),
            resources_from_wire(h.free),
            resources_from_wire(h.revocable),
            tuple((r.begin, r.end) for r in h.ports),
            tuple(sorted(h.labels.items())),
            tuple(((c.key, c.value), c.pod_count) for c in h.pod_labels),
            resources_from_wire(h.capacity),
            h.shunned,
            h.pod_slots if h.HasField("pod_slots") else POD_SLOTS_UNLIMITED,
        )
        for h in wire.hosts
    )
    awaited = tuple((instance, Hostname(host)) for instance, host in sorted(wire.awaited.items()))
    refused = {shapes[pods.wanted_index]: refusing_from_wire(pods.hosts) for pods in wire.refused}
    infeasible = infeasible_shapes_from_wire(wire.infeasible, shapes)
    return HostLease(wire.lease_id, hosts, refused, awaited, infeasible)


def placements_to_wire(placements: Sequence[Placement]) -> list[pb.Placement]:
    return [
        pb.Placement(
            hostname=p.hostname,
            pods=[pb.PlacedPod(instance_id=d.instance_id, run_id=d.run_id, ports=d.ports) for d in p.pods],
        )
        for p in placements
    ]


def placements_from_wire(placements: Iterable[pb.Placement]) -> list[Placement]:
    return [
        Placement(Hostname(p.hostname), tuple(PlacedPod(d.instance_id, d.run_id, tuple(d.ports)) for d in p.pods))
        for p in placements
    ]


def launch_result_from_wire(wire: pb.LaunchResponse) -> LaunchResult:
    return LaunchResult(wire.launched, wire.refused, wire.failed)


def exchange_from_wire(wire: pb.ExchangeWithCommandRequest) -> Exchange:
    start = wire.start
    return Exchange(
        session=wire.session,
        number=wire.number,
        start=CommandStart(start.container, tuple(start.argv), start.has_input, start.has_terminal)
        if wire.HasField("start")
        else None,
        data=wire.data,
        ends_input=wire.ends_input,
        terminal=(wire.columns, wire.rows) if wire.columns and wire.rows else None,
        is_last=wire.is_last,
    )
