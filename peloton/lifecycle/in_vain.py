"""Which admitted pods go back to their queue because no host was found for them, and how soon."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from peloton.lifecycle.constraints import may_hold_in
from peloton.model.host import PlacementBatch, ReadyGang, Unplaced
from peloton.model.reason import Infeasibility, RequeueReason, RequeueRule

SORTS_MAX = 3
"""Reasons why no host could ever take a pod that one requeue names."""
HALVINGS_MAX = 6
PATIENCE_MIN_S = 10.0
"""Enough for a placement or two on a busy machine."""
TRY_S = 60
"""A try in vain ends up shorter than this, so a hold of so long per try leaves time to other pods."""
HOLD_MAX_S = 3_600
"""With more tries than fit, those behind them wait longer, but what may find a host one day is still tried."""


def least_hold_s(turns: int) -> int:
    """The shortest hold after a try in vain, in a pool that its held-back pods would fill ``turns`` times."""
    return min(TRY_S * turns, HOLD_MAX_S)


def patience_s(placement_s: float, vain_count: int) -> float:
    """How long pods that found no host ``vain_count`` times wait for one once admitted: half as long each time.
    Otherwise two pods that take turns, one tried and one held back, would leave nothing to those behind them."""
    return min(placement_s, max(placement_s / (1 << min(vain_count, HALVINGS_MAX)), PATIENCE_MIN_S))


@dataclass(frozen=True, slots=True)
class InVain:
    """``instances``: ``(start, count)`` by start."""

    instances: tuple[tuple[int, int], ...] = ()
    reason: RequeueReason = RequeueReason()  # noqa: RUF009 - frozen


def in_vain(gangs: Sequence[ReadyGang], batch: PlacementBatch, placement_s: float, turns: int = 0) -> InVain:
    """Of pods that stand alone and found no host: those that no host could take even if it were empty, at once, and
    those whose patience is over. The others wait on for a host. ``turns``: how often the held-back pods of their pool
    would fill it; the more, the shorter are the tries."""
    alone = {gang.pods[0][0]: gang for gang in gangs if len(gang.pods) == 1}
    chosen: list[int] = []
    sorts: dict[Infeasibility, None] = {}
    waited_s: list[float] = []
    for left in batch.unplaced:
        for gang in (alone[i] for i in left.instances if i in alone):
            patience = patience_s(placement_s, gang.vain_count + turns)
            if left.infeasible:
                sorts[left.infeasible] = None
            elif gang.waited_s >= patience:
                waited_s.append(patience)
            else:
                continue
            chosen.append(gang.pods[0][0])
    if not chosen:
        return InVain()
    named, more = tuple(sorts)[:SORTS_MAX], max(len(sorts) - SORTS_MAX, 0)
    reason = RequeueReason(RequeueRule.FITS_NO_HOST, infeasible=named, more_count=more)
    if waited_s:
        reason = replace(reason, rule=RequeueRule.NO_HOST_IN_TIME, seconds=min(waited_s), placement=batch.why)
    return InVain(_ranges(sorted(chosen)), reason)


def unplaced_in_all(
    gangs: Sequence[ReadyGang], tried: Mapping[str, PlacementBatch], unheard: Collection[str]
) -> tuple[Unplaced, ...]:
    """Pods that found no host in any of the clusters in which they were tried. No host could take them when none of a
    cluster that was tried could, and they may not go to those that were not heard. Those for which a host is reserved
    in one of them wait on."""
    constraints = {gang.pods[0][0]: gang.shape.constraint for gang in gangs}
    reserved = {instance for batch in tried.values() for instance in batch.reserved}
    found: dict[int, dict[str, Infeasibility]] = {}
    for cluster, batch in tried.items():
        for left in batch.unplaced:
            for instance in set(left.instances) - reserved:
                found.setdefault(instance, {})[cluster] = left.infeasible
    alike: dict[Infeasibility, list[int]] = {}
    for instance, by_cluster in sorted(found.items()):
        is_heard = not any(may_hold_in(constraints[instance], cluster) for cluster in unheard)
        alike.setdefault(_joined(by_cluster) if is_heard else (), []).append(instance)
    return tuple(Unplaced(tuple(instances), infeasible) for infeasible, instances in alike.items())


def _joined(by_cluster: Mapping[str, Infeasibility]) -> Infeasibility:
    """Empty when a host of one of them could do."""
    if not all(by_cluster.values()):
        return ()
    return tuple(why.within(cluster) for cluster, each in sorted(by_cluster.items()) for why in each)


def _ranges(instances: Sequence[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for instance in instances:
        if found and sum(found[-1]) == instance:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((instance, 1))
    return tuple(found)
