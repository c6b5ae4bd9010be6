"""Failed placements: admitted pods that return to their queue because no host was found, and their backoff."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from peloton.lifecycle.constraints import may_hold_in
from peloton.model.host import PlacementBatch, ReadyGang, Unplaced
from peloton.model.ranges import as_ranges
from peloton.model.reason import Infeasibility, RequeueReason, RequeueRule

REASONS_MAX = 3
"""Maximum number of reasons in one requeue of pods that no host could ever take."""
HALVINGS_MAX = 6
TIMEOUT_MIN_S = 10.0
"""Minimum timeout in seconds, enough for one or two placements on a busy machine."""
BACKOFF_STEP_S = 60
"""Backoff in seconds per failed attempt. An attempt is shorter, so other pods have time between attempts."""
BACKOFF_MAX_S = 3_600
"""Maximum backoff in seconds. With more attempts than fit into it, pods behind them wait longer, but every pod is still
tried."""


def backoff_min_s(turns: int) -> int:
    """Return the minimum backoff in seconds after a failed placement in a pool that its pods in backoff would fill
    ``turns`` times."""
    return min(BACKOFF_STEP_S * turns, BACKOFF_MAX_S)


def placement_timeout_s(placement_s: float, vain_count: int) -> float:
    """Return the seconds for which an admitted pod waits for a host after ``vain_count`` failed placements; each
    failure halves them. With a constant timeout two pods in turn, one admitted and one in backoff, would starve the
    pods behind them."""
    return min(placement_s, max(placement_s / (1 << min(vain_count, HALVINGS_MAX)), TIMEOUT_MIN_S))


@dataclass(frozen=True, slots=True)
class FailedPlacements:
    """Pods to requeue; ``instances``: ``(start, count)``, sorted."""

    instances: tuple[tuple[int, int], ...] = ()
    reason: RequeueReason = RequeueReason()  # noqa: RUF009 - frozen


def find_failed_placements(
    gangs: Sequence[ReadyGang], batch: PlacementBatch, placement_s: float, turns: int = 0
) -> FailedPlacements:
    """Return the pods outside gangs to requeue: at once if no host could take them even if empty, otherwise after their
    timeout. ``turns``: number of times that the pods in backoff would fill their pool; more turns shorten the timeout.
    """
    singles = {gang.pods[0][0]: gang for gang in gangs if len(gang.pods) == 1}
    chosen: list[int] = []
    reasons: dict[Infeasibility, None] = {}
    waited_s: list[float] = []
    for left in batch.unplaced:
        for gang in (singles[i] for i in left.instances if i in singles):
            timeout_s = placement_timeout_s(placement_s, gang.vain_count + turns)
            if left.infeasible:
                reasons[left.infeasible] = None
            elif gang.waited_s >= timeout_s:
                waited_s.append(timeout_s)
            else:
                continue
            chosen.append(gang.pods[0][0])
    if not chosen:
        return FailedPlacements()
    named, more = tuple(reasons)[:REASONS_MAX], max(len(reasons) - REASONS_MAX, 0)
    reason = RequeueReason(RequeueRule.FITS_NO_HOST, infeasible=named, more_count=more)
    if waited_s:
        reason = replace(reason, rule=RequeueRule.NO_HOST_IN_TIME, seconds=min(waited_s), placement=batch.why)
    return FailedPlacements(tuple(as_ranges(sorted(chosen))), reason)


def find_unplaced(
    gangs: Sequence[ReadyGang], tried: Mapping[str, PlacementBatch], silent: Collection[str]
) -> tuple[Unplaced, ...]:
    """Return the pods that found no host in any of the tried clusters. A pod is infeasible only if no host of these
    clusters could take it, and clusters in ``silent`` are excluded by its constraint. Pods with a reserved host in a
    cluster continue to wait."""
    constraints = {gang.pods[0][0]: gang.shape.constraint for gang in gangs}
    reserved = {instance for batch in tried.values() for instance in batch.reserved}
    found: dict[int, dict[str, Infeasibility]] = {}
    for cluster, batch in tried.items():
        for left in batch.unplaced:
            for instance in set(left.instances) - reserved:
                found.setdefault(instance, {})[cluster] = left.infeasible
    alike: dict[Infeasibility, list[int]] = {}
    for instance, by_cluster in sorted(found.items()):
        is_complete = not any(may_hold_in(constraints[instance], cluster) for cluster in silent)
        alike.setdefault(_join_reasons(by_cluster) if is_complete else (), []).append(instance)
    return tuple(Unplaced(tuple(instances), infeasible) for infeasible, instances in alike.items())


def _join_reasons(by_cluster: Mapping[str, Infeasibility]) -> Infeasibility:
    """Return the reasons of all clusters, or empty if a host of one of them could take the pods."""
    if not all(by_cluster.values()):
        return ()
    return tuple(why.within(cluster) for cluster, each in sorted(by_cluster.items()) for why in each)
