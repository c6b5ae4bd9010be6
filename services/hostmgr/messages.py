"""Conversion of the host manager's private messages to and from the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from peloton.api.convert_reason import (
    infeasible_from_wire,
    infeasible_to_wire,
    placement_from_wire,
    placement_to_wire,
    refusing_from_wire,
    refusing_to_wire,
)
from peloton.api.private import hostmgr_pb2 as pb
from peloton.api.private import reason_pb2
from peloton.api.v0.advice import advice_pb2
from peloton.model.advice import Mark, Marked
from peloton.model.daemon import DaemonReach, DaemonStep
from peloton.model.host import (
    POD_SLOTS_UNLIMITED,
    ClusterSums,
    Desired,
    HostLease,
    HostPoolCapacity,
    HostState,
    LaunchedBatch,
    LaunchResult,
    LeasedHost,
    PlacedPod,
    Placement,
    PlacementBatch,
    Unplaced,
)
from peloton.model.host_pool import HostPoolTotals, Workload
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import AllOf, AnyOf, Constraint, HostLabel, HostPreference, Label, PodLabel, PodShape, Strategy
from peloton.model.reason import Infeasible
from peloton.model.reservation import WaitingPod
from peloton.model.resources import Resources, to_extended
from services.hostmgr.domain_messages import domains_from_wire, domains_to_wire, layout_from_wire, layout_to_wire
from services.hostmgr.driver import CommandStart, Exchange

_Kind = pb.Constraint
_WORKLOADS = frozenset(Workload)
STRATEGIES = {strategy.value: strategy for strategy in Strategy}


def resources_to_wire(resources: Resources) -> pb.Resources:
    cpu, memory, disk, gpu = resources
    extended = dict(resources.extended) if resources.extended else None
    return pb.Resources(cpu_milli=cpu, memory_mib=memory, disk_mib=disk, gpu_milli=gpu, extended=extended)


def resources_from_wire(wire: pb.Resources) -> Resources:
    extended = to_extended(wire.extended) if wire.extended else ()
    return Resources(wire.cpu_milli, wire.memory_mib, wire.disk_mib, wire.gpu_milli, extended)


def sums_to_wire(sums: ClusterSums) -> pb.SumUpHostsResponse:
    return pb.SumUpHostsResponse(
        capacity=resources_to_wire(sums.capacity),
        registered=resources_to_wire(sums.registered),
        allocation=resources_to_wire(sums.allocation),
        slack_allocation_milli=sums.slack_allocation_milli,
        slack_milli=sums.slack_milli,
        use=resources_to_wire(sums.use),
        measured_hosts=sums.measured_count,
        hosts={state.value: count for state, count in sums.states.items()},
    )


def sums_from_wire(wire: pb.SumUpHostsResponse) -> ClusterSums:
    return ClusterSums(
        resources_from_wire(wire.capacity),
        resources_from_wire(wire.registered),
        resources_from_wire(wire.allocation),
        wire.slack_allocation_milli,
        slack_milli=wire.slack_milli,
        use=resources_from_wire(wire.use),
        measured_count=wire.measured_hosts,
        states={state: wire.hosts[state.value] for state in HostState},
    )


def host_pool_to_wire(pool: HostPoolCapacity) -> pb.HostPoolCapacity:
    return pb.HostPoolCapacity(
        name=pool.name,
        serves=sorted(pool.serves),
        capacity=resources_to_wire(pool.up),
        revocable_cpu_milli=pool.slack_cpu_milli,
    )


def host_pool_from_wire(wire: pb.HostPoolCapacity) -> HostPoolCapacity:
    serves = frozenset(filter(None, map(_workload, wire.serves)))
    return HostPoolCapacity(wire.name, serves, resources_from_wire(wire.capacity), wire.revocable_cpu_milli)


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


def encode_wanted(gangs: Iterable[tuple[PodShape, int]]) -> list[pb.Wanted]:
    return [
        pb.Wanted(
            resources=resources_to_wire(shape.resources),
            port_count=shape.port_count,
            revocable=shape.revocable,
            constraint=constraint_to_wire(shape.constraint) if shape.constraint else None,
            pod_count=count,
            spread=shape.strategy is Strategy.SPREAD_JOB,
            emptiest_first=shape.strategy is Strategy.EMPTIEST_HOST,
            workload=shape.workload,
            strategy=shape.strategy,
            volume_mib=shape.volume_mib,
            preferences=[
                pb.HostPreference(weight=each.weight, constraint=constraint_to_wire(each.constraint))
                for each in shape.preferences
            ],
            **layout_to_wire(shape.layout),
        )
        for shape, count in gangs
    ]


def _strategy(wanted: pb.Wanted) -> Strategy:
    if wanted.strategy in STRATEGIES:
        return STRATEGIES[wanted.strategy]
    if wanted.emptiest_first:
        return Strategy.EMPTIEST_HOST
    return Strategy.SPREAD_JOB if wanted.spread else Strategy.PACK_HOST


def _workload(text: str) -> Workload:
    """Return the workload; ANY for one of another version."""
    return Workload(text) if text in _WORKLOADS else Workload.ANY


def decode_wanted(wanted: Iterable[pb.Wanted]) -> list[tuple[PodShape, int]]:
    return [
        (
            PodShape(
                resources_from_wire(w.resources),
                w.port_count,
                w.revocable,
                strategy=_strategy(w),
                constraint=constraint_from_wire(w.constraint) if w.HasField("constraint") else None,
                volume_mib=w.volume_mib,
                workload=_workload(w.workload),
                layout=layout_from_wire(w),
                preferences=tuple(
                    HostPreference(each.weight, constraint_from_wire(each.constraint)) for each in w.preferences
                ),
            ),
            w.pod_count,
        )
        for w in wanted
    ]


def encode_desired(desired: Iterable[Desired], shapes: Sequence[PodShape]) -> list[pb.Desired]:
    return [
        pb.Desired(instance_id=d.instance_id, hostname=d.hostname, wanted_index=shapes.index(d.shape)) for d in desired
    ]


def decode_desired(desired: Iterable[pb.Desired], shapes: Sequence[PodShape]) -> list[Desired]:
    return [Desired(d.instance_id, Hostname(d.hostname), shapes[d.wanted_index]) for d in desired]


def waiting_to_wire(waiting: Iterable[WaitingPod], shapes: Sequence[PodShape]) -> list[pb.WaitingPod]:
    return [
        pb.WaitingPod(
            instance_id=pod.instance_id,
            wanted_index=shapes.index(pod.shape),
            waited_seconds=pod.waited_s,
            vain_count=pod.vain_count,
        )
        for pod in waiting
    ]


def waiting_from_wire(waiting: Iterable[pb.WaitingPod], shapes: Sequence[PodShape]) -> list[WaitingPod]:
    return [WaitingPod(w.instance_id, shapes[w.wanted_index], w.waited_seconds, w.vain_count) for w in waiting]


def lease_to_wire(lease: HostLease, shapes: Sequence[PodShape]) -> pb.AcquireHostsResponse:
    hosts = [
        pb.LeasedHost(
            hostname=h.hostname,
            free=resources_to_wire(h.free),
            revocable=resources_to_wire(h.revocable),
            ports=[pb.PortRange(begin=begin, end=end) for begin, end in h.ports],
            pod_labels=[pb.PodLabelCount(key=k, value=v, pod_count=count) for (k, v), count in h.pod_labels],
            capacity=resources_to_wire(h.capacity),
            shunned=h.is_deprioritized,
            pod_slots=h.pod_slots if h.pod_slots < POD_SLOTS_UNLIMITED else None,
            **_labels_to_wire(h.labels),
            cpu_beyond=h.load_beyond[0],
            memory_beyond=h.load_beyond[1],
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
        reserved_hosts=dict(lease.reserved),
        infeasible=infeasible_shapes_to_wire(lease.infeasible, shapes),
        domains=domains_to_wire(lease.domains, shapes),
    )


def _labels_to_wire(labels: Collection[Label]) -> dict[str, Any]:
    """Return the label fields of a leased host."""
    once = dict(labels)
    if len(once) == len(labels):
        return {"labels": once}
    values: dict[str, list[str]] = {}
    for key, value in labels:
        values.setdefault(key, []).append(value)
    repeated = {key: pb.LabelValues(values=found) for key, found in values.items() if len(found) > 1}
    return {"labels": {key: ",".join(found) for key, found in values.items()}, "repeated_labels": repeated}


def infeasible_shapes_to_wire(
    found: Mapping[PodShape, Infeasible], shapes: Sequence[PodShape]
) -> dict[int, reason_pb2.Infeasible]:
    """Return the reasons by index of the shape in the request."""
    return {at: infeasible_to_wire(found[shape]) for at, shape in enumerate(shapes) if shape in found} if found else {}


def infeasible_shapes_from_wire(
    wire: Mapping[int, reason_pb2.Infeasible], shapes: Sequence[PodShape]
) -> dict[PodShape, Infeasible]:
    return {shapes[at]: infeasible_from_wire(why) for at, why in sorted(wire.items())}


def _labels_from_wire(wire: pb.LeasedHost) -> tuple[Label, ...]:
    labels: Iterable[Label] = wire.labels.items()
    if wire.repeated_labels:
        repeated = {key: tuple(found.values) for key, found in wire.repeated_labels.items()}
        labels = [(key, one) for key, value in labels for one in repeated.get(key, (value,))]
    return tuple(sorted(labels))


def lease_from_wire(wire: pb.AcquireHostsResponse, shapes: Sequence[PodShape]) -> HostLease:
    """Return the lease. ``shapes`` are the ones of the request, in its order."""
    hosts = tuple(
        LeasedHost(
            Hostname(h.hostname),
            resources_from_wire(h.free),
            resources_from_wire(h.revocable),
            tuple((r.begin, r.end) for r in h.ports),
            labels=_labels_from_wire(h),
            pod_labels=tuple(((c.key, c.value), c.pod_count) for c in h.pod_labels),
            capacity=resources_from_wire(h.capacity),
            is_deprioritized=h.shunned,
            pod_slots=h.pod_slots if h.HasField("pod_slots") else POD_SLOTS_UNLIMITED,
            load_beyond=(h.cpu_beyond, h.memory_beyond),
        )
        for h in wire.hosts
    )
    awaited = tuple((instance, Hostname(host)) for instance, host in sorted(wire.awaited.items()))
    refused = {shapes[pods.wanted_index]: refusing_from_wire(pods.hosts) for pods in wire.refused}
    infeasible = infeasible_shapes_from_wire(wire.infeasible, shapes)
    domains = domains_from_wire(wire.domains, shapes)
    reserved = tuple((instance, Hostname(host)) for instance, host in sorted(wire.reserved_hosts.items()))
    return HostLease(wire.lease_id, hosts, refused, awaited, infeasible=infeasible, domains=domains, reserved=reserved)


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


def encode_launched_batch(result: LaunchedBatch) -> pb.PlaceAndLaunchResponse:
    launch, left = result
    return pb.PlaceAndLaunchResponse(
        launch=pb.LaunchResponse(
            launched=launch.launched_count, refused=launch.refused_count, failed=launch.failed_count
        ),
        unplaced_count=left.unplaced_count,
        why=placement_to_wire(left.why),
        unplaced=[
            pb.UnplacedPods(
                instances=one.instances, infeasible=infeasible_to_wire(*one.infeasible) if one.infeasible else None
            )
            for one in left.unplaced
        ],
        reserved=left.reserved,
    )


def decode_launched_batch(wire: pb.PlaceAndLaunchResponse, job_id: JobId) -> LaunchedBatch:
    unplaced = tuple(
        Unplaced(tuple(one.instances), (infeasible_from_wire(one.infeasible),) if one.HasField("infeasible") else ())
        for one in wire.unplaced
    )
    why, reserved = placement_from_wire(wire.why), tuple(wire.reserved)
    left = PlacementBatch(job_id, "", unplaced_count=wire.unplaced_count, why=why, unplaced=unplaced, reserved=reserved)
    return LaunchedBatch(launch_result_from_wire(wire.launch), left)


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


def daemon_step_to_wire(step: DaemonStep) -> pb.StepDaemonResponse:
    return pb.StepDaemonResponse(
        changed=step.changed_count,
        launched=step.launched_count,
        waiting=step.waiting_count,
        more=step.more,
        after=step.after,
        why=placement_to_wire(step.why),
    )


def daemon_step_from_wire(wire: pb.StepDaemonResponse) -> DaemonStep:
    counts = (wire.changed, wire.launched, wire.waiting)
    return DaemonStep(*counts, wire.more, wire.after, placement_from_wire(wire.why))


def reach_to_wire(reach: DaemonReach) -> pb.ReachOfDaemonResponse:
    return pb.ReachOfDaemonResponse(matching=reach.matching_count, refusing=refusing_to_wire(reach.refusing))


def reach_from_wire(wire: pb.ReachOfDaemonResponse) -> DaemonReach:
    return DaemonReach(wire.matching, refusing_from_wire(wire.refusing))


def capacity_to_wire(totals: Mapping[str, HostPoolTotals], hostnames: Iterable[Hostname]) -> pb.HostPoolRoomsResponse:
    wire = [
        pb.HostPoolRoomsResponse.Room(
            host_pool=name,
            host_count=of_pool.host_count,
            capacity=resources_to_wire(of_pool.capacity),
            used=resources_to_wire(of_pool.used),
        )
        for name, of_pool in totals.items()
    ]
    return pb.HostPoolRoomsResponse(rooms=wire, hostnames=hostnames)


def capacity_from_wire(wire: pb.HostPoolRoomsResponse) -> tuple[dict[str, HostPoolTotals], list[Hostname]]:
    totals = {
        one.host_pool: HostPoolTotals(one.host_count, resources_from_wire(one.capacity), resources_from_wire(one.used))
        for one in wire.rooms
    }
    return totals, list(map(Hostname, wire.hostnames))


def marks_from_wire(wire: advice_pb2.AdviceResponse) -> tuple[dict[Hostname, Marked], dict[JobId, Marked]]:
    def encode_marked(one: advice_pb2.HostMark | advice_pb2.ServiceMark) -> Marked:
        return Marked(Mark(advice_pb2.Mark.Name(one.mark).removeprefix("MARK_")), one.reason)

    hosts = {Hostname(one.hostname): encode_marked(one) for one in wire.hosts}
    return hosts, {JobId(one.job_id): encode_marked(one) for one in wire.services}
