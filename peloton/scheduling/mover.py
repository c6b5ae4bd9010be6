"""Decision on how many hosts move between host pools, as the load of a host pool rises and falls.

A taker receives hosts after it has been hot for some time: its hosts are loaded above a bound, too many of them are
marked, or its pods wait for hosts. It returns them after it has been below its target without them for a longer time,
which doubles each time that it had to take hosts again too early. The target is below the bound for taking, so that no
hosts move at a constant load.

Any host pool also takes hosts while it has fewer than its minimum; givers take hosts for no other reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from peloton.model.mover import Made, MoverRule
from peloton.model.times import NS_PER_S

HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class MoverPolicy:
    high_percent: int = 80  # percent of its hosts in use above which a host pool is hot
    target_percent: int = 65  # percent in use to which hosts are added, and below which they are given back
    hot_share_percent: int = 30  # percent of its hosts marked orange or red above which a host pool is hot
    take_after_s: float = 60.0  # seconds for which it must be hot
    take_after_red_s: float = 15.0  # the same while a host is red, or pods wait
    return_after_s: float = 900.0  # seconds for which hosts must be spare, at first
    return_after_max_s: float = 14_400.0
    settle_s: float = 120.0  # seconds after a move until the next one is decided
    hosts_at_a_time: int = 5
    hosts_per_hour: int = 30


@dataclass(frozen=True, slots=True)
class HostPoolLoad:
    """The load of a host pool. ``used`` and ``host_size`` have one unit, that of the scarcest kind of resource."""

    name: str
    host_count: int  # desired number of hosts
    minimum: int  # hosts that it always keeps
    used: int = 0
    host_size: int = 1  # of one of its hosts
    marked_count: int = 0  # hosts marked orange or red
    red_count: int = 0
    waiting_count: int = 0  # hosts that its waiting pods would fill
    slow_count: int = 0  # services marked red
    takes: bool = True  # False: it takes hosts only up to its minimum

    @property
    def used_percent(self) -> int:
        return self.used * 100 // (max(self.host_count, 1) * self.host_size)


@dataclass(frozen=True, slots=True)
class Shift:
    """A decision to move hosts. The reason is ``rule``, with the number ``have`` compared with ``bound``."""

    source: str
    destination: str
    count: int
    rule: MoverRule
    have: int
    bound: int


@dataclass(frozen=True, slots=True)
class TakerState:
    """State of one taker that is kept between evaluations. Times are monotonic."""

    hot_since_s: float | None = None
    spare_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class PastShift:
    """Hosts that a taker took or returned in one decision."""

    at_s: float  # monotonic
    count: int
    is_return: bool


def list_past(pool: str, made: Iterable[Made], now_ns: int, now_s: float) -> tuple[PastShift, ...]:
    """Return the past decisions on one taker, oldest first, from those on all takers, newest first."""
    found = []
    for one in made:
        is_return = one.rule is MoverRule.SPARE
        if pool == (one.source if is_return else one.destination) and one.rule is not MoverRule.STUCK:
            found.append(PastShift(now_s - max(now_ns - one.at_ns, 0) / NS_PER_S, len(one.hostnames), is_return))
    return tuple(reversed(found))


def shift_text(shift: Shift, policy: MoverPolicy) -> str:
    """Format the reason of a shift."""
    match shift.rule:
        case MoverRule.WAITING:
            return f"pods of {shift.destination} wait for {shift.have} host{'s' * (shift.have > 1)}"
        case MoverRule.LOAD:
            percent = -(-shift.have * 100 // max(shift.bound, 1))
            return f"{percent} % of {shift.destination} is in use, more than {policy.high_percent} %"
        case MoverRule.MARKS:
            return f"{shift.have} of {shift.bound} hosts of {shift.destination} are marked orange or red"
        case MoverRule.LATENCY:
            percent = policy.target_percent
            return f"{shift.have} services are marked red, and more than {percent} % of {shift.destination} is in use"
        case MoverRule.MINIMUM:
            hosts = f"{shift.have} host{'s' * (shift.have != 1)}"
            return f"{shift.destination} has {hosts}, fewer than its minimum of {shift.bound}"
        case MoverRule.SPARE:
            return f"{shift.source} has {shift.have} hosts and needs {shift.bound}"
        case MoverRule.STUCK:
            return f"not empty {shift.have} s after the decision, the limit is {shift.bound} s: stays in {shift.source}"


def plan(
    watch: TakerState,
    past: Sequence[PastShift],
    taker: HostPoolLoad,
    givers: Sequence[HostPoolLoad],
    lent: Mapping[str, int],
    moving_count: int,
    now_s: float,
    policy: MoverPolicy,
) -> tuple[TakerState, tuple[Shift, ...]]:
    """Decide the shifts for one taker.

    ``past`` has the decisions on the taker, oldest first; ``givers`` are tried in order; ``lent`` is the number of
    hosts that the taker has from each giver. Nothing is decided while ``moving_count`` hosts still move between any of
    them.
    """
    lacking, rule, have, bound = _find_lack(taker, policy)
    spare = 0 if lacking else min(_count_spare(taker, policy), sum(lent.values()))
    watch = TakerState(
        (now_s if watch.hot_since_s is None else watch.hot_since_s) if lacking else None,
        (now_s if watch.spare_since_s is None else watch.spare_since_s) if spare else None,
    )
    in_an_hour = sum(one.count for one in past if now_s - one.at_s < HOUR_S)
    budget = min(policy.hosts_at_a_time, policy.hosts_per_hour - in_an_hour)
    is_settled = not past or now_s - past[-1].at_s >= policy.settle_s
    if budget <= 0 or moving_count or not is_settled:
        return watch, ()
    if watch.hot_since_s is not None:
        is_urgent = taker.red_count or taker.waiting_count or taker.slow_count
        if now_s - watch.hot_since_s < (policy.take_after_red_s if is_urgent else policy.take_after_s):
            return watch, ()
        return watch, _take_hosts(taker.name, givers, min(lacking, budget), rule, have, bound)
    if watch.spare_since_s is None or now_s - watch.spare_since_s < return_delay_s(past, policy):
        return watch, ()
    return watch, _return_hosts(taker, givers, lent, min(spare, budget))


def return_delay_s(past: Sequence[PastShift], policy: MoverPolicy) -> float:
    """Return the seconds for which a taker keeps spare hosts before it returns them.

    The delay doubles each time that the taker took hosts again within it, up to a maximum.
    """
    delay_s, returned_s = policy.return_after_s, None
    for one in past:
        if one.is_return:
            returned_s = one.at_s
        elif returned_s is not None:
            is_early = one.at_s - returned_s < delay_s
            delay_s = min(delay_s * 2, policy.return_after_max_s) if is_early else policy.return_after_s
            returned_s = None
    return delay_s


def _find_lack(taker: HostPoolLoad, policy: MoverPolicy) -> tuple[int, MoverRule, int, int]:
    """Return the number of hosts that the taker lacks, and the rule with its two numbers."""
    below = taker.minimum - taker.host_count
    if taker.takes and taker.waiting_count > max(below, 0):
        return taker.waiting_count, MoverRule.WAITING, taker.waiting_count, 0
    if below > 0:
        return below, MoverRule.MINIMUM, taker.host_count, taker.minimum
    if not taker.takes:
        return 0, MoverRule.SPARE, 0, 0
    have = taker.host_count * taker.host_size
    if taker.used * 100 > have * policy.high_percent:
        return max(_count_wanted(taker, policy) - taker.host_count, 1), MoverRule.LOAD, taker.used, have
    if taker.red_count or taker.marked_count * 100 > taker.host_count * policy.hot_share_percent:
        return 1, MoverRule.MARKS, taker.marked_count, taker.host_count
    if taker.slow_count and taker.used * 100 > have * policy.target_percent:
        return 1, MoverRule.LATENCY, taker.slow_count, 0
    return 0, MoverRule.SPARE, 0, 0


def _count_wanted(taker: HostPoolLoad, policy: MoverPolicy) -> int:
    """Return the number of hosts with which the taker is at its target."""
    return -(-taker.used * 100 // (taker.host_size * policy.target_percent))


def _count_spare(taker: HostPoolLoad, policy: MoverPolicy) -> int:
    if not taker.takes:
        return max(taker.host_count - taker.minimum, 0)
    if taker.marked_count:
        return 0
    return max(taker.host_count - max(_count_wanted(taker, policy), taker.minimum), 0)


def _take_hosts(
    taker: str, givers: Sequence[HostPoolLoad], count: int, rule: MoverRule, have: int, bound: int
) -> tuple[Shift, ...]:
    shifts: list[Shift] = []
    for giver in givers:
        part = min(max(giver.host_count - giver.minimum, 0), count)
        if part:
            shifts.append(Shift(giver.name, taker, part, rule, have, bound))
            count -= part
    return tuple(shifts)


def _return_hosts(
    taker: HostPoolLoad, givers: Sequence[HostPoolLoad], lent: Mapping[str, int], count: int
) -> tuple[Shift, ...]:
    """Return hosts in reverse order: the giver that was tried last gets its hosts back first."""
    have, shifts = taker.host_count, list[Shift]()
    for giver in reversed(givers):
        part = min(lent.get(giver.name, 0), count)
        if part:
            shifts.append(Shift(taker.name, giver.name, part, MoverRule.SPARE, have, have - count))
            count -= part
    return tuple(shifts)
