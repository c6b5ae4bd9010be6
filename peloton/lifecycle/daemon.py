"""Matching of a daemon's instances to the hosts of a cluster.

An instance is bound to one host. A host that returns keeps its instance; after ``KEPT_S`` of absence the instance is
given to a new host, so that instance numbers stay bounded when hosts are replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from peloton.model.daemon import DaemonStep, Neighbour, Seat
from peloton.model.ids import Hostname, PodId
from peloton.model.resources import Resources
from peloton.model.times import NS_PER_S

KEPT_S = 7 * 24 * 3600
"""Seconds for which the instance of an absent host is kept for it."""
FOLLOWED_MAX = 1_000
"""Maximum instances that one plan ends or starts again."""
FRESH_MAX = 5_000
"""Maximum instances that one plan creates, which costs far less."""


@dataclass(frozen=True, slots=True)
class FollowPlan:
    """Changes that match a daemon to its hosts. ``gone``: instances to end, whose host does not match any longer.
    ``back``: instances whose host matches again. ``taken``: instances of hosts absent for long, with their new hosts.
    ``fresh``: hosts that need new instances. ``more``: the bound was reached."""

    gone: tuple[int, ...] = ()
    back: tuple[int, ...] = ()
    taken: tuple[tuple[int, Hostname], ...] = ()
    fresh: tuple[Hostname, ...] = ()
    more: bool = False

    @property
    def count(self) -> int:
        return len(self.gone) + len(self.back) + len(self.taken) + len(self.fresh)


def follow_hosts(
    cluster: str,
    matching: Collection[Hostname],
    seats: Sequence[Seat],
    now_ns: int,
    limit: int = FOLLOWED_MAX,
    fresh_max: int = FRESH_MAX,
) -> FollowPlan:
    """Return the changes that match the daemon to ``matching``, its hosts in one cluster. ``seats`` are all of the
    daemon; seats in other clusters do not change. Endings come before starts, hosts in order of their names."""
    seat_of = {seat.hostname: seat for seat in seats}
    gone = [seat.instance_id for seat in seats if _is_to_end(seat, cluster, matching)]
    free = deque(seat.instance_id for seat in seats if _is_free(seat, now_ns) and seat.hostname not in matching)
    back: list[int] = []
    taken: list[tuple[int, Hostname]] = []
    fresh: list[Hostname] = []
    for hostname in sorted(matching):
        seat = seat_of.get(hostname)
        if seat is None and free:
            taken.append((free.popleft(), hostname))
        elif seat is None:
            fresh.append(hostname)
        elif seat.gone_ns:
            back.append(seat.instance_id)
    return _cut_to_bounds(FollowPlan(tuple(sorted(gone)), tuple(back), tuple(taken), tuple(fresh)), limit, fresh_max)


def _is_to_end(seat: Seat, cluster: str, matching: Collection[Hostname]) -> bool:
    """Return whether the host does not match, and the seat still says that it does or that its pod should run."""
    return seat.cluster == cluster and seat.hostname not in matching and (not seat.gone_ns or seat.is_wanted)


def _is_free(seat: Seat, now_ns: int) -> bool:
    return bool(seat.gone_ns) and not seat.is_wanted and seat.gone_ns + KEPT_S * NS_PER_S <= now_ns


def _cut_to_bounds(plan: FollowPlan, limit: int, fresh_max: int) -> FollowPlan:
    """Return the plan cut to its bounds; new instances are created only after all changes fit."""
    gone = plan.gone[:limit]
    back = plan.back[: limit - len(gone)]
    taken = plan.taken[: limit - len(gone) - len(back)]
    is_rest = len(gone) + len(back) + len(taken) == limit
    bounded = FollowPlan(gone, back, taken, () if is_rest else plan.fresh[:fresh_max])
    return replace(bounded, more=bounded.count < plan.count)


def join_steps(steps: Sequence[DaemonStep]) -> DaemonStep:
    """Return the steps of several clusters as one. The next step starts at the lowest ``after`` of steps with more
    work; instances examined twice are on their hosts, or wait there."""
    return DaemonStep(
        sum(step.changed_count for step in steps),
        sum(step.launched_count for step in steps),
        sum(step.waiting_count for step in steps),
        more=any(step.more for step in steps),
        after=min((step.after for step in steps if step.more), default=-1),
        why=tuple(reason for step in steps for reason in step.why),
    )


def choose_evictions(need: Resources, capacity: Resources, neighbours: Sequence[Neighbour]) -> tuple[PodId, ...]:
    """Return preemptible pods to evict from a host of this capacity so that a daemon's pod fits: the lowest priority
    first, then the youngest, and no more than needed. Empty if leaving pods free enough, or if evictions would not free
    enough."""
    staying = [pod for pod in neighbours if not pod.is_leaving]
    lacking = need - (capacity - sum((pod.holds for pod in staying), Resources()))
    if _is_enough(lacking):
        return ()
    chosen: list[Neighbour] = []
    for pod in sorted(staying, key=lambda pod: (pod.priority, -pod.started_ns, pod.pod_id)):
        if pod.may_leave and _is_useful(pod, lacking):
            chosen.append(pod)
            lacking = lacking - pod.holds
        if _is_enough(lacking):
            break
    if not _is_enough(lacking):
        return ()
    for pod in reversed(list(chosen)):  # the pod chosen last is the most valuable: keep it if possible
        if _is_enough(lacking + pod.holds):
            chosen.remove(pod)
            lacking = lacking + pod.holds
    return tuple(pod.pod_id for pod in chosen)


def _is_enough(lacking: Resources) -> bool:
    return all(amount <= 0 for amount in lacking)


def _is_useful(pod: Neighbour, lacking: Resources) -> bool:
    return any(held > 0 for held, amount in zip(pod.holds, lacking, strict=True) if amount > 0)
