"""Recorder of host events: components of the host manager that decide about hosts in memory report their decisions
here."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from peloton.lifecycle import host_events
from peloton.lifecycle.host_events import HostFacts
from peloton.model.advice import Mark
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.ids import Hostname
from peloton.model.misfit import Misfit
from peloton.model.reservation import HostReservation
from services.hostmgr.driver import RegisteredHost

Kind = HostEventKind
CLOSED_BY = {Kind.CORDONED: Kind.UNCORDONED, Kind.RESERVED: Kind.GIVEN_BACK}
"""Kinds of events with a start and an end, of which a host manager holds only its own."""


class HostEventRecorder:
    """Recorder of events. Any thread may call and none blocks: ``add`` only queues the event."""

    def __init__(
        self, cluster: str, add: Callable[[HostEvent], None], wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._cluster, self._add, self._wall_ns = cluster, add, wall_ns
        self._seen: dict[Hostname, RegisteredHost] = {}
        self._cordoned: set[Hostname] = set()
        """As the last event of each says."""

    def succeed(self, begun: Iterable[HostEvent]) -> None:
        """Take over from previous leaders before any other call: ``begun`` are their events of the kinds in
        ``CLOSED_BY`` without an end. Reservations ended with the leader's memory; cordons are compared with the
        registered hosts."""
        for event in begun:
            if event.kind is Kind.CORDONED:
                self._cordoned.add(event.hostname)
            elif event.kind is Kind.RESERVED:
                self._add(host_events.reservation_lost(event, self._wall_ns()))

    def record_hosts(self, hosts: Sequence[RegisteredHost], but: Collection[str] = ()) -> None:
        """Record changes of the cluster's hosts; ``but`` are unused hosts. Called by one thread. A host that is the
        same object as before costs next to nothing."""
        before, self._seen = self._seen, {host.hostname: host for host in hosts if host.hostname not in but}
        for hostname, host in self._seen.items():
            old = before.get(hostname)
            if old is not host:
                for event in self._changes(old, host):
                    self._note_cordon(event)
                    self._add(event)

    def _changes(self, old: RegisteredHost | None, host: RegisteredHost) -> Iterable[HostEvent]:
        name, now_ns = host.hostname, self._wall_ns()
        if old is None:
            is_cordoned = name in self._cordoned
            event = host_events.event_of_new(name, self._cluster, host.withdrawn, is_cordoned, now_ns)
            return [event] if event is not None else []
        if (old_facts := _facts(old)) == (facts := _facts(host)):
            return []
        return host_events.changes(name, self._cluster, old_facts, facts, now_ns)

    def _note_cordon(self, event: HostEvent) -> None:
        if event.kind is Kind.CORDONED:
            self._cordoned.add(event.hostname)
        elif event.kind is Kind.UNCORDONED:
            self._cordoned.discard(event.hostname)

    def record_avoided(self, hostname: Hostname, why: Misfit, for_s: float) -> None:
        self._add(host_events.describe_avoidance(hostname, self._cluster, why, for_s, self._wall_ns()))

    def record_mark(self, hostname: Hostname, mark: Mark, before: Mark, reason: str) -> None:
        self._add(host_events.describe_mark(hostname, self._cluster, mark, before, reason, self._wall_ns()))

    def record_reserved(self, kept: HostReservation) -> None:
        self._add(host_events.describe_reservation(kept, self._cluster))

    def record_released(self, kept: HostReservation, is_late: bool = False, launched_on: str = "") -> None:
        self._add(host_events.describe_release(kept, self._cluster, self._wall_ns(), is_late, launched_on))


def _facts(host: RegisteredHost) -> HostFacts:
    return HostFacts(host.host_id, host.capacity + host.held_by_others, host.labels, host.withdrawn)


NO_RECORDER = HostEventRecorder("", lambda _: None)
"""A recorder that discards events."""
