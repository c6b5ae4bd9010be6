"""Room on hosts for pods that are only planned: what is asked of hosts, and what they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peloton.model.pod import Label, PodShape
from peloton.model.reason import ClusterReason, NoHost, PlacementReason, RefusingHosts


@dataclass(frozen=True, slots=True)
class PlannedPods:
    """Like pods of one job, or its gang, which is placed whole or not at all. ``labels``: those that constraints of the
    job's pods name. Pods of a lower ``turn`` are placed before."""

    shape: PodShape
    count: int
    labels: tuple[Label, ...] = ()
    is_gang: bool = False
    turn: int = 0


@dataclass(frozen=True, slots=True)
class FoundRoom:
    """So many of the pods would find a host now. ``refusing``: the hosts by the first rule that keeps one more of them
    off, if that is not all."""

    count: int
    refusing: tuple[RefusingHosts, ...] = ()


@dataclass(frozen=True, slots=True)
class RoomAnswer:
    """``counts``: of each of the pods that were asked about, those that would find a host now, of any cluster. ``why``:
    by cluster, of pods of the first turn that would not, and of clusters that did not answer."""

    counts: tuple[int, ...]
    why: PlacementReason = ()


EXPLAINED_MAX = 3
"""Sorts of pods for which the rules of the hosts are given; the others are counted."""


def no_room(cluster: str, pods: Sequence[PlannedPods], rooms: Sequence[FoundRoom]) -> PlacementReason:
    """Why not all of those that take the first of all turns would find a host of the cluster; empty: they would."""
    short = [
        NoHost(each.count - room.count, each.is_gang, room.refusing)
        for each, room in zip(pods, rooms, strict=True)
        if not each.turn and room.count < each.count
    ]
    more = max(len(short) - EXPLAINED_MAX, 0)
    return (ClusterReason(cluster, pods=tuple(short[:EXPLAINED_MAX]), more_count=more),) if short else ()
