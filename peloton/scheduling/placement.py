"""Which admitted pod goes to which leased host.

Gangs first, whole or not at all; then single pods, all of one shape at once. Hosts are filled in the order of the lease
(PACK_HOST), levelled out over the pods of this batch (SPREAD_JOB), or taken by the largest free share (EMPTIEST_HOST).
Hosts on which pods of the job failed take what the others leave.
Revocable pods take the revocable cpu of a host and its ordinary memory, disk and gpu. What a batch places is taken from
the hosts before the next shape looks at them.

``PodLabel`` constraints count the pods that were on a host at the lease, and those that this batch puts there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from peloton.lifecycle.constraints import (
    COMPARE,
    EXCLUSIVE_LABEL,
    HOSTNAME_LABEL,
    conjuncts,
    describe,
    leaves,
    mentions,
    pod_labels_named,
)
from peloton.model.host import HostLease, LeasedHost, PlacedPod, Placement, PlacementBatch, ReadyGang, Unplaced
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import AllOf, AnyOf, Constraint, HostLabel, Label, PodLabel, PodShape, Strategy
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.packing import PortDealer, emptiest, pack, port_count, room_for, spread
from peloton.scheduling.tree import CPU, Flags, Ints

REASON_SHAPES_MAX = 3
"""Shapes whose hosts are explained in one reason; the rest is counted."""
_REFUSAL = re.compile(r"(?:\(|; )(\d+) hosts?: (.+?)(?=; \d+ hosts?: |\)(?:; |$))")


def place(job_id: JobId, gangs: Sequence[ReadyGang], lease: HostLease) -> PlacementBatch:
    """Place what fits. Equal arguments give equal placements."""
    hosts = _Hosts(lease.hosts)
    gangs, waiting = _put_back(hosts, gangs, dict(lease.awaited))
    unplaced_count, unplaced = len(waiting), list[Unplaced]()
    reasons = [_explain_waiting(waiting)] if waiting else []
    for shape, labels, pods, is_gang in _batches(gangs):
        placed = hosts.put(shape, labels, pods, is_gang)
        left = len(pods) - placed
        if left:
            unplaced_count += left
            reasons.append(_explain(hosts, shape, labels, left, is_gang, lease))
            named = pods[:1] if is_gang else pods[placed:]
            unplaced.append(Unplaced(tuple(instance for instance, _ in named), lease.unfit.get(shape, "")))
    reason = _join(reasons)
    return PlacementBatch(job_id, lease.lease_id, hosts.placements(), unplaced_count, reason, tuple(unplaced))


def _put_back(
    hosts: _Hosts, gangs: Sequence[ReadyGang], awaited: Mapping[int, Hostname]
) -> tuple[list[ReadyGang], list[Hostname]]:
    """Pods that come back go to their hosts before others choose. -> who is left to go anywhere, and the hosts of those
    that rather wait for theirs."""
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
    """The hosts of one lease as arrays ``[H]`` and ``[H,R]``, and what was put on them."""

    def __init__(self, hosts: Sequence[LeasedHost]) -> None:
        self.hosts = hosts
        self.free = np.array([tuple(host.free) for host in hosts], np.int64).reshape(len(hosts), len(RESOURCE_KINDS))
        self._capacity = np.array([tuple(host.capacity) for host in hosts], np.int64).reshape(self.free.shape)
        self.revocable_cpu = np.array([host.revocable.cpu_milli for host in hosts], np.int64)
        self.ports_free = np.array([port_count(host.ports) for host in hosts], np.int64)
        self.pods_held = np.zeros(len(hosts), np.int64)
        self._exclusive = np.array([any(k == EXCLUSIVE_LABEL for k, _ in host.labels) for host in hosts], np.bool_)
        self._shunned = np.array([host.is_shunned for host in hosts], np.bool_)
        self._label_counts: dict[tuple[str, str], Ints] = {}
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
        room = room_for(self._free_for(shape), _need(shape), self.ports_free, shape.port_count)
        room[~self.is_allowed(shape)] = 0
        if shape.constraint is not None and pod_labels_named(shape.constraint):
            np.minimum(room, self._room_by_pods(shape.constraint, labels, int(room.max(initial=0))), out=room)
        return room

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

    def _labels(self, key: str, value: str) -> Ints:
        """[H] occurrences of a host label."""
        counts = self._label_counts.get((key, value))
        if counts is None:
            pair = (key, value)
            counts = np.array([host.labels.count(pair) for host in self.hosts], np.int64)
            if key == HOSTNAME_LABEL:
                counts = np.array([int(host.hostname == value) for host in self.hosts], np.int64)
            self._label_counts[pair] = counts
        return counts

    def is_allowed(self, shape: PodShape) -> Flags:
        """[H] host labels and exclusiveness; what pods are there does not matter here."""
        allowed = ~self.is_kept(shape.constraint)
        if shape.constraint is not None:
            allowed &= self.verdict(shape.constraint, (), None) >= 0
        return allowed

    def is_kept(self, constraint: Constraint | None) -> Flags:
        """[H] exclusive hosts that this constraint does not mention."""
        if mentions(constraint, EXCLUSIVE_LABEL):
            return np.zeros(len(self.hosts), np.bool_)
        return self._exclusive

    def _room_by_pods(self, constraint: Constraint, labels: _Labels, at_most: int) -> Ints:
        """[H] how many pods with these labels may follow each other before the constraint refuses the next.

        Beyond the largest count named in the constraint the verdict no longer changes.
        """
        names = [leaf for leaf in leaves(constraint) if isinstance(leaf, PodLabel)]
        steps = min(at_most, max(leaf.count for leaf in names) + 2)
        room = np.zeros(len(self.hosts), np.int64)
        is_open = np.ones(len(self.hosts), np.bool_)
        for step in range(steps):
            is_open &= self.verdict(constraint, labels, step) >= 0
            room += is_open
        room[is_open] = at_most
        return room

    def verdict(self, constraint: Constraint, labels: _Labels, more_pods: int | None) -> Ints:
        """[H] 1 match, -1 mismatch, 0 no say, as ``constraints.evaluate``, were ``more_pods`` more with these labels
        there.

        None: pods are not looked at.
        """
        match constraint:
            case HostLabel(key, value, condition, count):
                return _signs(COMPARE[condition], self._labels(key, value), count)
            case PodLabel(key, value, condition, count):
                if more_pods is None:
                    return np.zeros(len(self.hosts), np.int64)
                more = more_pods if (key, value) in labels else 0
                return _signs(COMPARE[condition], self._pods_with((key, value)) + more, count)
            case AllOf(parts) | AnyOf(parts):
                if not parts:
                    return np.zeros(len(self.hosts), np.int64)
                verdicts = np.stack([self.verdict(part, labels, more_pods) for part in parts])
                decisive = -1 if isinstance(constraint, AllOf) else 1
                is_decided = (verdicts == decisive).any(axis=0)
                return np.where(is_decided, decisive, -decisive * (verdicts == -decisive).any(axis=0))


def _signs(compare: object, counts: Ints, bound: int) -> Ints:
    assert callable(compare)
    return np.where(compare(counts, bound), 1, -1)


def _need(shape: PodShape) -> Ints:
    return np.array(tuple(shape.resources), np.int64)


@dataclass(slots=True)
class _Refusals:
    """Hosts still without an explanation, and the explanations so far."""

    open: Flags
    texts: list[str]

    def add(self, refused: Flags, rule: str) -> None:
        hosts = self.open & refused
        count = int(hosts.sum())
        if count:
            self.texts.append(f"{count} host{'s' if count > 1 else ''}: {rule}")
            self.open = self.open & ~refused


def _explain(hosts: _Hosts, shape: PodShape, labels: _Labels, left: int, is_gang: bool, lease: HostLease) -> str:
    """Each host counts under the first rule that it fails, after this batch took its part."""
    found = _Refusals(np.ones(len(hosts.hosts), np.bool_), [])
    found.add(hosts.is_kept(shape.constraint), f"kept for pods that ask for {EXCLUSIVE_LABEL}")
    for part in conjuncts(shape.constraint):
        found.add(hosts.verdict(part, (), None) < 0, describe(part))
    free = hosts._free_for(shape)
    for kind, (name, amount) in enumerate(zip(RESOURCE_KINDS, shape.resources, strict=True)):
        short = free[:, kind] < amount
        if (found.open & short).any():
            most = int(free[found.open & short, kind].max())
            label = f"revocable {name}" if shape.revocable and kind == CPU else name
            found.add(short, f"{label} {_display(name, amount)} wanted, at most {_display(name, most)} free")
    short = hosts.ports_free < shape.port_count
    if (found.open & short).any():
        most = int(hosts.ports_free[found.open & short].max())
        found.add(short, f"{shape.port_count} ports wanted, at most {most} free")
    for part in conjuncts(shape.constraint):
        found.add(hosts.verdict(part, (), 0) < 0, describe(part))
    room = int(np.minimum(hosts.room(shape, labels), left)[found.open].sum())
    found.add(found.open, f"room for {room} of the gang's {left} pods")
    found.texts += [f"{count} host{'s' if count > 1 else ''}: {rule}" for rule, count in sorted(lease.rejected.items())]
    what = f"gang of {left}" if is_gang else f"{left} pod{'s' if left > 1 else ''}"
    return f"{what} without a host ({'; '.join(found.texts) or 'no host offered'})"


def _explain_waiting(hosts: Sequence[Hostname]) -> str:
    places, pods = len(set(hosts)), len(hosts)
    rule = "no room yet for a pod that comes back and waits for it"
    return f"{pods} pod{'s' if pods > 1 else ''} without a host ({places} host{'s' if places > 1 else ''}: {rule})"


def refusing_hosts(reason: str) -> tuple[tuple[int, str], ...]:
    """The ``(hosts, rule)`` that the reason of a ``PlacementBatch`` names, in its order."""
    return tuple((int(count), rule) for count, rule in _REFUSAL.findall(reason))


def _display(kind: str, amount: int) -> str:
    return f"{amount / 1000:.1f}" if kind in ("cpu", "gpu") else f"{amount} MiB"


def _join(reasons: Sequence[str]) -> str:
    shown = reasons[:REASON_SHAPES_MAX]
    more = len(reasons) - len(shown)
    return "; ".join(shown) + (f"; and {more} more shapes" if more > 0 else "")
