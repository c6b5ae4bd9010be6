"""Which instances of a daemon come and go with the hosts of a cluster.

An instance belongs to one host. A host that comes back finds its instance; one that has been gone for ``KEPT_S`` gives
its instance to a new host, so that numbers stay bounded however often hosts are replaced.
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
"""How long the instance of a host that is gone is kept for it."""
FOLLOWED_MAX = 1_000
"""Instances that one plan ends, or has begin again."""
FRESH_MAX = 5_000
"""Instances that one plan creates, which costs far less."""


@dataclass(frozen=True, slots=True)
class FollowPlan:
    """``gone``: instances whose host does not match any more; they end. ``back``: instances whose host matches again.
    ``taken``: instances of hosts that are long gone, with their new hosts. ``fresh``: hosts that get new instances.
    ``more``: the bound was reached."""

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
    """``matching``: the hosts of one cluster on which the daemon is to run; ``seats``: all of the daemon, also those of
    hosts of other clusters, which stay as they are. What ends comes before what begins, hosts in order of their names.
    """
    seat_of = {seat.hostname: seat for seat in seats}
    gone = [seat.instance_id for seat in seats if _is_left(seat, cluster, matching)]
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
    return _bounded(FollowPlan(tuple(sorted(gone)), tuple(back), tuple(taken), tuple(fresh)), limit, fresh_max)


def _is_left(seat: Seat, cluster: str, matching: Collection[Hostname]) -> bool:
    """Its host does not match, and that is not known yet, or a start of the whole job has forgotten it."""
    return seat.cluster == cluster and seat.hostname not in matching and (not seat.gone_ns or seat.is_wanted)


def _is_free(seat: Seat, now_ns: int) -> bool:
    return bool(seat.gone_ns) and not seat.is_wanted and seat.gone_ns + KEPT_S * NS_PER_S <= now_ns


def _bounded(plan: FollowPlan, limit: int, fresh_max: int) -> FollowPlan:
    """As a whole only if it is within both bounds; else what is changed comes before what is created."""
    gone = plan.gone[:limit]
    back = plan.back[: limit - len(gone)]
    taken = plan.taken[: limit - len(gone) - len(back)]
    is_rest = len(gone) + len(back) + len(taken) == limit
    bounded = FollowPlan(gone, back, taken, () if is_rest else plan.fresh[:fresh_max])
    return replace(bounded, more=bounded.count < plan.count)


def joined(steps: Sequence[DaemonStep]) -> DaemonStep:
    """Steps in several clusters as one. The next one begins where the first of those that want more does: instances
    that it looks at twice are on their hosts, or wait there."""
    return DaemonStep(
        sum(step.changed_count for step in steps),
        sum(step.launched_count for step in steps),
        sum(step.waiting_count for step in steps),
        more=any(step.more for step in steps),
        after=min((step.after for step in steps if step.more), default=-1),
        why=tuple(reason for step in steps for reason in step.why),
    )


def make_room(need: Resources, capacity: Resources, neighbours: Sequence[Neighbour]) -> tuple[PodId, ...]:
    """Preemptible pods that leave a host of this capacity so that a daemon's pod fits: those of the lowest priority
    first, of these the youngest, and no more than needed. None when there is room once those have ended that leave
    already, or when there would not be enough."""
    staying = [pod for pod in neighbours if not pod.is_leaving]
    lacking = need - (capacity - sum((pod.holds for pod in staying), Resources()))
    if _is_enough(lacking):
        return ()
    chosen: list[Neighbour] = []
    for pod in sorted(staying, key=lambda pod: (pod.priority, -pod.started_ns, pod.pod_id)):
        if pod.may_leave and _helps(pod, lacking):
            chosen.append(pod)
            lacking = lacking - pod.holds
        if _is_enough(lacking):
            break
    if not _is_enough(lacking):
        return ()
    for pod in reversed(list(chosen)):  # of those that turn out to be of no use the last one is missed most
        if _is_enough(lacking + pod.holds):
            chosen.remove(pod)
            lacking = lacking + pod.holds
    return tuple(pod.pod_id for pod in chosen)


def _is_enough(lacking: Resources) -> bool:
    return all(amount <= 0 for amount in lacking)


def _helps(pod: Neighbour, lacking: Resources) -> bool:
    return any(held > 0 for held, amount in zip(pod.holds, lacking, strict=True) if amount > 0)
