"""What is known of hosts, in one place for those that decide by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance
from peloton.model.resources import Resources
from services.hostmgr.driver import NOTHING, RegisteredHost
from services.hostmgr.hosts.host_rooms import HostRooms
from services.hostmgr.hosts.pod_labels import PodLabelIndex
from services.hostmgr.hosts.registered_hosts import RegisteredHosts
from services.hostmgr.hosts.room_holds import RoomHolds


@dataclass(slots=True, eq=False)
class HostTable:
    """``HostPool`` owns it and its lock: all of it, but for ``pod_labels``, is read and changed under that lock."""

    rooms: HostRooms = field(default_factory=HostRooms)
    registered: RegisteredHosts = field(default_factory=RegisteredHosts)
    withdrawn: dict[Hostname, RegisteredHost] = field(default_factory=dict)  # by operators of the cluster
    maintained: dict[Hostname, HostMaintenance] = field(default_factory=dict)
    name_taken: dict[Hostname, str] = field(default_factory=dict)  # -> the other cluster that has the name
    closed: dict[Hostname, int] = field(default_factory=dict)  # to revocable pods -> cpu_milli of those that stay
    holds: RoomHolds = field(default_factory=RoomHolds)
    pod_labels: PodLabelIndex = field(default_factory=PodLabelIndex)

    def is_away(self, hostname: Hostname) -> bool:
        """The host is in maintenance, and takes no pods."""
        return hostname in self.maintained and self.maintained[hostname].is_away

    def away(self) -> set[Hostname]:
        return {hostname for hostname in self.maintained if self.is_away(hostname)}

    def capacity_of(self, hostname: Hostname) -> Resources:
        host = self.registered.by_name.get(hostname)
        return host.capacity if host else NOTHING

    def unannounced(self) -> dict[Hostname, Resources]:
        """What the cluster says is free on hosts whose room it never announced, or not since we gave it back."""
        registered = self.registered.by_name
        names = self.rooms.returned | (registered.keys() - self.rooms.hosts.keys())
        return {name: registered[name].free for name in names if name in registered}
