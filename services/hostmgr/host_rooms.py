"""Hosts with the offers that are held of them: since when, leased or READY, and which were given back.

Under the lock of ``HostPool``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import takewhile

from peloton.model.ids import Hostname
from services.hostmgr.mesos.resources import ANY_ROLE, Json, OfferedReader
from services.hostmgr.ready import ReadyHosts
from services.hostmgr.room import Claim, HostRoom, labels_of


class HostRooms:
    def __init__(self, cluster: str = "", role: str = ANY_ROLE) -> None:
        self._cluster = cluster
        self._reader = OfferedReader(role)
        self._came_count = 0
        self._offers: dict[str, tuple[Hostname, float]] = {}  # offer -> host, since when; the oldest first
        self.hosts: dict[Hostname, HostRoom] = {}
        self.ready = ReadyHosts()
        self.declined: set[Hostname] = set()  # idle, and all of their offers given back to Mesos
        self.claimed_count = 0

    @property
    def offer_count(self) -> int:
        return len(self._offers)

    def add(self, offers: Iterable[Json], now_s: float) -> None:
        for offer in offers:
            hostname, offer_id = Hostname(offer["hostname"]), offer["id"]["value"]
            host = self.hosts.get(hostname)
            agent_id = offer["agent_id"]["value"]
            if host is None or host.agent_id != agent_id:
                for stale_id in host.offers if host else ():
                    self._offers.pop(stale_id, None)
                order = host.order if host else self._came_count
                self._came_count += 1
                labels = labels_of(hostname, offer.get("attributes", ()), self._cluster)
                host = HostRoom(hostname, agent_id, labels, order)
                self.hosts[hostname] = host
            host.add(offer_id, self._reader.read(offer["resources"]), offer.get("unavailability"))
            self._hold(offer_id, hostname, now_s)
            self.declined.discard(hostname)
            self.ready.put(host)

    def _hold(self, offer_id: str, hostname: Hostname, now_s: float) -> None:
        """It came, or counts as if it had come, now."""
        self._offers.pop(offer_id, None)
        self._offers[offer_id] = (hostname, now_s)

    def remove(self, offer_id: str) -> None:
        hostname, _ = self._offers.pop(offer_id, (None, 0.0))
        if hostname is not None and (host := self.hosts.get(hostname)):
            host.offers.pop(offer_id, None)
            host.recount()
            self.ready.put(host)

    def take_idle(self, until_s: float, now_s: float, kept: int, limit: int, apart: Collection[Hostname]) -> list[str]:
        """Offers that came until then, the oldest first, but those that are kept, and those of hosts that are leased or
        stay ``apart``."""
        taken: list[str] = []
        for offer_id, (hostname, _) in list(takewhile(lambda item: item[1][1] <= until_s, self._offers.items())):
            if len(taken) >= limit or len(self._offers) <= kept:
                break
            if self.hosts[hostname].lease_id or hostname in apart:
                self._hold(offer_id, hostname, now_s)
                continue
            taken.append(offer_id)
            self.remove(offer_id)
            if not self.hosts[hostname].offers:
                self.declined.add(hostname)
        return taken

    def lease(self, host: HostRoom, lease_id: str) -> None:
        """Empty: it is READY again."""
        host.lease_id = lease_id
        self.ready.put(host)

    def claim(self, host: HostRoom) -> Claim:
        """All of its offers; it is no longer leased."""
        claim = Claim(host.hostname, host.agent_id, tuple(host.offers), host.pot())
        for offer_id in host.offers:
            self._offers.pop(offer_id, None)
        host.offers = {}
        host.recount()
        self.claimed_count += 1
        self.lease(host, "")
        return claim

    def keep(self, registered: Collection[Hostname]) -> None:
        """Forget hosts that are not registered and of which nothing is held."""
        self.declined.intersection_update(registered)
        gone = [n for n, h in self.hosts.items() if not h.offers and not h.lease_id and n not in registered]
        for hostname in gone:
            self.ready.drop(hostname)
            del self.hosts[hostname]

    def clear(self) -> None:
        self.hosts.clear()
        self.ready.clear()
        self._offers.clear()
        self.declined.clear()
