"""What is known of hosts, in one place for those that decide by it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from peloton.lifecycle.volumes import HostSight
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance
from peloton.model.resources import Resources
from peloton.scheduling.fit import need_on
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.gpu_waits import GpuWaits
from services.hostmgr.hosts.host_room import HostRoom
from services.hostmgr.hosts.host_rooms import HostRooms
from services.hostmgr.hosts.pod_labels import PodLabelIndex
from services.hostmgr.hosts.pooled_hosts import PooledHosts
from services.hostmgr.hosts.registered_hosts import RegisteredHosts
from services.hostmgr.hosts.reservations import HostReservations
from services.hostmgr.hosts.room_holds import PodKey, RoomHolds


@dataclass(slots=True, eq=False)
class HostTable:
    """``HostBook`` owns it and its lock: all of it, but for ``pod_labels``, is read and changed under that lock."""

    rooms: HostRooms
    pooled: PooledHosts
    registered: RegisteredHosts
    withdrawn: dict[Hostname, RegisteredHost] = field(default_factory=dict)  # by operators of the cluster
    maintained: dict[Hostname, HostMaintenance] = field(default_factory=dict)
    name_taken: dict[Hostname, str] = field(default_factory=dict)  # -> the other cluster that has the name
    closed: dict[Hostname, int] = field(default_factory=dict)  # to revocable pods -> cpu_milli of those that stay
    holds: RoomHolds = field(default_factory=RoomHolds)
    reservations: HostReservations = field(default_factory=HostReservations)
    pod_labels: PodLabelIndex = field(default_factory=PodLabelIndex)
    gpu_waits: GpuWaits = field(default_factory=GpuWaits)

    def set_hosts(self, hosts: Collection[RegisteredHost]) -> None:
        """All hosts, registered or withdrawn."""
        self.withdrawn = {host.hostname: host for host in hosts if host.withdrawn}
        for hostname in self.registered.replace(host for host in hosts if not host.withdrawn):
            if host := self.rooms.hosts.get(hostname):
                self.rooms.put(host)

    def is_away(self, hostname: Hostname) -> bool:
        """The host is in maintenance, and takes no pods."""
        return hostname in self.maintained and self.maintained[hostname].is_away

    def away(self) -> set[Hostname]:
        return {hostname for hostname in self.maintained if self.is_away(hostname)}

    def sight(self, name: Hostname) -> HostSight:
        """What the cluster lists of the host, for the volumes on it."""
        host = self.registered.by_name.get(name) or self.withdrawn.get(name)
        volumes, begun = (host.volumes, host.volumes_begun) if host else (None, frozenset[str]())
        return HostSight(volumes, begun, host is not None, name in self.maintained)

    def capacity_of(self, hostname: Hostname) -> Resources:
        return self.registered.capacity_of(hostname)

    def kept_on(self) -> set[Hostname]:
        """Hosts with room that is held, or reserved, for pods."""
        return {*self.holds.hostnames(), *self.reservations.hostnames()}

    def kept_from(self, host: HostRoom, mine: frozenset[PodKey]) -> tuple[Resources, int]:
        """What is kept of the host from a placement of ``mine``, and for how many pods: the room that is held, and of
        what that leaves all that is reserved, so that a reservation never takes the room of a pod that comes back."""
        held, count = self.holds.held(host.hostname, mine)
        reserved = self.reservations.on(host.hostname)
        if reserved is None or reserved.key in mine:
            return held, count
        left = host.without(*self.holds.held(host.hostname, frozenset()))
        kept = Resources(*map(min, need_on(reserved.shape, host.labels), left.free))
        return held + kept, count + min(left.pod_slots, 1)

    def unannounced(self) -> dict[Hostname, Resources]:
        """Return the free resources of registered hosts of which the cluster announces no room: their capacity less
        what pods hold by its last word, and less what launches have claimed since."""
        rooms, claimed = self.rooms.hosts, self.rooms.claimed
        return {
            name: claimed.less(name, host.free)
            for name, host in self.registered.by_name.items()
            if not ((room := rooms.get(name)) and room.rooms)
        }
