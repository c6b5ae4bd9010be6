"""Quality of service: the choice of revocable pods that leave a host that is hot, or has less slack than they hold.

A host is corrected when several measurements in a row agree. Pods of the lowest priority leave first, the youngest
first among equals, until the rest fits; pods whose eviction would not help stay. The use of pods that are leaving
already counts as gone. Ordinary pods never leave.

A host that was hot is closed to revocable pods for a while, twice as long each time it happens again: pods that use
more than they request would otherwise come back, make the host hot again, and leave, for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from peloton.model.ids import Hostname, PodId
from peloton.model.reason import QosReason, QosRule
from peloton.model.resources import Resources


@dataclass(frozen=True, slots=True)
class QosPolicy:
    hot_percent: int = 90  # percent of a host's total in use
    target_percent: int = 80  # percent of a host's total to which evictions bring it
    sample_count: int = 2  # measurements in a row that must agree
    evicted_pods_max: int = 10  # evictions on one host at a time
    closed_s: float = 60.0  # seconds closed to revocable pods after it was hot for the first time
    closed_max_s: float = 3_600.0


@dataclass(frozen=True, slots=True)
class Use:
    """Amounts of a host: measured use, or total."""

    cpu_milli: int = 0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class HostLoad:
    """One measurement of a host. ``slack`` is its revocable cpu, ``held`` the part of it that revocable pods hold."""

    hostname: Hostname
    total: Use
    used: Use
    slack: int
    held: int


def beyond_held(load: HostLoad, capacity: Resources, free: Resources) -> tuple[int, int]:
    """Return the cpu and memory in use on the machine, less the part of the announced ``capacity`` that pods hold.

    Both are in thousandths of the machine or the capacity; negative where pods use less than they hold.
    """
    held = capacity - free
    return (
        _thousandths(load.used.cpu_milli, load.total.cpu_milli) - _thousandths(held.cpu_milli, capacity.cpu_milli),
        _thousandths(load.used.memory_mib, load.total.memory_mib) - _thousandths(held.memory_mib, capacity.memory_mib),
    )


def _thousandths(part: int, whole: int) -> int:
    return part * 1000 // whole if whole > 0 else 0


@dataclass(frozen=True, slots=True)
class RevocablePod:
    pod_id: PodId
    priority: int
    started_ns: int
    held: int  # cpu_milli
    used: Use
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class HostWatch:
    """The state of a host between measurements."""

    hot_count: int = 0
    short_count: int = 0
    closed_for_s: float = 0.0
    closed_until_s: float = 0.0

    def is_closed(self, now_s: float) -> bool:
        return now_s < self.closed_until_s

    def is_idle(self, now_s: float) -> bool:
        """Return whether the state is the initial one again, so that the watch can be dropped."""
        return not (self.hot_count or self.short_count) and now_s >= self.closed_until_s + self.closed_for_s


@dataclass(frozen=True, slots=True)
class Correction:
    """An eviction of a pod, and its reason."""

    pod_id: PodId
    why: QosReason


def observe(watch: HostWatch, load: HostLoad, policy: QosPolicy) -> HostWatch:
    """Return the watch after one more measurement."""
    is_hot = any(used * 100 > total * policy.hot_percent for _, used, total in _kinds(load))
    return replace(
        watch,
        hot_count=watch.hot_count + 1 if is_hot else 0,
        short_count=watch.short_count + 1 if load.held > load.slack else 0,
    )


def is_due(watch: HostWatch, policy: QosPolicy) -> bool:
    return max(watch.hot_count, watch.short_count) >= policy.sample_count


def corrections(
    watch: HostWatch, load: HostLoad, pods: Sequence[RevocablePod], policy: QosPolicy
) -> tuple[Correction, ...]:
    """Choose the pods that leave now. ``pods`` are all revocable pods of the host."""
    needs = _needs(watch, load, [pod for pod in pods if pod.is_leaving], policy)
    if watch.short_count >= policy.sample_count:
        load = replace(load, held=sum(pod.held for pod in pods if not pod.is_leaving))
        if load.held > load.slack:
            needs[QosRule.LESS_SLACK] = load.held - load.slack
    chosen: list[tuple[RevocablePod, QosRule]] = []
    for pod in sorted((pod for pod in pods if not pod.is_leaving), key=_order):
        helped = next((cause for cause, lack in needs.items() if lack > 0 and _part(pod, cause) > 0), None)
        if helped is not None:
            chosen.append((pod, helped))
            needs = {cause: lack - _part(pod, cause) for cause, lack in needs.items()}
    return tuple(
        Correction(pod.pod_id, _reason(cause, load, policy)) for pod, cause in chosen[: policy.evicted_pods_max]
    )


def after(watch: HostWatch, made: Sequence[Correction], now_s: float, policy: QosPolicy) -> HostWatch:
    """Return the watch after evictions: its counts start again, and the host is closed if it was hot."""
    cleared = replace(watch, hot_count=0, short_count=0)
    if all(each.why.rule is QosRule.LESS_SLACK for each in made):
        return cleared
    is_again = now_s < watch.closed_until_s + watch.closed_for_s
    closed_for_s = min(watch.closed_for_s * 2, policy.closed_max_s) if is_again else policy.closed_s
    return replace(cleared, closed_for_s=closed_for_s, closed_until_s=now_s + closed_for_s)


def _needs(watch: HostWatch, load: HostLoad, leaving: Sequence[RevocablePod], policy: QosPolicy) -> dict[QosRule, int]:
    """Return by how much a hot host is above its target, without pods that are leaving."""
    if watch.hot_count < policy.sample_count:
        return {}
    found = {}
    for cause, used, total in _kinds(load):
        excess = used - total * policy.target_percent // 100 - sum(_part(pod, cause) for pod in leaving)
        if used * 100 > total * policy.hot_percent and excess > 0:
            found[cause] = excess
    return found


def _kinds(load: HostLoad) -> list[tuple[QosRule, int, int]]:
    """Return rule, used and total of each kind that the host has."""
    kinds = [
        (QosRule.HOT_CPU, load.used.cpu_milli, load.total.cpu_milli),
        (QosRule.HOT_MEMORY, load.used.memory_mib, load.total.memory_mib),
    ]
    return [kind for kind in kinds if kind[2] > 0]


def _part(pod: RevocablePod, cause: QosRule) -> int:
    """Return the amount by which evicting the pod helps against the cause."""
    if cause is QosRule.LESS_SLACK:
        return pod.held
    return pod.used.cpu_milli if cause is QosRule.HOT_CPU else pod.used.memory_mib


def _order(pod: RevocablePod) -> tuple[int, int, str]:
    return pod.priority, -pod.started_ns, str(pod.pod_id)


def _reason(rule: QosRule, load: HostLoad, policy: QosPolicy) -> QosReason:
    if rule is QosRule.LESS_SLACK:
        return QosReason(rule, load.hostname, load.held, load.slack)
    used, total = next((used, total) for kind, used, total in _kinds(load) if kind is rule)
    return QosReason(rule, load.hostname, used, total, policy.hot_percent)
