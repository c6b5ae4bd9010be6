"""The registered hosts of the cluster, with sums over them that are updated incrementally, as computing them is
slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from peloton.hosts.announced import NOTHING, RegisteredHost
from peloton.lifecycle.constraints import HOSTNAME_LABEL, label_pairs, labels_from, only_value
from peloton.model.host_pool import HOST_POOL_LABEL
from peloton.model.ids import Hostname
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from peloton.scheduling.fit import PORTS_MAX, HostKind, HostView, capacity_misfit

_Kind = tuple[Resources, tuple[tuple[str, str], ...]]
"""Capacity, and labels without the host's name."""


class RegisteredHosts:
    def __init__(self) -> None:
        self.by_name: dict[Hostname, RegisteredHost] = {}
        self.holders: dict[Hostname, RegisteredHost] = {}  # of revocable cpu
        self.revocable_cpu_milli = 0
        self.kinds_version = 0  # changes with the kinds of hosts
        self._news: set[Hostname] = set()  # hosts that joined, left or changed their kind since ``take_news``
        self.total = NOTHING
        self._by_host_pool: dict[str, tuple[Resources, int]] = {}  # capacity and revocable cpu_milli
        self._kinds: Counter[_Kind] = Counter()
        self._free: Counter[tuple[Resources, int]] = Counter()  # free amounts and free revocable cpu_milli -> hosts

    def replace(self, hosts: Iterable[RegisteredHost]) -> list[Hostname]:
        """Set the registered hosts. Returns the hosts whose capacity has changed. Hosts that are the same objects as
        before cost next to nothing."""
        resized: list[Hostname] = []
        before, now = self.by_name, {host.hostname: host for host in hosts}
        for name in before.keys() - now.keys():
            self._count(before[name], -1)
            self._count_kind(before[name], -1)
            resized.append(name)
        for name, host in now.items():
            if (old := before.get(name)) is not host:
                if old is not None:
                    self._count(old, -1)
                self._count(host, 1)
                if old is None or old.capacity != host.capacity:
                    resized.append(name)
                if old is None or (old.capacity, old.labels) != (host.capacity, host.labels):
                    if old is not None:
                        self._count_kind(old, -1)
                    self._count_kind(host, 1)
        self.by_name = now
        return resized

    def _count(self, host: RegisteredHost, sign: int) -> None:
        self.revocable_cpu_milli += host.revocable.cpu_milli * sign
        free = host.free, host.revocable.cpu_milli - host.revocable_held.cpu_milli
        self._free[free] += sign
        if not self._free[free]:
            del self._free[free]
        capacity = host.capacity * sign
        self.total += capacity
        _add(self._by_host_pool, host, capacity, host.revocable.cpu_milli * sign)
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
        self._news.add(host.hostname)

    def take_news(self) -> list[Hostname]:
        """Return hosts that joined, left or changed their kind since the last call."""
        news, self._news = sorted(self._news), set()
        return news

    def capacity_of(self, hostname: Hostname) -> Resources:
        host = self.by_name.get(hostname)
        return host.capacity if host else NOTHING

    def kinds(self, named: Iterable[Hostname], without: Collection[Hostname] = ()) -> list[HostKind]:
        """Return all hosts by kind, ``without`` some; each named host is a kind of its own."""
        left_out = [self.by_name[name] for name in {*without} if name in self.by_name]
        apart = [self.by_name[name] for name in sorted({*named}.difference(without)) if name in self.by_name]
        counts = self._kinds - Counter(_kind(host) for host in (*apart, *left_out))
        found = [HostKind(capacity, labels_from(labels), count) for (capacity, labels), count in counts.items()]
        return found + [HostKind(host.capacity, host.labels) for host in apart]

    def free_total(self) -> Resources:
        """Return the free resources that the cluster reports, offered or not."""
        return sum((free * count for (free, _), count in self._free.items()), NOTHING)

    def has_capacity(self, shape: PodShape) -> bool:
        """Return whether a host has enough free resources, by the amounts alone."""
        views = (HostView({}, free, slack, PORTS_MAX) for free, slack in self._free)
        return any(capacity_misfit(shape, view) is None for view in views)

    def capacity(
        self, unavailable: Collection[Hostname], closed: Mapping[Hostname, int]
    ) -> tuple[Resources, Resources, int]:
        """Return sums without the hosts in ``unavailable``, and the number of the others. Closed hosts count with the
        revocable cpu that their pods hold, as they take no more."""
        gone = {name: self.by_name[name] for name in unavailable if name in self.by_name}
        total = self.total - sum((host.capacity for host in gone.values()), NOTHING)
        slack = self.revocable_cpu_milli - sum(host.revocable.cpu_milli for host in gone.values())
        for name in closed.keys() - gone.keys():
            if name in self.by_name:
                slack -= max(self.by_name[name].revocable.cpu_milli - closed[name], 0)
        return total, Resources(cpu_milli=slack), len(self.by_name) - len(gone)

    def by_host_pool(
        self, unavailable: Collection[Hostname], closed: Mapping[Hostname, int]
    ) -> dict[str, tuple[Resources, int]]:
        """Return capacity and revocable cpu_milli of each host pool; empty while host pools are disabled."""
        found = dict(self._by_host_pool)
        if not found:
            return found
        gone = [self.by_name[name] for name in unavailable if name in self.by_name]
        for host in gone:
            _add(found, host, host.capacity * -1, -host.revocable.cpu_milli)
        for name in self.by_name.keys() & closed.keys() - {host.hostname for host in gone}:
            host = self.by_name[name]
            _add(found, host, NOTHING, -max(host.revocable.cpu_milli - closed[name], 0))
        return found


def _add(sums: dict[str, tuple[Resources, int]], host: RegisteredHost, capacity: Resources, slack: int) -> None:
    pool = only_value(host.labels, HOST_POOL_LABEL)
    if pool is None:
        return
    before = sums.get(pool, (NOTHING, 0))
    sums[pool] = (before[0] + capacity, before[1] + slack)


def _kind(host: RegisteredHost) -> _Kind:
    return host.capacity, tuple(label for label in label_pairs(host.labels) if label[0] != HOSTNAME_LABEL)
