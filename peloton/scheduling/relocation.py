"""The hosts of a cluster as they would be after tentative moves: the pods that fit on them then, and their load.

A host that pods leave takes none in the same plan, and one that takes pods keeps its own. So the moves of a plan can be
made in any order, each finds the free resources that the plan saw, and no pod is moved twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np

from peloton.lifecycle.constraints import (
    HOSTNAME_LABEL,
    Labels,
    hosts_named,
    label_pairs,
    matches,
    mentions,
    only_value,
    pod_labels_named,
    score,
)
from peloton.model.host_pool import Workload
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import Constraint, HostPreference, Label, PodShape, Strategy
from peloton.model.rebalance import JobSpread, PodNow
from peloton.model.resources import RESOURCE_KINDS, Resources, compute_needed
from peloton.scheduling.fit import HostView, by_key, label_misfit, misfit
from peloton.scheduling.moving_spread import MovingSpread
from peloton.scheduling.tree import Flags, Ints

FULL = 1000
"""The load of a host that has nothing left of some resource, in thousandths."""


@dataclass(frozen=True, slots=True)
class HostNow:
    """A host, with its free resources beyond the pods there and the pods about to arrive."""

    hostname: Hostname
    capacity: Resources
    view: HostView
    pods: Mapping[Label, int] = field(default_factory=dict)  # number of pods on the host by label
    others: int = 0  # pods of batch and external jobs there, which stay
    takes_pods: bool = True
    reserved_for: tuple[JobId, PodShape] | None = None  # the pod that takes all resources freed there
    has_holds: bool = False  # resources are held for pods that return


TargetOrder = Callable[[PodNow, Flags], Iterable[int]]
"""A function that sorts the hosts open to a pod in the order in which the pod tries them."""
TRIES_MAX = 1_000
"""Limit of pairs of pod and host that one search examines."""
LOSSES_MAX = 10_000
"""Limit of subsets of leaving pods that ``may_leave`` checks; with more of them the pods stay."""


class Relocation:
    """Hosts, pods and tentative moves. Arrays are ``[H]`` and ``[H,R]``, in the order of the hosts' names."""

    def __init__(
        self, hosts: Iterable[HostNow], pods: Iterable[PodNow], spread: Mapping[JobId, JobSpread] | None = None
    ) -> None:
        self.hosts = sorted(hosts, key=lambda host: host.hostname)
        self.at = {host.hostname: at for at, host in enumerate(self.hosts)}
        size = len(self.hosts), len(RESOURCE_KINDS)
        self.free = np.array([tuple(host.view.free) for host in self.hosts], np.int64).reshape(size)
        self.capacity = np.array([tuple(host.capacity) for host in self.hosts], np.int64).reshape(size)
        self._ports = np.array([host.view.port_count for host in self.hosts], np.int64)
        self._slots = np.array([host.view.pod_slots for host in self.hosts], np.int64)
        self._takes = np.array([host.takes_pods for host in self.hosts], np.bool_)
        self._is_source = np.zeros(len(self.hosts), np.bool_)
        self._is_target = np.zeros(len(self.hosts), np.bool_)
        self._labelled = [Counter(host.pods) for host in self.hosts]
        self._coming = [Counter[Label]() for _ in self.hosts]  # labels of pods that are planned onto each host
        self.pods: list[list[PodNow]] = [[] for _ in self.hosts]
        self._constrained: list[list[PodNow]] = [[] for _ in self.hosts]  # with a constraint on other pods
        for pod in sorted(pods, key=lambda pod: pod.pod_id):
            if pod.hostname in self.at:
                self._add(self.at[pod.hostname], pod)
        self._allowed: dict[tuple[Constraint | None, Workload], Flags] = {}
        self._scores: dict[tuple[HostPreference, ...], Ints] = {}
        self._kinds = [_drop_hostname(host.view.labels) for host in self.hosts]
        self._values: dict[str, tuple[Ints, list[str]]] = {}
        self.spread = MovingSpread(self, spread or {})
        self.reserved = {host.reserved_for: at for at, host in enumerate(self.hosts) if host.reserved_for}

    # Loads of hosts.

    def loads(self, more: Sequence[PodNow] = ()) -> Ints:
        """Return the largest share in use of any resource, in thousandths ``[H]``; with the pods ``more`` on each
        host."""
        used = self.capacity - self.free + total_need(more)
        shares = np.where(self.capacity > 0, used * FULL // np.maximum(self.capacity, 1), 0)
        found: Ints = np.clip(shares.max(axis=1, initial=0), 0, FULL)
        return found

    def load(self, at: int, more: Sequence[PodNow] = (), less: Sequence[PodNow] = ()) -> int:
        """Return the load of one host with the pods ``more`` and without the pods ``less``."""
        used = self.capacity[at] - self.free[at] + total_need(more) - total_need(less)
        shares = [
            amount * FULL // limit
            for amount, limit in zip(used.tolist(), self.capacity[at].tolist(), strict=True)
            if limit
        ]
        return min(max(shares, default=0), FULL)

    @property
    def sources(self) -> Flags:
        """Return a flag ``[H]`` for hosts that pods may leave: they take none by this plan."""
        return ~self._is_target

    @property
    def openings(self) -> Flags:
        """Return a flag ``[H]`` for hosts that take pods, though perhaps none by this plan."""
        return self._takes

    @property
    def targets(self) -> Flags:
        """Return a flag ``[H]`` for hosts that may take pods: none leaves them by this plan."""
        return self._takes & ~self._is_source

    # Fit of pods on hosts.

    def open_to(self, shape: PodShape) -> Flags:
        """Return a flag ``[H]`` for hosts that fit by the amounts, and by the labels of the hosts alone."""
        if compute_needed(shape.resources).extended:  # the arrays have none: such pods stay where they are
            return np.zeros(len(self.hosts), np.bool_)
        need = np.array(tuple(compute_needed(shape.resources)), np.int64)
        has_capacity = (self.free >= need).all(axis=1) & (self._ports >= shape.port_count) & (self._slots > 0)
        return has_capacity & self.targets & self.find_allowed(shape)

    def find_allowed(self, shape: PodShape) -> Flags:
        """Return a flag ``[H]`` for hosts that fit by the labels of the hosts alone."""
        constraint, workload = shape.constraint, shape.workload
        found = self._allowed.get((constraint, workload))
        if found is None:
            named = {*hosts_named(constraint)} if mentions(constraint, HOSTNAME_LABEL) else ()
            kinds = zip(self._kinds, self.hosts, strict=True)
            keys = [(kind, host.hostname if host.hostname in named else "") for kind, host in kinds]
            verdicts: dict[object, bool] = {}
            for key, host in zip(keys, self.hosts, strict=True):
                if key not in verdicts:
                    verdicts[key] = label_misfit(constraint, host.view.labels, workload) is None
            found = self._allowed[constraint, workload] = np.array([verdicts[key] for key in keys], np.bool_)
        return found

    def find_preferred(self, pod: PodNow) -> Flags:
        """Return a flag ``[H]`` for hosts whose score for the pod is not below that of its own host."""
        preferences = pod.shape.preferences
        if not preferences:
            return np.ones(len(self.hosts), np.bool_)
        scores = self._scores.get(preferences)
        if scores is None:
            found = [score(preferences, host.view.labels) for host in self.hosts]
            scores = self._scores[preferences] = np.array(found, np.int64)
        return np.asarray(scores >= scores[self.at[pod.hostname]])

    def values_of(self, label: str) -> tuple[Ints, list[str]]:
        """Return the index of the label's value ``[H]``, -1 where a host has none or several; and the values."""
        if label not in self._values:
            numbers: dict[str, int] = {}
            found = [only_value(host.view.labels, label) for host in self.hosts]
            rows = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in found]
            self._values[label] = np.array(rows, np.int64), [*numbers]
        return self._values[label]

    def takes(self, at: int, pod: PodNow) -> bool:
        """Return whether the pod fits by every rule, with or without planned pods, and constraints of pods there still
        hold."""
        labels, free = self.hosts[at].view.labels, Resources(*self.free[at].tolist())
        view = HostView(labels, free, port_count=int(self._ports[at]), pod_slots=int(self._slots[at]))
        if any(misfit(pod.shape, view, by_key(pods.items())) for pods in self._pod_labels(at)):
            return False
        return not any(self._would_break(at, other, Counter(set(pod.labels))) for other in self._constrained[at])

    def may_leave(self, at: int, leaving: Sequence[PodNow]) -> bool:
        """Return whether the constraints of the pods there hold whichever of ``leaving`` have left.

        An SLA may keep some of them, and they leave in any order.
        """
        for pod in self._constrained[at]:
            named = pod_labels_named(pod.shape.constraint)
            labels = (named.intersection(one.labels) for one in leaving if one.pod_id != pod.pod_id)
            kinds = Counter(filter(None, labels))
            if prod(count + 1 for count in kinds.values()) > LOSSES_MAX:
                return False
            if any(self._would_break(at, pod, less) for less in _iterate_losses(kinds)):
                return False
        return True

    def _pod_labels(self, at: int) -> list[Counter[Label]]:
        """Return the labels of the pods on the host now; and with planned pods, if any."""
        now, coming = self._labelled[at], self._coming[at]
        return [now, now + coming] if coming.total() else [now]

    def _would_break(self, at: int, pod: PodNow, more: Counter[Label]) -> bool:
        """Return whether a change of label counts by ``more`` on the host breaks the constraint of a pod there."""
        constraint, here = pod.shape.constraint, self.hosts[at].view.labels
        if pod_labels_named(constraint).isdisjoint(more):
            return False
        for pods in self._pod_labels(at):
            is_counted = pods is not self._labelled[at] or self._is_original(at, pod)
            before = pods - Counter(set(pod.labels) if is_counted else ())
            after = Counter({label: before[label] + more[label] for label in before.keys() | more.keys()})
            if matches(constraint, here, by_key(before.items())) and not matches(
                constraint, here, by_key(after.items())
            ):
                return True
        return False

    def _is_original(self, at: int, pod: PodNow) -> bool:
        return pod.hostname == self.hosts[at].hostname

    # Tentative changes, and moves.

    def put(self, at: int, pod: PodNow) -> None:
        if not self._is_original(at, pod):
            self.spread.put(pod, self.at.get(pod.hostname), at)
        self._take_resources(at, pod, 1)
        self._add(at, pod)

    def remove(self, at: int, pod: PodNow) -> None:
        if not self._is_original(at, pod):
            self.spread.take_back(pod, self.at.get(pod.hostname), at)
        self._take_resources(at, pod, -1)
        self.pods[at].remove(pod)
        if pod in self._constrained[at]:
            self._constrained[at].remove(pod)

    def _take_resources(self, at: int, pod: PodNow, sign: int) -> None:
        self.free[at] -= _need(pod) * sign
        self._ports[at] -= pod.shape.port_count * sign
        self._slots[at] -= sign
        counts = self._labelled[at] if self._is_original(at, pod) else self._coming[at]
        for label in set(pod.labels):
            counts[label] += sign

    def _add(self, at: int, pod: PodNow) -> None:
        self.pods[at].append(pod)
        if pod_labels_named(pod.shape.constraint):
            self._constrained[at].append(pod)

    def move(self, pod: PodNow, target: int) -> None:
        """Move the pod permanently."""
        source = self.at[pod.hostname]
        self.remove(source, pod)
        self.put(target, pod)
        self._is_source[source] = self._is_target[target] = True

    def close(self, at: int) -> None:
        """Let no pod move to the host: it is to be emptied, or its free resources are for another pod."""
        self._is_source[at] = True

    def find_targets(self, pods: Sequence[PodNow], order: TargetOrder) -> list[int] | None:
        """Return a host for each of these pods, all at once; None when there are none, or after too many tries.

        It leaves everything unchanged.
        """
        chosen: list[int] = []
        found = self._search(pods, order, chosen, [TRIES_MAX])
        for pod, at in zip(pods, chosen, strict=False):
            self.remove(at, pod)
        return chosen if found else None

    def _search(self, pods: Sequence[PodNow], order: TargetOrder, chosen: list[int], tries: list[int]) -> bool:
        if len(chosen) == len(pods):
            return True
        pod = pods[len(chosen)]
        for at in order(pod, self.open_to(pod.shape) & self.spread.may_move(pod, self.at[pod.hostname])):
            if not tries[0]:
                return False
            tries[0] -= 1
            if self.hosts[at].hostname == pod.hostname or not self._is_preferred(at, pod) or not self.takes(at, pod):
                continue
            self.put(at, pod)
            chosen.append(at)
            if self._search(pods, order, chosen, tries):
                return True
            if tries[0]:
                self.remove(chosen.pop(), pod)
        return False

    def _is_preferred(self, at: int, pod: PodNow) -> bool:
        """Return whether the pod may go there by preference.

        Pods without gpus go to no host with more gpus than theirs, and a job that spreads over hosts gets more pods on
        no host.
        """
        source = self.at[pod.hostname]
        if (
            not pod.shape.resources.gpu_milli
            and self.hosts[at].capacity.gpu_milli > self.hosts[source].capacity.gpu_milli
        ):
            return False
        if pod.shape.strategy is not Strategy.SPREAD_JOB:
            return True
        job_id = pod.pod_id.job_id
        there, here = (sum(other.pod_id.job_id == job_id for other in self.pods[host]) for host in (at, source))
        return there < here


def _need(pod: PodNow) -> Ints:
    return np.array(tuple(compute_needed(pod.shape.resources)), np.int64)


def total_need(pods: Iterable[PodNow]) -> Ints:
    """Return the sum of the needs of pods, ``[R]``."""
    return sum((_need(pod) for pod in pods), np.zeros(len(RESOURCE_KINDS), np.int64))


def _drop_hostname(labels: Labels) -> tuple[Label, ...]:
    return tuple(label for label in label_pairs(labels) if label[0] != HOSTNAME_LABEL)


def _iterate_losses(kinds: Mapping[frozenset[Label], int]) -> Iterator[Counter[Label]]:
    """Yield the label counts that each subset of these pods takes away; pods with the same labels are
    interchangeable."""
    for counts in product(*(range(count + 1) for count in kinds.values())):
        less = Counter[Label]()
        for labels, count in zip(kinds, counts, strict=True):
            less.subtract(dict.fromkeys(labels, count))
        yield less
