"""READY hosts by kind: a lease judges each kind once, and then touches only the hosts that it takes."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.driver import NOTHING
from services.hostmgr.hosts.host_room import HostRoom, Kind

STALE_MAX = 100
"""Stale entries of a heap, beside one for each member, before it is rebuilt."""


class HostClass:
    """Hosts of one kind, in the order in which they came."""

    __slots__ = ("_heap", "_out", "kind", "members", "view")

    def __init__(self, first: HostRoom) -> None:
        self.kind = first.kind
        self.view = first.view_of_kind
        self.members: dict[Hostname, HostRoom] = {}
        # Entries of all members, and stale ones of former members, which may be back in a later place.
        self._heap: list[tuple[int, Hostname]] = []
        self._out: list[tuple[int, Hostname]] = []

    @property
    def like(self) -> HostRoom:
        """One of them."""
        return next(iter(self.members.values()))

    def add(self, host: HostRoom) -> None:
        self.members[host.hostname] = host
        if len(self._heap) > 2 * len(self.members) + STALE_MAX:
            self._heap = sorted((each.order, name) for name, each in self.members.items())
        else:
            heapq.heappush(self._heap, (host.order, host.hostname))

    def in_order(self) -> Iterator[tuple[int, Hostname]]:
        """``restore`` has to follow."""
        last = None
        while self._heap:
            entry = heapq.heappop(self._heap)
            host = self.members.get(entry[1])
            if host is not None and host.order == entry[0] and entry != last:
                last = entry
                self._out.append(entry)
                yield entry

    def restore(self) -> None:
        for entry in self._out:
            heapq.heappush(self._heap, entry)
        self._out = []


class ReadyHosts:
    def __init__(self) -> None:
        self._classes: dict[Kind, HostClass] = {}
        self._class_of: dict[Hostname, HostClass] = {}

    def __len__(self) -> int:
        return len(self._class_of)

    def __contains__(self, hostname: Hostname) -> bool:
        return hostname in self._class_of

    def classes(self) -> list[HostClass]:
        return list(self._classes.values())

    def put(self, host: HostRoom) -> None:
        """Call after each change of a host or of its lease; leased hosts are removed."""
        kind = None if host.lease_id else host.kind
        known = self._class_of.get(host.hostname)
        if known is not None:
            if known.kind == kind:
                known.members[host.hostname] = host
                return
            self.drop(host.hostname)
        if kind is not None:
            found = self._classes.get(kind)
            if found is None:
                found = self._classes[kind] = HostClass(host)
            found.add(host)
            self._class_of[host.hostname] = found

    def drop(self, hostname: Hostname) -> None:
        known = self._class_of.pop(hostname, None)
        if known is not None:
            del known.members[hostname]
            if not known.members:
                del self._classes[known.kind]

    def clear(self) -> None:
        self._classes.clear()
        self._class_of.clear()

    def counts_without(self, apart: Iterable[Hostname]) -> Mapping[Kind, int]:
        """Hosts of each kind that are not among these."""
        away = Counter(self._class_of[name].kind for name in apart if name in self._class_of)
        return {kind: len(each.members) - away[kind] for kind, each in self._classes.items()}

    def free_without(self, apart: Iterable[Hostname]) -> Resources:
        """What is free on hosts that take a pod and are not among these."""
        counts = self.counts_without(apart)
        taking = ((each.like, counts[kind]) for kind, each in self._classes.items() if each.view.pod_slots)
        return sum((like.free * count for like, count in taking), NOTHING)


def first_come(
    classes: Iterable[HostClass], others: Iterable[HostRoom], apart: Collection[Hostname]
) -> Iterator[Hostname]:
    """Members of these classes that are not ``apart``, and the other hosts, in the order in which they came. The caller
    restores the classes afterwards."""
    streams = [_without(each.in_order(), apart) for each in classes]
    own = sorted((host.order, host.hostname) for host in others)
    return (name for _, name in heapq.merge(own, *streams))


def _without(entries: Iterable[tuple[int, Hostname]], apart: Collection[Hostname]) -> Iterator[tuple[int, Hostname]]:
    return (entry for entry in entries if entry[1] not in apart)
