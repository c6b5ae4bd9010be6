"""Free resources of hosts for planned pods: the request, and the answer of each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peloton.model.pod import Label, PodShape
from peloton.model.reason import ClusterReason, NoHost, PlacementReason, RefusingHosts


@dataclass(frozen=True, slots=True)
class PlannedPods:
    """Pods of one shape of a job, or its gang, which is placed as a whole or not at all. ``labels``: pod labels that
    the job's constraints name. Pods of a lower ``turn`` are placed first."""

    shape: PodShape
    count: int
    labels: tuple[Label, ...] = ()
    is_gang: bool = False
    turn: int = 0


@dataclass(frozen=True, slots=True)
class FoundCapacity:
    """Number of pods that would find a host now. ``refusing``: if some would not, the hosts by the first rule that
    refuses one more pod."""

    count: int
    refusing: tuple[RefusingHosts, ...] = ()


@dataclass(frozen=True, slots=True)
class CapacityAnswer:
    """Answer of all clusters. ``counts``: for each of the requested pods, the number that would find a host now.
    ``why``: reasons by cluster for pods of the first turn without a host, and for clusters that did not answer."""

    counts: tuple[int, ...]
    why: PlacementReason = ()


EXPLAINED_MAX = 3
"""Maximum pod shapes that are explained by the rules of hosts; further ones are counted."""


def lacking_capacity(cluster: str, pods: Sequence[PlannedPods], capacities: Sequence[FoundCapacity]) -> PlacementReason:
    """Return why not all pods of the first turn would find a host of the cluster; empty if all would."""
    short = [
        NoHost(each.count - capacity.count, each.is_gang, capacity.refusing)
        for each, capacity in zip(pods, capacities, strict=True)
        if not each.turn and capacity.count < each.count
    ]
    more = max(len(short) - EXPLAINED_MAX, 0)
    return (ClusterReason(cluster, pods=tuple(short[:EXPLAINED_MAX]), more_count=more),) if short else ()
