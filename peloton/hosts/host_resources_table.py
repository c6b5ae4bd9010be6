"""Hosts with their offers, the age of the offers, and the leases: a host with offers and without a lease is READY."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import takewhile

from peloton.hosts.announced import NOTHING, Claim, FreeResources
from peloton.hosts.claimed_resources import ClaimedResources
from peloton.hosts.host_resources import HostResources
from peloton.hosts.pooled_hosts import PooledHosts
from peloton.lifecycle.constraints import Labels
from peloton.lifecycle.host_pools import without_host_pool
from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.rows import IDLE, LEASED, READY, HostRow


def _unknown(_: Hostname) -> Resources:
    return NOTHING


class HostResourcesTable:
    def __init__(
        self,
        cluster_labels: Mapping[str, str] | None = None,
        pooled: PooledHosts | None = None,
        capacity_of: Callable[[Hostname], Resources] = _unknown,
    ) -> None:
        """``cluster_labels`` apply to every host, whatever its offers have. ``pooled`` applies host pools.
        ``capacity_of`` returns the capacity of a registered host."""
        self._cluster_labels = cluster_labels or {}
        self._pooled = pooled or PooledHosts()
        self._came_count = 0
        self._arrivals: dict[str, tuple[Hostname, float]] = {}  # offer -> host, arrival; the oldest first
        self.hosts: dict[Hostname, HostResources] = {}
        self._capacity_of = capacity_of
        self.fleet = Fleet()
        self.going: dict[Hostname, int] = {}  # hosts that the cluster takes down -> when
        self.claimed = ClaimedResources()
        self.awaited: set[Hostname] = set()  # hosts on which pods of daemons wait for free resources
        self._changed: set[Hostname] = set()  # hosts among them whose offers or lease have changed

    @property
    def resources_count(self) -> int:
        return len(self._arrivals)

    def add(self, free_resources: Iterable[FreeResources], now_s: float) -> None:
        for announced in free_resources:
            hostname = announced.hostname
            host = self.hosts.get(hostname)
            if host is None or host.host_id != announced.host_id:
                for stale_id in host.free_resources if host else ():
                    self._arrivals.pop(stale_id, None)
                order = host.order if host else self._came_count
                self._came_count += 1
                host = HostResources(hostname, announced.host_id, self._labels(announced), order)
                self.hosts[hostname] = host
            host.free_resources[announced.resources_id] = announced
            self._recount(host)
            self._record_arrival(announced.resources_id, hostname, now_s)
            self.put(host)

    def put(self, host: HostResources) -> None:
        """Update the fleet after a change of a host, its lease or its capacity."""
        state = LEASED if host.lease_id else READY if host.free_resources else IDLE
        amounts = host.free, self._capacity_of(host.hostname), host.revocable.cpu_milli, host.port_count, host.pod_slots
        self.fleet.put_host(HostRow(host.hostname, *amounts, host.kind_labels, host.order, state))
        if host.goes_ns:
            self.going[host.hostname] = host.goes_ns
        else:
            self.going.pop(host.hostname, None)
        if host.hostname in self.awaited:
            self._changed.add(host.hostname)

    def take_changed(self) -> set[Hostname]:
        """Return awaited hosts whose offers or lease have changed since the last call."""
        changed, self._changed = self._changed & self.awaited, set()
        return changed

    def _labels(self, announced: FreeResources) -> Labels:
        return {**announced.labels, **self._cluster_labels, **self._pooled.labels_of(announced.hostname)}

    def _recount(self, host: HostResources) -> None:
        host.recount()
        if self._pooled.are_used:
            host.free = self._pooled.free_on(host.hostname, host.free)
        host.keep()

    def recount(self, hostnames: Iterable[Hostname]) -> bool:
        """Recomputes the free resources of hosts after a change of host pools or pods. Returns whether there are
        more."""
        has_more = False
        for hostname in hostnames:
            if host := self.hosts.get(hostname):
                before = host.free
                self._recount(host)
                has_more |= not host.free.fits_in(before)
                self.put(host)
        return has_more

    def change_pool(self, hostname: Hostname) -> None:
        """Update a host whose host pool is another one or has changed, and end its lease, as the lease assumed the
        old pool."""
        if host := self.hosts.get(hostname):
            labels = {**without_host_pool(host.fixed_labels), **self._pooled.labels_of(hostname)}
            fresh = replace(host, fixed_labels=labels, lease_id="")
            self._recount(fresh)
            self.hosts[hostname] = fresh
            self.put(fresh)

    def _record_arrival(self, resources_id: str, hostname: Hostname, now_s: float) -> None:
        """Record the offer as received now."""
        self._arrivals.pop(resources_id, None)
        self._arrivals[resources_id] = (hostname, now_s)

    def keep_resources(self, host: HostResources, amounts: Resources, pod_count: int) -> None:
        """Reserve resources of the host for daemons, replacing the previous reservation."""
        if (host.kept, host.kept_pods) != (amounts, pod_count):
            host.kept, host.kept_pods = amounts, pod_count
            self._recount(host)
            self.put(host)

    def keeping(self, host: HostResources, amounts: Resources, pod_count: int) -> HostResources:
        """Return a copy of the host with this reservation."""
        other = replace(host, kept=amounts, kept_pods=pod_count)
        self._recount(other)
        return other

    def remove(self, resources_id: str) -> None:
        hostname, _ = self._arrivals.pop(resources_id, (None, 0.0))
        if hostname is not None and (host := self.hosts.get(hostname)):
            host.free_resources.pop(resources_id, None)
            self._recount(host)
            self.put(host)

    def take_idle(self, until_s: float, now_s: float, kept: int, limit: int, apart: Collection[Hostname]) -> list[str]:
        """Remove offers received up to ``until_s``, the oldest first, except ``kept`` of them and offers of hosts that
        are leased or in ``apart``."""
        taken: list[str] = []
        for resources_id, (hostname, _) in list(takewhile(lambda item: item[1][1] <= until_s, self._arrivals.items())):
            if len(taken) >= limit or len(self._arrivals) <= kept:
                break
            host = self.hosts[hostname]
            if host.lease_id or host.kept_pods or hostname in apart:
                self._record_arrival(resources_id, hostname, now_s)
                continue
            taken.append(resources_id)
            self.remove(resources_id)
        return taken

    def lease(self, host: HostResources, lease_id: str) -> None:
        """Set the lease of the host; an empty id makes it READY."""
        host.lease_id = lease_id
        self.put(host)

    def claim(self, host: HostResources) -> Claim:
        """Claim all offers of the host, and end its lease."""
        claim = Claim(host.hostname, host.host_id, tuple(host.free_resources), self._pooled.factors_of(host.hostname))
        self.claimed.add(host.hostname, host.free + host.kept)
        for resources_id in host.free_resources:
            self._arrivals.pop(resources_id, None)
        host.free_resources = {}
        self._recount(host)
        self.lease(host, "")
        return claim

    def keep(self, registered: Collection[Hostname]) -> None:
        """Remove hosts that are not registered, have no offers and are not leased."""
        gone = [n for n, h in self.hosts.items() if not h.free_resources and not h.lease_id and n not in registered]
        for hostname in gone:
            self.fleet.drop_host(hostname)
            self.going.pop(hostname, None)
            del self.hosts[hostname]

    def clear(self) -> None:
        self.hosts.clear()
        self.fleet = Fleet()
        self.going.clear()
        self._arrivals.clear()
