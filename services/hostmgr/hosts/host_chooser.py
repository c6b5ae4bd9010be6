"""Which READY hosts a lease takes for which pods, and which rule keeps the others from it.

Under the lock of ``HostPool``, whose state this looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

from peloton.lifecycle.avoidance import NO_AVERSION, Aversion
from peloton.lifecycle.constraints import HOSTNAME_LABEL, leaves, pod_labels_named
from peloton.model.host import Desired
from peloton.model.ids import Hostname, JobId
from peloton.model.maintenance import HostMaintenance
from peloton.model.pod import Constraint, HostLabel, PodShape, Strategy
from peloton.model.reason import HostRule, Misfit, RefusingHosts, merged
from peloton.model.resources import Resources, free_share
from peloton.scheduling.fit import PORTS_MAX, HostView, by_key, misfit, room
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_room import HostRoom
from services.hostmgr.hosts.pod_labels import PodLabelIndex
from services.hostmgr.hosts.ready_hosts import HostClass, ReadyHosts, first_come
from services.hostmgr.hosts.registered_hosts import RegisteredHosts
from services.hostmgr.hosts.room_holds import PodKey, RoomHolds

HOSTS_PER_LEASE_MAX = 1_000
LEASED = Misfit(HostRule.LEASED)
GOES_NOTICE_NS = 3 * 3_600 * 10**9
"""A host that the cluster will take away within this time gets no new pods."""


Refused = list[tuple[Misfit, int]]
"""The rule that hosts fail, and how many."""


@dataclass(frozen=True, slots=True)
class HostChooser:
    hosts: Mapping[Hostname, HostRoom]
    ready: ReadyHosts
    registered: RegisteredHosts
    holds: RoomHolds
    pod_labels: PodLabelIndex
    closed: Mapping[Hostname, int]
    maintained: Mapping[Hostname, HostMaintenance]
    refused: Mapping[Hostname, str]
    wall_ns: Callable[[], int]

    def is_away(self, hostname: Hostname) -> bool:
        return hostname in self.maintained and self.maintained[hostname].is_away

    def capacity_of(self, hostname: Hostname) -> Resources:
        host = self.registered.by_name.get(hostname)
        return host.capacity if host else Resources()

    def pick_desired(
        self,
        job_id: JobId,
        desired: Sequence[Desired],
        mine: frozenset[PodKey],
        picked: dict[Hostname, HostRoom],
    ) -> tuple[Counter[PodShape], tuple[tuple[int, Hostname], ...], bool]:
        """Add the hosts to which pods come back. Pods that need no other host, and those that wait for room on theirs:
        as long as it is held for them and the host is there. And whether the host of one is leased."""
        settled: Counter[PodShape] = Counter()
        awaited: list[tuple[int, Hostname]] = []
        is_leased = False
        for pod in desired[:HOSTS_PER_LEASE_MAX]:
            host = self.hosts.get(pod.hostname)
            if (host is None and pod.hostname not in self.registered.by_name) or self.is_away(pod.hostname):
                continue
            is_held = self.holds.is_held(pod.hostname, (job_id, pod.instance_id))
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
        """Add hosts until ``count`` pods fit; returns whether they do, and if not, all hosts that do not take one."""
        missing = count
        is_one_each = bool(pod_labels_named(shape.constraint)) or shape.strategy is not Strategy.PACK_HOST
        refused: Refused = [(LEASED, len(self.hosts) - len(self.ready))]
        with closing(self._fitting(shape, mine, refused, aversion)) as fitting:
            while missing > 0 and len(picked) < HOSTS_PER_LEASE_MAX and (host := next(fitting, None)):
                picked[host.hostname] = self._as_seen(host, mine)
                missing -= 1 if is_one_each else room(shape, picked[host.hostname].view)
        return (False, merged(refused)) if missing > 0 else (True, ())

    def _fitting(
        self, shape: PodShape, mine: frozenset[PodKey], refused: Refused, aversion: Aversion
    ) -> Generator[HostRoom, None, None]:
        """Hosts that take the pod. Last come those on which pods of its job failed, and then those that will go soon:
        what they get has to leave them again. Hosts of one kind are judged together, unless something is known of one
        that its kind does not tell."""
        apart = {*self.holds.hostnames(), *self.closed, *self.maintained, *self.refused}
        apart |= {*aversion.avoided, *aversion.shunned}
        apart |= {*hosts_named(shape.constraint)}
        apart |= self.pod_labels.hosts_with(pod_labels_named(shape.constraint))
        counts = self.ready.counts_without(apart)
        open_classes: list[HostClass] = []
        for each in self.ready.classes():
            reason = self._goes_soon(each.like) or misfit(shape, each.view)
            if reason is None:
                open_classes.append(each)
            else:
                refused.append((reason, counts[each.kind]))
        try:
            is_avoiding: bool | None = None  # not asked yet
            for hostname in self._in_order(shape, open_classes, apart, aversion):
                host = self.hosts[hostname]
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
        """Hosts that are not avoided could take the pod, had they room: it is to wait for that. Else it would wait for
        ever. Pods that its constraint counts are taken to stay: those of a service do."""
        named = pod_labels_named(shape.constraint)
        return any(
            name not in avoided
            and misfit(shape, _whole(host), by_key(self.pod_labels.on_host(name, named))) is None
            and self._kept_back(name, shape) is None
            for name, host in self.registered.by_name.items()
        )

    def _in_order(
        self, shape: PodShape, classes: Sequence[HostClass], apart: Collection[Hostname], aversion: Aversion
    ) -> Iterator[Hostname]:
        ready = [self.hosts[name] for name in apart if name in self.ready]
        if shape.strategy is Strategy.EMPTIEST_HOST:
            return self._emptiest(shape, classes, ready, apart, aversion)
        stay = [host for host in ready if not self._rank(host.hostname, aversion)]
        last = sorted(
            (rank, host.order, host.hostname) for host in ready if (rank := self._rank(host.hostname, aversion))
        )
        return chain(first_come(classes, stay, apart), (name for *_, name in last))

    def _rank(self, hostname: Hostname, aversion: Aversion) -> int:
        """Hosts of a lower rank come first."""
        if hostname in self.maintained:
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
            share = free_share(host.free, self.capacity_of(host.hostname), shape.resources)
            groups.setdefault((self._rank(host.hostname, aversion), -share), []).append(host.hostname)
        for each in classes:
            by_capacity: dict[Resources, list[Hostname]] = {}
            for name in each.members:
                if name not in apart:
                    by_capacity.setdefault(self.capacity_of(name), []).append(name)
            for capacity, names in by_capacity.items():
                share = free_share(each.like.free, capacity, shape.resources)
                groups.setdefault((0, -share), []).extend(names)
        return (name for group in sorted(groups) for name in sorted(groups[group]))

    def _as_seen(self, host: HostRoom, mine: frozenset[PodKey]) -> HostRoom:
        """The host without the room that is held for others."""
        return host.without(self.holds.held(host.hostname, mine))

    def _misfit(self, host: HostRoom, shape: PodShape, mine: frozenset[PodKey]) -> Misfit | None:
        """Why the host does not take the pod, leases aside."""
        if reason := self._kept_back(host.hostname, shape):
            return reason
        pods = by_key(self.pod_labels.on_host(host.hostname, pod_labels_named(shape.constraint)))
        seen = self._as_seen(host, mine)
        reason = misfit(shape, seen.view, pods)
        if reason and seen is not host and misfit(shape, host.view, pods) is None:
            return Misfit(HostRule.HELD)
        return reason

    def _kept_back(self, hostname: Hostname, shape: PodShape) -> Misfit | None:
        """What keeps pods of this kind off the host, whatever it has."""
        if shape.revocable and hostname in self.closed:
            return Misfit(HostRule.CLOSED)
        if self.is_away(hostname):
            return Misfit(HostRule.MAINTENANCE)
        if hostname in self.refused:
            return Misfit(HostRule.NAME_TAKEN, name=self.refused[hostname])
        return self._goes_soon(self.hosts[hostname]) if hostname in self.hosts else None

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
    """The host as it is when it is empty."""
    return HostView(host.labels, host.capacity, host.revocable.cpu_milli, PORTS_MAX)
