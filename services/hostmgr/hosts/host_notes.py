"""What a host manager decides about hosts in memory, as their events: whoever decides says so here."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from peloton.lifecycle import host_events
from peloton.lifecycle.host_events import HostFacts
from peloton.model.advice import Mark
from peloton.model.host_event import HostEvent
from peloton.model.ids import Hostname
from peloton.model.reason import Misfit
from peloton.model.reservation import HostReservation
from services.hostmgr.driver import RegisteredHost


class HostNotes:
    """Any thread calls, and none waits: ``add`` only keeps the event."""

    def __init__(
        self, cluster: str, add: Callable[[HostEvent], None], wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._cluster, self._add, self._wall_ns = cluster, add, wall_ns
        self._seen: dict[Hostname, RegisteredHost] = {}

    def registered(self, hosts: Sequence[RegisteredHost], but: Collection[str] = ()) -> None:
        """All hosts of the cluster; ``but``: those that are not used. For one thread. A host that is the same object as
        before costs next to nothing."""
        before, self._seen = self._seen, {host.hostname: host for host in hosts if host.hostname not in but}
        for hostname, host in self._seen.items():
            old = before.get(hostname)
            if old is not None and old is not host and (old_facts := _facts(old)) != (facts := _facts(host)):
                for event in host_events.changes(hostname, self._cluster, old_facts, facts, self._wall_ns()):
                    self._add(event)

    def avoided(self, hostname: Hostname, why: Misfit, for_s: float) -> None:
        self._add(host_events.avoided(hostname, self._cluster, why, for_s, self._wall_ns()))

    def marked(self, hostname: Hostname, mark: Mark, before: Mark, reason: str) -> None:
        self._add(host_events.marked(hostname, self._cluster, mark, before, reason, self._wall_ns()))

    def reserved(self, kept: HostReservation) -> None:
        self._add(host_events.reserved(kept, self._cluster))

    def given_back(self, kept: HostReservation, is_late: bool = False, launched_on: str = "") -> None:
        self._add(host_events.given_back(kept, self._cluster, self._wall_ns(), is_late, launched_on))


def _facts(host: RegisteredHost) -> HostFacts:
    return HostFacts(host.host_id, host.capacity + host.beside, host.labels, host.withdrawn)


NO_NOTES = HostNotes("", lambda _: None)
"""Of who keeps no events."""
