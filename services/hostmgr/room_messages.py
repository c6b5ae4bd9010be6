"""Conversion of requests about free resources for planned pods, to and from the host manager's private messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peloton.api.convert_reason import refusing_from_wire, refusing_to_wire
from peloton.api.private import hostmgr_pb2 as pb
from peloton.model.daemon import DaemonRoom
from peloton.model.room import FoundRoom, PlannedPods
from services.hostmgr import messages


def pods_to_wire(pods: Sequence[PlannedPods]) -> pb.FindRoomRequest:
    wanted = messages.wanted_to_wire((each.shape, each.count) for each in pods)
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
        ((shape, count),) = messages.wanted_from_wire([one.wanted])
        labels = tuple((label.key, label.value) for label in one.labels)
        found.append(PlannedPods(shape, count, labels, one.is_gang, one.turn))
    return found


def rooms_to_wire(rooms: Iterable[FoundRoom]) -> pb.FindRoomResponse:
    found = [pb.FoundRoom(pod_count=room.count, refusing=refusing_to_wire(room.refusing)) for room in rooms]
    return pb.FindRoomResponse(found=found)


def rooms_from_wire(wire: pb.FindRoomResponse) -> list[FoundRoom]:
    return [FoundRoom(room.pod_count, refusing_from_wire(room.refusing)) for room in wire.found]


def daemon_room_to_wire(room: DaemonRoom) -> pb.PlanDaemonResponse:
    return pb.PlanDaemonResponse(
        reach=messages.reach_to_wire(room.reach),
        away=room.away_count,
        free=room.free_count,
        evicting=room.evicting_count,
        evicted_pods=room.evicted_count,
        waiting=room.waiting_count,
        unchecked=room.unchecked_count,
        overhead=messages.resources_to_wire(room.overhead),
        capacity=messages.resources_to_wire(room.capacity),
    )


def daemon_room_from_wire(wire: pb.PlanDaemonResponse) -> DaemonRoom:
    counts = wire.away, wire.free, wire.evicting, wire.evicted_pods, wire.waiting, wire.unchecked
    amounts = map(messages.resources_from_wire, (wire.overhead, wire.capacity))
    return DaemonRoom(messages.reach_from_wire(wire.reach), *counts, *amounts)
