"""Which admitted pods give back what they were given, because no host was found for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from peloton.lifecycle.constraints import may_hold_in
from peloton.model.host import PlacementBatch, ReadyGang, Unplaced

REASONS_MAX = 3
"""Different reasons that are told together."""


@dataclass(frozen=True, slots=True)
class InVain:
    """``instances``: ``(start, count)`` by start."""

    instances: tuple[tuple[int, int], ...] = ()
    reason: str = ""


def in_vain(gangs: Sequence[ReadyGang], batch: PlacementBatch, placement_s: float) -> InVain:
    """Of pods that stand alone and found no host: those that no host could take even if it were empty, at once, and
    those that were admitted ``placement_s`` ago. For the others hosts may become free in time."""
    waited_s = {gang.pods[0][0]: gang.waited_s for gang in gangs if len(gang.pods) == 1}
    chosen: list[int] = []
    reasons: dict[str, None] = {}
    for left in batch.unplaced:
        mine = [i for i in left.instances if i in waited_s and (left.unfit or waited_s[i] >= placement_s)]
        if mine:
            chosen += mine
            reasons[left.unfit or f"no host found in {placement_s:g} s: {batch.reason}"] = None
    more = len(reasons) - REASONS_MAX
    told = "; ".join([*reasons][:REASONS_MAX]) + (f"; and {more} more reasons" if more > 0 else "")
    return InVain(_ranges(sorted(chosen)), told)


def unplaced_in_all(
    gangs: Sequence[ReadyGang], tried: Mapping[str, PlacementBatch], unheard: Collection[str]
) -> tuple[Unplaced, ...]:
    """Pods that found no host in any of the clusters in which they were tried. No host could take them when none of a
    cluster that was tried could, and they may not go to those that were not heard."""
    constraints = {gang.pods[0][0]: gang.shape.constraint for gang in gangs}
    found: dict[int, dict[str, str]] = {}
    for cluster, batch in tried.items():
        for left in batch.unplaced:
            for instance in left.instances:
                found.setdefault(instance, {})[cluster] = left.unfit
    alike: dict[str, list[int]] = {}
    for instance, unfit in sorted(found.items()):
        is_heard = not any(may_hold_in(constraints[instance], cluster) for cluster in unheard)
        alike.setdefault(_joined(unfit) if is_heard else "", []).append(instance)
    return tuple(Unplaced(tuple(instances), unfit) for unfit, instances in alike.items())


def _joined(unfit: Mapping[str, str]) -> str:
    """By cluster; empty when a host of one of them could do."""
    if not all(unfit.values()):
        return ""
    return "; ".join(f"cluster {cluster}: {why}" for cluster, why in sorted(unfit.items()))


def _ranges(instances: Sequence[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for instance in instances:
        if found and sum(found[-1]) == instance:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((instance, 1))
    return tuple(found)
