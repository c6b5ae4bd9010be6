"""Whether a host takes a pod: the one judge for leases, for placement, and for whether any host ever could.

Rules in this order, of which the first that fails is the reason: the host's exclusive label, the constraint on labels
of the host, room, pod slots, ports, the constraint on labels of the pods there. Hosts that are alike are judged
once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from peloton.lifecycle.constraints import (
    EXCLUSIVE_LABEL,
    Labels,
    PodLabels,
    conjuncts,
    describe,
    leaves,
    matches,
    mentions,
)
from peloton.model.host import POD_SLOTS_UNLIMITED
from peloton.model.pod import Constraint, Label, PodLabel, PodShape
from peloton.model.reason import HostRule, Infeasible, Misfit
from peloton.model.resources import RESOURCE_KINDS, Resources, needed

NO_PODS: PodLabels = {}
PORTS_MAX = 2**16


@dataclass(frozen=True, slots=True)
class HostView:
    """All that decides about a host, or about hosts that are alike."""

    labels: Labels
    free: Resources
    revocable_cpu_milli: int = 0
    port_count: int = 0
    is_on_offer: bool = True
    pod_slots: int = POD_SLOTS_UNLIMITED


def misfit(shape: PodShape, host: HostView, pods: PodLabels | None = NO_PODS) -> Misfit | None:
    """The first rule that keeps the pod off the host; None: it fits. ``pods``: those on the host by label; None: pods
    there do not matter."""
    constraint = shape.constraint
    return (
        label_misfit(constraint, host.labels)
        or room_misfit(shape, host)
        or (None if constraint is None or pods is None else _broken(constraint, host.labels, pods))
    )


def label_misfit(constraint: Constraint | None, labels: Labels) -> Misfit | None:
    """By the labels of the host alone."""
    if EXCLUSIVE_LABEL in labels and not mentions(constraint, EXCLUSIVE_LABEL):
        return Misfit(HostRule.EXCLUSIVE)
    return None if constraint is None else _broken(constraint, labels, None)


def _broken(constraint: Constraint, labels: Labels, pods: PodLabels | None) -> Misfit | None:
    for part in conjuncts(constraint):
        if not matches(part, labels, pods):
            return Misfit(HostRule.CONSTRAINT, name=describe(part))
    return None


def room_misfit(shape: PodShape, host: HostView) -> Misfit | None:
    """By the amounts alone."""
    free, need = free_for(shape, host), needed(shape.resources)
    if not need.fits_in(free):
        kind, wanted, left = next(each for each in zip(RESOURCE_KINDS, need, free, strict=True) if each[1] > each[2])
        is_revocable = shape.revocable and kind == "cpu"
        return Misfit(HostRule.REVOCABLE_ROOM if is_revocable else HostRule.ROOM, kind, wanted, left)
    if not host.is_on_offer:  # after room: for lack of room, more of it is requested
        return Misfit(HostRule.NOT_OFFERED)
    if not host.pod_slots:
        return Misfit(HostRule.POD_SLOTS)
    if host.port_count < shape.port_count:
        return Misfit(HostRule.PORTS, wanted=shape.port_count, left=host.port_count)
    return None


def free_for(shape: PodShape, host: HostView) -> Resources:
    """Revocable pods take revocable cpu and ordinary memory, disk and gpu."""
    return replace(host.free, cpu_milli=host.revocable_cpu_milli) if shape.revocable else host.free


def room(shape: PodShape, host: HostView) -> int:
    """How many such pods have room, by the amounts alone."""
    amounts = zip(free_for(shape, host), needed(shape.resources), strict=True)
    rooms = [host.pod_slots, *(have // need for have, need in amounts if need)]
    if shape.port_count:
        rooms.append(host.port_count // shape.port_count)
    return max(min(rooms), 0)


def room_beside(
    constraint: Constraint, labels: Labels, pods: Mapping[Label, int], own: Collection[Label], at_most: int
) -> int:
    """How many pods with the labels ``own`` may be added before the constraint refuses the next. Above the largest
    count that the constraint names its verdict no longer changes."""
    most = max((leaf.count for leaf in leaves(constraint) if isinstance(leaf, PodLabel)), default=0)
    for step in range(min(at_most, most + 2)):
        there = {label: pods.get(label, 0) + (step if label in own else 0) for label in {*pods, *own}}
        if not matches(constraint, labels, by_key(there.items())):
            return step
    return at_most


def by_key(pods: Iterable[tuple[Label, int]]) -> dict[str, dict[str, int]]:
    """Pods by label in the form that constraints take."""
    found: dict[str, dict[str, int]] = {}
    for (key, value), count in pods:
        found.setdefault(key, {})[value] = count
    return found


# Whether any host ever could.


@dataclass(frozen=True, slots=True)
class HostKind:
    """Hosts with the same labels and the same capacity."""

    capacity: Resources
    labels: Labels = field(hash=False)
    count: int = 1

    def when_empty(self) -> HostView:
        """A revocable pod is given no more cpu of a host than the host has."""
        return HostView(self.labels, self.capacity, self.capacity.cpu_milli, PORTS_MAX)


def infeasible(shape: PodShape, hosts: Iterable[HostKind]) -> Infeasible | None:
    """Why none of these hosts could ever take the pod; None when one could, or when there are no hosts at all. Free
    room and pods on hosts do not matter: both change."""
    total = meeting = allowed = 0
    largest = Resources()
    for kind in hosts:
        why = misfit(shape, kind.when_empty(), pods=None)
        if why is None:
            return None
        total += kind.count
        if why.rule not in (HostRule.EXCLUSIVE, HostRule.CONSTRAINT):
            allowed += kind.count
            largest = Resources(*map(max, largest, kind.capacity))
        if why.rule is not HostRule.CONSTRAINT and matches(shape.constraint, kind.labels):
            meeting += kind.count
    if not total:
        return None
    constraint = describe(shape.constraint) if shape.constraint else ""
    return Infeasible("", total, meeting, allowed, constraint, needed(shape.resources), largest)
