"""Which READY hosts a lease takes for which pods, and which rule keeps the others from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

from peloton.lifecycle.avoidance import NO_AVERSION, Aversion
from peloton.lifecycle.constraints import HOSTNAME_LABEL, leaves, pod_labels_named
from peloton.model.host import Desired
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import Constraint, HostLabel, PodShape, Strategy
from peloton.model.reason import HostRule, Misfit, RefusingHosts, merged
from peloton.model.resources import Resources, free_share
from peloton.scheduling.fit import PORTS_MAX, HostView, by_key, misfit, room
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_room import HostRoom
from services.hostmgr.hosts.host_table import HostTable
from services.hostmgr.hosts.ready_hosts import HostClass, first_come
from services.hostmgr.hosts.room_holds import PodKey

HOSTS_PER_LEASE_MAX = 1_000
LEASED = Misfit(HostRule.LEASED)
GOES_NOTICE_NS = 3 * 3_600 * 10**9
"""A host that the cluster will take away within this time gets no new pods."""


Refused = list[tuple[Misfit, int]]
"""The rule that hosts fail, and how many."""


@dataclass(frozen=True, slots=True)
class HostChooser:
    table: HostTable
    wall_ns: Callable[[], int]

    def pick_desired(
        self,
        job_id: JobId,
        desired: Sequence[Desired],
        mine: frozenset[PodKey],
        picked: dict[Hostname, HostRoom],
    ) -> tuple[Counter[PodShape], tuple[tuple[int, Hostname], ...], bool]:
        """Add the hosts to which pods come back. Returns, by shape, pods that need no other host; instances that wait
        for room on their host, while it is held for them; and whether the host of one is leased."""
        settled: Counter[PodShape] = Counter()
        awaited: list[tuple[int, Hostname]] = []
        is_leased = False
        for pod in desired[:HOSTS_PER_LEASE_MAX]:
            host = self.table.rooms.hosts.get(pod.hostname)
            if (host is None and pod.hostname not in self.table.registered.by_name) or self.table.is_away(pod.hostname):
                continue
            is_held = self.table.holds.is_held(pod.hostname, (job_id, pod.instance_id))
            if is_held:
                awaited.append((pod.instance_id, pod.hostname))
            if host is not None and host.lease_id:
                is_leased = True
            elif host is not None and not self._misfit(host, pod.shape, mine):
                picked[pod.hostname] = self._as_seen(host, mine)
                settled[pod.shape] += 1
                continue
            settled[pod.shape] += is_held
        return settled, tuple(awaited), is_leased

    def pick(
        self,
        shape: PodShape,
        count: int,
        mine: frozenset[PodKey],
        picked: dict[Hostname, HostRoom],
        aversion: Aversion = NO_AVERSION,
    ) -> tuple[bool, tuple[RefusingHosts, ...]]:
        """Add hosts until ``count`` pods fit; returns whether they do, and if not, the hosts that take none by rule."""
        missing = count
        is_one_each = bool(pod_labels_named(shape.constraint)) or shape.strategy is not Strategy.PACK_HOST
        refused: Refused = [(LEASED, len(self.table.rooms.hosts) - len(self.table.rooms.ready))]
        with closing(self._fitting(shape, mine, refused, aversion)) as fitting:
            while missing > 0 and len(picked) < HOSTS_PER_LEASE_MAX and (host := next(fitting, None)):
                picked[host.hostname] = self._as_seen(host, mine)
                missing -= 1 if is_one_each else room(shape, picked[host.hostname].view)
        return (False, merged(refused)) if missing > 0 else (True, ())

    def _fitting(
        self, shape: PodShape, mine: frozenset[PodKey], refused: Refused, aversion: Aversion
    ) -> Generator[HostRoom, None, None]:
        """Hosts that take the pod. Last come those on which pods of its job failed, and then those that wait for their
        maintenance. Hosts of one kind are judged together; ``apart`` are hosts that differ from their kind in holds,
        labels of pods, maintenance and the like."""
        apart = {*self.table.holds.hostnames(), *self.table.closed, *self.table.maintained, *self.table.name_taken}
        apart |= {*aversion.avoided, *aversion.shunned}
        apart |= {*hosts_named(shape.constraint)}
        apart |= self.table.pod_labels.hosts_with(pod_labels_named(shape.constraint))
        counts = self.table.rooms.ready.counts_without(apart)
        open_classes: list[HostClass] = []
        for each in self.table.rooms.ready.classes():
            reason = self._goes_soon(each.like) or misfit(shape, each.view)
            if reason is None:
                open_classes.append(each)
            else:
                refused.append((reason, counts[each.kind]))
        try:
            is_avoiding: bool | None = None  # None: not known yet
            for hostname in self._in_order(shape, open_classes, apart, aversion):
                host = self.table.rooms.hosts[hostname]
                reason = self._misfit(host, shape, mine) if hostname in apart else None
                if reason is None and hostname in aversion.avoided:
                    if is_avoiding is None:
                        is_avoiding = self._fits_elsewhere(shape, aversion.avoided)
                    reason = aversion.avoided[hostname] if is_avoiding else None
                if reason is None:
                    yield host
                else:
                    refused.append((reason, 1))
        finally:
            for each in open_classes:
                each.restore()

    def _fits_elsewhere(self, shape: PodShape, avoided: Collection[Hostname]) -> bool:
        """Whether a host that is not avoided could take the pod if it had room: then the pod waits for it, else it
        would wait for ever. Pods that its constraint counts are assumed to stay, as those of a service do."""
        named = pod_labels_named(shape.constraint)
        return any(
            name not in avoided
            and misfit(shape, _whole(host), by_key(self.table.pod_labels.on_host(name, named))) is None
            and self._closed_for(name, shape) is None
            for name, host in self.table.registered.by_name.items()
        )

    def _in_order(
        self, shape: PodShape, classes: Sequence[HostClass], apart: Collection[Hostname], aversion: Aversion
    ) -> Iterator[Hostname]:
        ready = [self.table.rooms.hosts[name] for name in apart if name in self.table.rooms.ready]
        if shape.strategy is Strategy.EMPTIEST_HOST:
            return self._emptiest(shape, classes, ready, apart, aversion)
        stay = [host for host in ready if not self._rank(host.hostname, aversion)]
        last = sorted(
            (rank, host.order, host.hostname) for host in ready if (rank := self._rank(host.hostname, aversion))
        )
        return chain(first_come(classes, stay, apart), (name for *_, name in last))

    def _rank(self, hostname: Hostname, aversion: Aversion) -> int:
        """Hosts of a lower rank come first."""
        if hostname in self.table.maintained:
            return 3
        if hostname in aversion.avoided:
            return 2
        return 1 if hostname in aversion.shunned else 0

    def _emptiest(
        self,
        shape: PodShape,
        classes: Sequence[HostClass],
        ready: Sequence[HostRoom],
        apart: Collection[Hostname],
        aversion: Aversion,
    ) -> Iterator[Hostname]:
        groups: dict[tuple[int, int], list[Hostname]] = {}
        for host in ready:
            share = free_share(host.free, self.table.capacity_of(host.hostname), shape.resources)
            groups.setdefault((self._rank(host.hostname, aversion), -share), []).append(host.hostname)
        for each in classes:
            by_capacity: dict[Resources, list[Hostname]] = {}
            for name in each.members:
                if name not in apart:
                    by_capacity.setdefault(self.table.capacity_of(name), []).append(name)
            for capacity, names in by_capacity.items():
                share = free_share(each.like.free, capacity, shape.resources)
                groups.setdefault((0, -share), []).extend(names)
        return (name for group in sorted(groups) for name in sorted(groups[group]))

    def _as_seen(self, host: HostRoom, mine: frozenset[PodKey]) -> HostRoom:
        """The host without the room that is held for other pods."""
        return host.without(*self.table.holds.held(host.hostname, mine))

    def _misfit(self, host: HostRoom, shape: PodShape, mine: frozenset[PodKey]) -> Misfit | None:
        """Why the host does not take the pod; leases do not matter."""
        if reason := self._closed_for(host.hostname, shape):
            return reason
        pods = by_key(self.table.pod_labels.on_host(host.hostname, pod_labels_named(shape.constraint)))
        seen = self._as_seen(host, mine)
        reason = misfit(shape, seen.view, pods)
        if reason and seen is not host and misfit(shape, host.view, pods) is None:
            return Misfit(HostRule.HELD)
        return reason

    def _closed_for(self, hostname: Hostname, shape: PodShape) -> Misfit | None:
        """Why the host takes no such pods, whatever room it has."""
        if shape.revocable and hostname in self.table.closed:
            return Misfit(HostRule.CLOSED)
        if self.table.is_away(hostname):
            return Misfit(HostRule.MAINTENANCE)
        if hostname in self.table.name_taken:
            return Misfit(HostRule.NAME_TAKEN, name=self.table.name_taken[hostname])
        return self._goes_soon(self.table.rooms.hosts[hostname]) if hostname in self.table.rooms.hosts else None

    def _goes_soon(self, host: HostRoom) -> Misfit | None:
        start_ns = host.goes_ns
        if start_ns and start_ns - GOES_NOTICE_NS <= self.wall_ns():
            return Misfit(HostRule.GOES_SOON)
        return None


def hosts_named(constraint: Constraint | None) -> Iterator[Hostname]:
    return (
        Hostname(leaf.value)
        for leaf in leaves(constraint)
        if isinstance(leaf, HostLabel) and leaf.key == HOSTNAME_LABEL
    )


def _whole(host: RegisteredHost) -> HostView:
    return HostView(host.labels, host.capacity, host.revocable.cpu_milli, PORTS_MAX)
