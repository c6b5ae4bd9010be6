"""The registered hosts of the cluster, with sums over them that are kept up to date: adding up takes too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from peloton.lifecycle.constraints import HOSTNAME_LABEL
from peloton.model.ids import Hostname
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from peloton.scheduling.fit import PORTS_MAX, HostKind, HostView, room_misfit
from services.hostmgr.driver import NOTHING, RegisteredHost

_Kind = tuple[Resources, tuple[tuple[str, str], ...]]
"""Capacity, and labels without the host's name."""


class RegisteredHosts:
    def __init__(self) -> None:
        self.by_name: dict[Hostname, RegisteredHost] = {}
        self.holders: dict[Hostname, RegisteredHost] = {}  # of revocable cpu
        self.revocable_cpu_milli = 0
        self.kinds_version = 0  # changes with the kinds of hosts
        self._capacity = [0, 0, 0, 0]  # [R]
        self._kinds: Counter[_Kind] = Counter()
        self._free: Counter[tuple[Resources, int]] = Counter()  # free amounts and free revocable cpu_milli -> hosts

    @property
    def total(self) -> Resources:
        return Resources(*self._capacity)

    def replace(self, hosts: Iterable[RegisteredHost]) -> None:
        """Exactly these are registered now. Hosts that are the same objects as before cost next to nothing."""
        before, now = self.by_name, {host.hostname: host for host in hosts}
        for name in before.keys() - now.keys():
            self._count(before[name], -1)
            self._count_kind(before[name], -1)
        for name, host in now.items():
            if (old := before.get(name)) is not host:
                if old is not None:
                    self._count(old, -1)
                self._count(host, 1)
                if old is None or (old.capacity, old.labels) != (host.capacity, host.labels):
                    if old is not None:
                        self._count_kind(old, -1)
                    self._count_kind(host, 1)
        self.by_name = now

    def _count(self, host: RegisteredHost, sign: int) -> None:
        self.revocable_cpu_milli += host.revocable.cpu_milli * sign
        free = host.free, host.revocable.cpu_milli - host.revocable_held.cpu_milli
        self._free[free] += sign
        if not self._free[free]:
            del self._free[free]
        for kind, amount in enumerate(host.capacity):
            self._capacity[kind] += amount * sign
        if host.revocable_held.cpu_milli:
            if sign > 0:
                self.holders[host.hostname] = host
            else:
                del self.holders[host.hostname]

    def _count_kind(self, host: RegisteredHost, sign: int) -> None:
        kind = _kind(host)
        self._kinds[kind] += sign
        if not self._kinds[kind]:
            del self._kinds[kind]
        self.kinds_version += 1

    def kinds(self, named: Iterable[Hostname]) -> list[HostKind]:
        """All hosts by kind; each named host is a kind of its own."""
        apart = [self.by_name[name] for name in sorted({*named}) if name in self.by_name]
        counts = self._kinds - Counter(_kind(host) for host in apart)
        found = [HostKind(capacity, dict(labels), count) for (capacity, labels), count in counts.items()]
        return found + [HostKind(host.capacity, host.labels) for host in apart]

    def has_room(self, shape: PodShape) -> bool:
        """Whether a host has room, by the amounts alone."""
        views = (HostView({}, free, slack, PORTS_MAX) for free, slack in self._free)
        return any(room_misfit(shape, view) is None for view in views)

    def capacity(self, away: Collection[Hostname], closed: Mapping[Hostname, int]) -> tuple[Resources, Resources, int]:
        """Sums without hosts that are away, and the number of the others. Closed hosts count with the revocable cpu
        that their pods hold, as no more pods may come."""
        gone = {name: self.by_name[name] for name in away if name in self.by_name}
        total = self.total - sum((host.capacity for host in gone.values()), NOTHING)
        slack = self.revocable_cpu_milli - sum(host.revocable.cpu_milli for host in gone.values())
        for name in closed.keys() - gone.keys():
            if name in self.by_name:
                slack -= max(self.by_name[name].revocable.cpu_milli - closed[name], 0)
        return total, Resources(cpu_milli=slack), len(self.by_name) - len(gone)


def _kind(host: RegisteredHost) -> _Kind:
    return host.capacity, tuple(sorted(label for label in host.labels.items() if label[0] != HOSTNAME_LABEL))
