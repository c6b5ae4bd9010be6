"""The state of hosts, in one place for all components that decide by it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from peloton.hosts.announced import RegisteredHost
from peloton.hosts.effects import Effect
from peloton.hosts.gpu_waits import GpuWaits
from peloton.hosts.host_resources import HostResources
from peloton.hosts.host_resources_table import HostResourcesTable
from peloton.hosts.pod_labels import PodLabelIndex
from peloton.hosts.pooled_hosts import PooledHosts
from peloton.hosts.registered_hosts import RegisteredHosts
from peloton.hosts.reservations import HostReservations
from peloton.hosts.resource_holds import PodKey, ResourceHolds
from peloton.lifecycle.volumes import HostSight
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance
from peloton.model.misfit import HostRule, Misfit, NameTaken, Refused
from peloton.model.resources import Resources
from peloton.scheduling.fit import need_on

GOES_NOTICE_NS = 3 * 3_600 * 10**9
"""Notice in nanoseconds: a host that the cluster takes down within it receives no new pods."""


@dataclass(slots=True, eq=False)
class HostTable:
    """The shared part of ``HostState``, with the time and the effects of the event that is being applied."""

    free_resources: HostResourcesTable
    pooled: PooledHosts
    registered: RegisteredHosts
    withdrawn: dict[Hostname, RegisteredHost] = field(default_factory=dict)  # made unschedulable by cluster operators
    maintained: dict[Hostname, HostMaintenance] = field(default_factory=dict)
    name_taken: dict[Hostname, str] = field(default_factory=dict)  # -> the other cluster with that name
    closed: dict[Hostname, int] = field(default_factory=dict)  # to revocable pods -> cpu_milli of the remaining ones
    holds: ResourceHolds = field(default_factory=ResourceHolds)
    reservations: HostReservations = field(default_factory=HostReservations)
    pod_labels: PodLabelIndex = field(default_factory=PodLabelIndex)
    gpu_waits: GpuWaits = field(default_factory=GpuWaits)
    effects: list[Effect] = field(default_factory=list)
    now_s: float = 0.0  # by the monotonic clock
    now_ns: int = 0  # by the wall clock

    def set_hosts(self, hosts: Collection[RegisteredHost]) -> None:
        """Set all hosts, registered or unschedulable."""
        self.withdrawn = {host.hostname: host for host in hosts if host.withdrawn}
        for hostname in self.registered.replace(host for host in hosts if not host.withdrawn):
            if host := self.free_resources.hosts.get(hostname):
                self.free_resources.put(host)

    def is_unavailable(self, hostname: Hostname) -> bool:
        """Return whether the host is in maintenance and takes no pods."""
        return hostname in self.maintained and self.maintained[hostname].is_unavailable

    def unavailable(self) -> set[Hostname]:
        return {hostname for hostname in self.maintained if self.is_unavailable(hostname)}

    def find_closed(self) -> dict[Hostname, Misfit]:
        """Return the hosts that take no pods, whatever their free resources, and the reason of each."""
        names = {*self.maintained, *self.name_taken, *self.free_resources.going}
        return {name: why for name in names if (why := self.explain_closed(name)) is not None}

    def explain_closed(self, hostname: Hostname) -> Misfit | None:
        """Return why the host takes no pods, whatever its free resources."""
        if self.is_unavailable(hostname):
            return Refused(HostRule.MAINTENANCE)
        if hostname in self.name_taken:
            return NameTaken(self.name_taken[hostname])
        goes_ns = self.free_resources.going.get(hostname, 0)
        return Refused(HostRule.GOES_SOON) if goes_ns and goes_ns - GOES_NOTICE_NS <= self.now_ns else None

    def sight(self, name: Hostname) -> HostSight:
        """Return the cluster's listing of the host, for the volumes on it."""
        host = self.registered.by_name.get(name) or self.withdrawn.get(name)
        volumes, begun = (host.volumes, host.volumes_begun) if host else (None, frozenset[str]())
        return HostSight(volumes, begun, host is not None, name in self.maintained)

    def capacity_of(self, hostname: Hostname) -> Resources:
        return self.registered.capacity_of(hostname)

    def find_kept_hosts(self) -> set[Hostname]:
        """Return hosts with resources held or reserved for pods."""
        return {*self.holds.hostnames(), *self.reservations.hostnames()}

    def sum_kept(self, host: HostResources, mine: frozenset[PodKey]) -> tuple[Resources, int]:
        """Return the resources of the host that are withheld from a placement of ``mine``, and for how many pods: the
        held ones, and the reserved ones among the rest, so that a reservation never takes resources held for a
        returning pod."""
        held, count = self.holds.sum_held(host.hostname, mine)
        reserved = self.reservations.on(host.hostname)
        if reserved is None or reserved.key in mine:
            return held, count
        left = host.without(*self.holds.sum_held(host.hostname, frozenset()))
        kept = Resources.each(min, need_on(reserved.shape, host.labels), left.free)
        return held + kept, count + min(left.pod_slots, 1)

    def list_unannounced(self) -> dict[Hostname, Resources]:
        """Return the free resources of registered hosts without offers: their capacity, less the resources that pods
        hold by the cluster's last report and that launches have claimed since."""
        free_resources, claimed = self.free_resources.hosts, self.free_resources.claimed
        return {
            name: claimed.less(name, host.free)
            for name, host in self.registered.by_name.items()
            if not ((announced := free_resources.get(name)) and announced.free_resources)
        }
