"""Conversion of requests about free resources for planned pods, to and from the host manager's private messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peloton.api.convert_reason import refusing_from_wire, refusing_to_wire
from peloton.api.private import hostmgr_pb2 as pb
from peloton.model.daemon import DaemonPlan
from peloton.model.planned_capacity import FoundCapacity, PlannedPods
from services.hostmgr import messages


def pods_to_wire(pods: Sequence[PlannedPods]) -> pb.FindRoomRequest:
    wanted = messages.encode_wanted((each.shape, each.count) for each in pods)
    return pb.FindRoomRequest(
        pods=[
            pb.PlannedPods(
                wanted=one,
                labels=[pb.PodLabel(key=key, value=value) for key, value in each.labels],
                is_gang=each.is_gang,
                turn=each.turn,
            )
            for one, each in zip(wanted, pods, strict=True)
        ]
    )


def pods_from_wire(wire: Iterable[pb.PlannedPods]) -> list[PlannedPods]:
    found = []
    for one in wire:
        ((shape, count),) = messages.decode_wanted([one.wanted])
        labels = tuple((label.key, label.value) for label in one.labels)
        found.append(PlannedPods(shape, count, labels, one.is_gang, one.turn))
    return found


def capacity_to_wire(capacities: Iterable[FoundCapacity]) -> pb.FindRoomResponse:
    found = [
        pb.FoundRoom(pod_count=found_one.count, refusing=refusing_to_wire(found_one.refusing))
        for found_one in capacities
    ]
    return pb.FindRoomResponse(found=found)


def capacity_from_wire(wire: pb.FindRoomResponse) -> list[FoundCapacity]:
    return [FoundCapacity(found_one.pod_count, refusing_from_wire(found_one.refusing)) for found_one in wire.found]


def daemon_plan_to_wire(found_one: DaemonPlan) -> pb.PlanDaemonResponse:
    return pb.PlanDaemonResponse(
        reach=messages.reach_to_wire(found_one.reach),
        away=found_one.unavailable_count,
        free=found_one.free_count,
        evicting=found_one.evicting_count,
        evicted_pods=found_one.evicted_count,
        waiting=found_one.waiting_count,
        unchecked=found_one.unchecked_count,
        overhead=messages.resources_to_wire(found_one.overhead),
        capacity=messages.resources_to_wire(found_one.capacity),
    )


def daemon_plan_from_wire(wire: pb.PlanDaemonResponse) -> DaemonPlan:
    counts = wire.away, wire.free, wire.evicting, wire.evicted_pods, wire.waiting, wire.unchecked
    amounts = map(messages.resources_from_wire, (wire.overhead, wire.capacity))
    return DaemonPlan(messages.reach_from_wire(wire.reach), *counts, *amounts)
