"""The rules by which a host takes a pod, used for leases, for placement, and for whether any host ever could.

The first rule that fails is the reason, in this order: the host's exclusive label, its host pool, the constraint on
labels of the host, free resources, pod slots, ports, the constraint on labels of the pods there. Hosts that are alike
are evaluated once.
"""

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
from peloton.lifecycle.host_pools import announce_disk, disk_percent, find_unserving, host_pool_of
from peloton.model.host import POD_SLOTS_UNLIMITED
from peloton.model.host_pool import AT_PAR, Workload
from peloton.model.misfit import (
    HostRule,
    LackingAmount,
    LackingPorts,
    LackingVolumeDisk,
    Misfit,
    PortInUse,
    Refused,
    UnmetConstraint,
    UnservedWorkload,
)
from peloton.model.pod import PORT_LABEL, Constraint, Label, PodLabel, PodShape
from peloton.model.reason import Infeasible, RefusingHosts, merge_misfits
from peloton.model.resources import Resources, compute_needed, pair_amounts

NO_PODS: PodLabels = {}
PORTS_MAX = 2**16


@dataclass(frozen=True, slots=True)
class HostView:
    """The properties of a host, or of hosts that are alike, that decide whether a pod fits."""

    labels: Labels
    free: Resources
    revocable_cpu_milli: int = 0
    port_count: int = 0
    is_on_offer: bool = True
    pod_slots: int = POD_SLOTS_UNLIMITED


def misfit(shape: PodShape, host: HostView, pods: PodLabels | None = NO_PODS) -> Misfit | None:
    """Return the first rule that keeps the pod off the host; None: it fits.

    ``pods`` are the pods on the host by label; None: they are not considered.
    """
    constraint = shape.constraint
    return (
        label_misfit(constraint, host.labels, shape.workload)
        or capacity_misfit(shape, host)
        or (None if constraint is None or pods is None else pods_misfit(constraint, host.labels, pods))
    )


def label_misfit(constraint: Constraint | None, labels: Labels, workload: Workload = Workload.ANY) -> Misfit | None:
    """Return the first rule on the labels of the host alone that the pod fails."""
    if EXCLUSIVE_LABEL in labels and not mentions(constraint, EXCLUSIVE_LABEL):
        return Refused(HostRule.EXCLUSIVE)
    if (pool := find_unserving(workload, labels)) is not None:
        return UnservedWorkload(pool, workload)
    return None if constraint is None else pods_misfit(constraint, labels, None)


def pods_misfit(constraint: Constraint, labels: Labels, pods: PodLabels | None) -> Misfit | None:
    """Return the first part of the constraint that the labels of the host and of the pods there fail."""
    for part in conjuncts(constraint):
        if not matches(part, labels, pods):
            if isinstance(part, PodLabel) and part.key == PORT_LABEL:
                return PortInUse(part.value)
            return UnmetConstraint(describe(part))
    return None


def capacity_misfit(shape: PodShape, host: HostView) -> Misfit | None:
    """Return the first rule on amounts that the pod fails."""
    free, need = free_for(shape, host), need_on(shape, host.labels)
    if not need.fits_in(free):
        kind, wanted, left = next(each for each in pair_amounts(need, free) if each[1] > each[2])
        if kind == "disk" and shape.volume_mib:
            return disk_misfit(shape, host.labels, left)
        is_revocable = shape.revocable and kind == "cpu"
        rule = HostRule.REVOCABLE_RESOURCES if is_revocable else HostRule.FREE_RESOURCES
        return LackingAmount(rule, kind, wanted, left)
    if not host.is_on_offer:  # checked after free resources: a lack of them leads to a request for more
        return Refused(HostRule.NOT_OFFERED)
    if not host.pod_slots:
        return Refused(HostRule.POD_SLOTS)
    if host.port_count < shape.port_count:
        return LackingPorts(shape.port_count, host.port_count)
    return None


def need_on(shape: PodShape, labels: Labels) -> Resources:
    """Return the part of the announced resources of a host with these labels that the pod takes.

    Where a host pool announces its disk with a factor, a new volume takes its size times the factor.
    """
    need = compute_needed(shape.resources)
    if shape.volume_mib:
        beyond = announce_disk(shape.volume_mib, disk_percent(labels)) - shape.volume_mib
        need += Resources(disk_mib=beyond)
    return need


def disk_misfit(shape: PodShape, labels: Labels, left: int) -> Misfit:
    """Return the misfit of a pod with a new volume that lacks disk. ``left`` is the announced free disk."""
    percent, asked = disk_percent(labels), compute_needed(shape.resources).disk_mib
    if percent == AT_PAR.disk_percent:
        return LackingAmount(HostRule.FREE_RESOURCES, "disk", asked, left)
    own = -(-(asked - shape.volume_mib) * 100 // percent)
    wanted = own + shape.volume_mib
    return LackingVolumeDisk(host_pool_of(labels), wanted, left * 100 // percent, shape.volume_mib)


def free_for(shape: PodShape, host: HostView) -> Resources:
    """Return the resources that the pod may take: revocable pods take revocable cpu and ordinary memory, disk and
    gpu."""
    return replace(host.free, cpu_milli=host.revocable_cpu_milli) if shape.revocable else host.free


def count_fits(shape: PodShape, host: HostView) -> int:
    """Return how many such pods fit by the amounts alone."""
    amounts = pair_amounts(free_for(shape, host), need_on(shape, host.labels))
    fit_counts = [host.pod_slots, *(have // need for _, have, need in amounts if need)]
    if shape.port_count:
        fit_counts.append(host.port_count // shape.port_count)
    return max(min(fit_counts), 0)


def count_fits_with(
    constraint: Constraint, labels: Labels, pods: Mapping[Label, int], own: Collection[Label], at_most: int
) -> int:
    """Return how many pods with the labels ``own`` may be added before the constraint refuses the next.

    More pods than the largest count that the constraint names no longer change its result.
    """
    most = max((leaf.count for leaf in leaves(constraint) if isinstance(leaf, PodLabel)), default=0)
    for step in range(min(at_most, most + 2)):
        there = {label: pods.get(label, 0) + (step if label in own else 0) for label in {*pods, *own}}
        if not matches(constraint, labels, by_key(there.items())):
            return step
    return at_most


def by_key(pods: Iterable[tuple[Label, int]]) -> dict[str, dict[str, int]]:
    """Return pods by label in the form that constraints take."""
    found: dict[str, dict[str, int]] = {}
    for (key, value), count in pods:
        found.setdefault(key, {})[value] = count
    return found


# Fit of hosts as if they were empty.


@dataclass(frozen=True, slots=True)
class HostKind:
    """Hosts with the same labels and the same capacity."""

    capacity: Resources
    labels: Labels = field(hash=False)
    count: int = 1

    def when_empty(self) -> HostView:
        """Return the host without pods; a revocable pod may have at most the cpu of the host."""
        return HostView(self.labels, self.capacity, self.capacity.cpu_milli, PORTS_MAX)


def infeasible(shape: PodShape, hosts: Iterable[HostKind]) -> Infeasible | None:
    """Return why none of these hosts could ever take the pod; None when one could, or when there are no hosts at all.

    Free resources and pods on hosts are not considered: both change.
    """
    total = served = meeting = allowed = 0
    largest = Resources()
    for kind in hosts:
        why = misfit(shape, kind.when_empty(), pods=None)
        if why is None:
            return None
        total += kind.count
        is_served = find_unserving(shape.workload, kind.labels) is None
        served += kind.count if is_served else 0
        if why.rule not in (HostRule.EXCLUSIVE, HostRule.HOST_POOL, HostRule.CONSTRAINT):
            allowed += kind.count
            largest = Resources.each(max, largest, _own_capacity(shape, kind))
        if why.rule is not HostRule.CONSTRAINT and is_served and matches(shape.constraint, kind.labels):
            meeting += kind.count
    if not total:
        return None
    constraint = describe(shape.constraint) if shape.constraint else ""
    return Infeasible(
        host_count=total,
        meeting_count=meeting,
        allowed_count=allowed,
        constraint=constraint,
        wanted=compute_needed(shape.resources),
        largest=largest,
        served_count=served,
        workload=shape.workload,
    )


def _own_capacity(shape: PodShape, kind: HostKind) -> Resources:
    """Return the capacity that counts for the pod: for a pod with a new volume, disk without the factor."""
    if not shape.volume_mib:
        return kind.capacity
    return replace(kind.capacity, disk_mib=kind.capacity.disk_mib * 100 // disk_percent(kind.labels))


def reach(shape: PodShape, hosts: Iterable[HostKind]) -> tuple[int, tuple[RefusingHosts, ...]]:
    """Count the hosts that could take the pod if they were empty, and return the first rule that each other one
    fails."""
    evaluated = [(misfit(shape, kind.when_empty(), pods=None), kind.count) for kind in hosts]
    refusing = [(_to_size_rule(why), count) for why, count in evaluated if why is not None]
    return sum(count for why, count in evaluated if why is None), merge_misfits(refusing)


def _to_size_rule(why: Misfit) -> Misfit:
    return replace(why, rule=HostRule.SIZE) if isinstance(why, LackingAmount) else why
