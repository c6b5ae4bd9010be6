"""Hosts with their announced room and its age, which of them are READY, and which had their room given back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import takewhile

from peloton.model.ids import Hostname
from services.hostmgr.driver import Claim, Room
from services.hostmgr.hosts.host_room import HostRoom
from services.hostmgr.hosts.ready_hosts import ReadyHosts


class HostRooms:
    def __init__(self, cluster_labels: Mapping[str, str] | None = None) -> None:
        """``cluster_labels``: of every host, whatever its room says."""
        self._cluster_labels = cluster_labels or {}
        self._came_count = 0
        self._rooms: dict[str, tuple[Hostname, float]] = {}  # room -> host, since when; the oldest first
        self.hosts: dict[Hostname, HostRoom] = {}
        self.ready = ReadyHosts()
        self.returned: set[Hostname] = set()  # hosts whose room was idle and went back to the cluster

    @property
    def room_count(self) -> int:
        return len(self._rooms)

    def add(self, rooms: Iterable[Room], now_s: float) -> None:
        for room in rooms:
            hostname = room.hostname
            host = self.hosts.get(hostname)
            if host is None or host.host_id != room.host_id:
                for stale_id in host.rooms if host else ():
                    self._rooms.pop(stale_id, None)
                order = host.order if host else self._came_count
                self._came_count += 1
                host = HostRoom(hostname, room.host_id, {**room.labels, **self._cluster_labels}, order)
                self.hosts[hostname] = host
            host.rooms[room.room_id] = room
            host.recount()
            self._hold(room.room_id, hostname, now_s)
            self.returned.discard(hostname)
            self.ready.put(host)

    def _hold(self, room_id: str, hostname: Hostname, now_s: float) -> None:
        """The room came, or counts as if it had come, now."""
        self._rooms.pop(room_id, None)
        self._rooms[room_id] = (hostname, now_s)

    def remove(self, room_id: str) -> None:
        hostname, _ = self._rooms.pop(room_id, (None, 0.0))
        if hostname is not None and (host := self.hosts.get(hostname)):
            host.rooms.pop(room_id, None)
            host.recount()
            self.ready.put(host)

    def take_idle(self, until_s: float, now_s: float, kept: int, limit: int, apart: Collection[Hostname]) -> list[str]:
        """Rooms that came until then, the oldest first, except ``kept`` of them, and those of hosts that are leased or
        ``apart``."""
        taken: list[str] = []
        for room_id, (hostname, _) in list(takewhile(lambda item: item[1][1] <= until_s, self._rooms.items())):
            if len(taken) >= limit or len(self._rooms) <= kept:
                break
            if self.hosts[hostname].lease_id or hostname in apart:
                self._hold(room_id, hostname, now_s)
                continue
            taken.append(room_id)
            self.remove(room_id)
            if not self.hosts[hostname].rooms:
                self.returned.add(hostname)
        return taken

    def lease(self, host: HostRoom, lease_id: str) -> None:
        """With an empty id the host is READY again."""
        host.lease_id = lease_id
        self.ready.put(host)

    def claim(self, host: HostRoom) -> Claim:
        """Take all of the host's room, and end its lease."""
        claim = Claim(host.hostname, host.host_id, tuple(host.rooms))
        for room_id in host.rooms:
            self._rooms.pop(room_id, None)
        host.rooms = {}
        host.recount()
        self.lease(host, "")
        return claim

    def keep(self, registered: Collection[Hostname]) -> None:
        """Forget hosts that are not registered, have no room and are not leased."""
        self.returned.intersection_update(registered)
        gone = [n for n, h in self.hosts.items() if not h.rooms and not h.lease_id and n not in registered]
        for hostname in gone:
            self.ready.drop(hostname)
            del self.hosts[hostname]

    def clear(self) -> None:
        self.hosts.clear()
        self.ready.clear()
        self._rooms.clear()
        self.returned.clear()
