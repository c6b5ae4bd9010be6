"""Which admitted pod goes to which leased host.

Gangs first, whole or not at all; then single pods, all of one shape at once. Hosts are filled in the order of the lease
(PACK_HOST), levelled out over the pods of this batch (SPREAD_JOB), or taken by the largest free share (EMPTIEST_HOST).
Hosts on which pods of the job failed come last. Revocable pods take the revocable cpu of a host and its ordinary
memory, disk and gpu. Each shape is placed on what the shapes before it left.

``PodLabel`` constraints count the pods that were on a host at the lease, and those that this batch puts there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from peloton.lifecycle.constraints import HOSTNAME_LABEL, Labels, host_labels, mentions, pod_labels_named
from peloton.model.host import HostLease, LeasedHost, PlacedPod, Placement, PlacementBatch, ReadyGang, Unplaced
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import Constraint, Label, PodShape, Strategy
from peloton.model.reason import ClusterReason, HostRule, Misfit, NoHost, RefusingHosts, merged
from peloton.model.resources import RESOURCE_KINDS, Resources, needed
from peloton.scheduling.fit import HostView, by_key, label_misfit, misfit, room_beside
from peloton.scheduling.packing import PortDealer, emptiest, pack, port_count, room_for, spread
from peloton.scheduling.tree import CPU, Flags, Ints

SHAPES_EXPLAINED_MAX = 3
"""Shapes for which the reasons of the hosts are given; the others are counted."""


def place(job_id: JobId, gangs: Sequence[ReadyGang], lease: HostLease) -> PlacementBatch:
    """Place what fits. Equal arguments give equal placements."""
    hosts = _Hosts(lease.hosts)
    gangs, waiting = _place_returning(hosts, gangs, dict(lease.awaited))
    unplaced_count, unplaced = len(waiting), list[Unplaced]()
    found = [_awaits_return(waiting)] if waiting else []
    shape_count = len(found)
    for shape, labels, pods, is_gang in _batches(gangs):
        placed = hosts.put(shape, labels, pods, is_gang)
        left = len(pods) - placed
        if left:
            unplaced_count += left
            shape_count += 1
            if len(found) < SHAPES_EXPLAINED_MAX:
                refused = ((one.misfit, one.host_count) for one in lease.refused.get(shape, ()))
                found.append(NoHost(left, is_gang, merged(chain(hosts.refusing(shape, labels, left), refused))))
            named = pods[:1] if is_gang else pods[placed:]
            why = lease.infeasible.get(shape)
            unplaced.append(Unplaced(tuple(instance for instance, _ in named), (why,) if why else ()))
    reason = (ClusterReason(pods=tuple(found), more_count=shape_count - len(found)),) if found else ()
    return PlacementBatch(job_id, lease.lease_id, hosts.placements(), unplaced_count, reason, tuple(unplaced))


def _awaits_return(hosts: Sequence[Hostname]) -> NoHost:
    return NoHost(len(hosts), hosts=(RefusingHosts(len(set(hosts)), Misfit(HostRule.RETURN)),))


def _place_returning(
    hosts: _Hosts, gangs: Sequence[ReadyGang], awaited: Mapping[int, Hostname]
) -> tuple[list[ReadyGang], list[Hostname]]:
    """Place pods that come back to a host there, before the others. Returns the gangs that may go anywhere, and the
    hosts of the pods that wait for room on theirs."""
    left: list[ReadyGang] = []
    waiting: list[Hostname] = []
    for gang in gangs:
        if not gang.desired_host or len(gang.pods) > 1:
            left.append(gang)
        elif not hosts.put_on(Hostname(gang.desired_host), gang):
            host = awaited.get(gang.pods[0][0])
            if host is None:
                left.append(gang)
            else:
                waiting.append(host)
    return left, waiting


class FirstFitPlacer:
    """``ports.Placer``."""

    def place(self, job_id: JobId, gangs: Sequence[ReadyGang], lease: HostLease) -> PlacementBatch:
        return place(job_id, gangs, lease)


_Labels = tuple[Label, ...]
_Batch = tuple[PodShape, _Labels, list[tuple[int, int]], bool]


def _batches(gangs: Sequence[ReadyGang]) -> Iterator[_Batch]:
    """Gangs one by one, then single pods by shape and labels in order of first appearance."""
    singles: dict[tuple[PodShape, _Labels], list[tuple[int, int]]] = {}
    last: tuple[PodShape, _Labels, list[tuple[int, int]]] | None = None
    for gang in gangs:
        if len(gang.pods) > 1:
            yield gang.shape, gang.labels, list(gang.pods), True
        else:
            # Hashing a shape costs more than placing it.
            if last is None or last[0] is not gang.shape or last[1] != gang.labels:
                last = (gang.shape, gang.labels, singles.setdefault((gang.shape, gang.labels), []))
            last[2].extend(gang.pods)
    for (shape, labels), pods in singles.items():
        yield shape, labels, pods, False


class _Hosts:
    """The hosts of one lease as arrays ``[H]`` and ``[H,R]``, and the pods placed on them."""

    def __init__(self, hosts: Sequence[LeasedHost]) -> None:
        self.hosts = hosts
        self.free = np.array([tuple(host.free) for host in hosts], np.int64).reshape(len(hosts), len(RESOURCE_KINDS))
        self._capacity = np.array([tuple(host.capacity) for host in hosts], np.int64).reshape(self.free.shape)
        self.revocable_cpu = np.array([host.revocable.cpu_milli for host in hosts], np.int64)
        self.ports_free = np.array([port_count(host.ports) for host in hosts], np.int64)
        self.pod_slots = np.array([host.pod_slots for host in hosts], np.int64)
        self.pods_held = np.zeros(len(hosts), np.int64)
        self._shunned = np.array([host.is_shunned for host in hosts], np.bool_)
        # A kind is all hosts with the same labels, the name aside: [H] kind of each host, and the labels by kind.
        kinds: dict[tuple[Label, ...], int] = {}
        nameless = (tuple(label for label in host.labels if label[0] != HOSTNAME_LABEL) for host in hosts)
        self._kind_of = [kinds.setdefault(labels, len(kinds)) for labels in nameless]
        self._kinds: list[Labels] = [host_labels("", labels) for labels in kinds]
        self._is_allowed: dict[Constraint | None, Flags] = {}
        self._carriers: dict[Label, Ints] = {}  # pod label -> [H] pods that carry it
        for at, host in enumerate(hosts):
            for label, count in host.pod_labels:
                self._carriers.setdefault(label, np.zeros(len(hosts), np.int64))[at] = count
        self._at = {host.hostname: at for at, host in enumerate(hosts)}
        self._placed: dict[int, list[PlacedPod]] = {}
        self._dealers: dict[int, PortDealer] = {}

    def put(self, shape: PodShape, labels: _Labels, pods: Sequence[tuple[int, int]], is_gang: bool) -> int:
        """Place pods of one shape; returns how many, for a gang all or none."""
        room = self.room(shape, labels)
        chosen = self._choose(shape, np.where(self._shunned, 0, room), len(pods))
        if len(chosen) < len(pods) and self._shunned.any():
            last = self._choose(shape, np.where(self._shunned, room, 0), len(pods) - len(chosen))
            chosen = np.concatenate([chosen, last])
        if is_gang and len(chosen) < len(pods):
            return 0
        self._take(shape, labels, chosen)
        for (instance_id, run_id), host in zip(pods, chosen.tolist(), strict=False):
            pod = PlacedPod(instance_id, run_id, self._deal_ports(host, shape.port_count))
            self._placed.setdefault(host, []).append(pod)
        return len(chosen)

    def _choose(self, shape: PodShape, room: Ints, count: int) -> Ints:
        if shape.strategy is Strategy.SPREAD_JOB:
            return spread(room, self.pods_held, count)
        if shape.strategy is Strategy.EMPTIEST_HOST:
            return emptiest(room, self._free_for(shape), _need(shape), self._capacity, count)
        return pack(room, count)

    def put_on(self, hostname: Hostname, gang: ReadyGang) -> bool:
        """Place the only pod of a gang on this host, if it fits there."""
        at = self._at.get(hostname)
        if at is None or not self.room(gang.shape, gang.labels)[at]:
            return False
        self._take(gang.shape, gang.labels, np.array([at]))
        pod = PlacedPod(*gang.pods[0], self._deal_ports(at, gang.shape.port_count))
        self._placed.setdefault(at, []).append(pod)
        return True

    def room(self, shape: PodShape, labels: _Labels) -> Ints:
        """[H] how many more pods of this shape each host takes."""
        room = room_for(self._free_for(shape), _need(shape), self.pod_slots, self.ports_free, shape.port_count)
        room[~self._allowed(shape.constraint)] = 0
        if named := pod_labels_named(shape.constraint):
            assert shape.constraint is not None
            at_most, keys, pods_on = int(room.max(initial=0)), self._keys(shape.constraint), self._pods_with_each(named)
            known: dict[tuple[int, ...], int] = {}
            for at in np.flatnonzero(room).tolist():
                there = {label: counts[at] for label, counts in pods_on.items()}
                key = (keys[at], *there.values())
                if key not in known:
                    known[key] = room_beside(shape.constraint, self._labels_of(keys[at]), there, labels, at_most)
                room[at] = min(room[at], known[key])
        return room

    def refusing(self, shape: PodShape, labels: _Labels, left: int) -> Iterator[tuple[Misfit, int]]:
        """Hosts by the first rule that they fail now. Hosts that fail none together lack room for the gang of ``left``
        pods."""
        free, keys = self._free_for(shape), self._keys(shape.constraint)
        pods_on = self._pods_with_each(pod_labels_named(shape.constraint))
        alike: dict[tuple[int, ...], list[int]] = {}
        counts = self.ports_free.tolist(), np.minimum(self.pod_slots, 1).tolist()
        for at, known in enumerate(zip(keys, *counts, *free.T.tolist(), *pods_on.values(), strict=True)):
            alike.setdefault(known, []).append(at)
        fitting: list[int] = []
        for (key, ports_free, slots, *rest), hosts in alike.items():
            amounts = Resources(*rest[: len(RESOURCE_KINDS)])
            pods = by_key(zip(pods_on, rest[len(RESOURCE_KINDS) :], strict=True))
            view = HostView(self._labels_of(key), amounts, amounts.cpu_milli, ports_free, pod_slots=slots)
            if why := misfit(shape, view, pods):
                yield why, len(hosts)
            else:
                fitting += hosts
        if fitting:
            room = int(np.minimum(self.room(shape, labels), left)[fitting].sum())
            yield Misfit(HostRule.GANG_ROOM, wanted=left, left=room), len(fitting)

    def placements(self) -> tuple[Placement, ...]:
        return tuple(Placement(self.hosts[host].hostname, tuple(pods)) for host, pods in sorted(self._placed.items()))

    def _free_for(self, shape: PodShape) -> Ints:
        if not shape.revocable:
            return self.free
        free = self.free.copy()
        free[:, CPU] = self.revocable_cpu
        return free

    def _take(self, shape: PodShape, labels: _Labels, chosen: Ints) -> None:
        taken = np.bincount(chosen, minlength=len(self.hosts))
        used = taken[:, None] * _need(shape)
        if shape.revocable:
            self.revocable_cpu -= used[:, CPU]
            used[:, CPU] = 0
        self.free -= used
        self.ports_free -= taken * shape.port_count
        self.pod_slots -= taken
        self.pods_held += taken
        for label in labels:
            self._carriers[label] = self._pods_with(label) + taken

    def _deal_ports(self, host: int, count: int) -> tuple[int, ...]:
        if count == 0:
            return ()
        dealer = self._dealers.get(host)
        if dealer is None:
            dealer = self._dealers[host] = PortDealer(self.hosts[host].ports)
        return dealer.deal(count)

    def _pods_with(self, label: Label) -> Ints:
        return self._carriers.get(label, np.zeros(len(self.hosts), np.int64))

    def _pods_with_each(self, labels: Collection[Label]) -> dict[Label, list[int]]:
        """[H] each."""
        return {label: self._pods_with(label).tolist() for label in sorted(labels)}

    def _allowed(self, constraint: Constraint | None) -> Flags:
        """[H] by the labels of the hosts alone."""
        found = self._is_allowed.get(constraint)
        if found is None:
            keys = self._keys(constraint)
            is_allowed = {key: label_misfit(constraint, self._labels_of(key)) is None for key in dict.fromkeys(keys)}
            found = self._is_allowed[constraint] = np.array([is_allowed[key] for key in keys], np.bool_)
        return found

    def _keys(self, constraint: Constraint | None) -> list[int]:
        """[H] equal for hosts whose labels the constraint cannot tell apart."""
        return [-1 - at for at in range(len(self.hosts))] if mentions(constraint, HOSTNAME_LABEL) else self._kind_of

    def _labels_of(self, key: int) -> Labels:
        if key >= 0:
            return self._kinds[key]
        host = self.hosts[-1 - key]
        return host_labels(host.hostname, host.labels)


def _need(shape: PodShape) -> Ints:
    return np.array(tuple(needed(shape.resources)), np.int64)
