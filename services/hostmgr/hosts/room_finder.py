"""The part of the ``HostBook`` that tries pods which are only planned on the hosts as they are now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from peloton.lifecycle.constraints import HOSTNAME_LABEL, label_pairs
from peloton.model.daemon import DaemonHost
from peloton.model.host import POD_SLOTS_UNLIMITED
from peloton.model.ids import JobId
from peloton.model.pod import PodShape
from peloton.model.reason import HostRule, Misfit
from peloton.model.resources import Resources
from peloton.model.room import FoundRoom, PlannedPods
from peloton.scheduling.fit import PORTS_MAX, HostKind
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.room import find_room
from peloton.scheduling.rows import HostRow
from peloton.scheduling.spreading import Spreading
from peloton.scheduling.trial import TrialFleet
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.aversions import Aversions
from services.hostmgr.hosts.daemon_hosts import DaemonHosts
from services.hostmgr.hosts.domain_counts import Counts, everywhere
from services.hostmgr.hosts.host_chooser import HostChooser
from services.hostmgr.hosts.host_room import HostRoom
from services.hostmgr.hosts.host_table import HostTable

NOBODY = JobId("")
"""The id of a job that is only planned: nothing is known of it."""


class RoomFinder:
    """Any thread calls. It shares table and lock with the ``HostBook``."""

    def __init__(
        self,
        lock: threading.RLock,
        table: HostTable,
        chooser: HostChooser,
        daemons: DaemonHosts,
        aversions: Aversions,
        clock: Callable[[], float],
    ) -> None:
        self._lock, self._table, self._chooser = lock, table, chooser
        self._daemons, self._aversions, self._clock = daemons, aversions, clock

    def find(self, pods: Sequence[PlannedPods], counts: Counts) -> list[FoundRoom]:
        """What is leased counts as free. ``counts``: for pods that spread. Nearly all of it is done without the lock,
        so that leases go on meanwhile."""
        shapes = list(dict.fromkeys(each.shape for each in pods))
        fleet = self._fleet()
        with self._lock:
            barred = self._prepared(fleet, shapes)
        return find_room(fleet, pods, barred, Spreading(fleet, everywhere(counts)) if counts else None)

    def for_daemon(self, shape: PodShape) -> list[DaemonHost]:
        """Registered hosts on which a daemon with such pods is to run, by name, and which of them have room for it
        beside what is kept for other daemons."""
        fleet = self._fleet()
        flags = zip(fleet.names, fleet.large_enough(shape).tolist(), fleet.fitting(shape, {}).tolist(), strict=True)
        with self._lock:
            registered, away = dict(self._table.registered.by_name), self._table.away()
        found = [one for one in sorted(flags) if one[1] and one[0] in registered]
        hosts = [registered[name] for name, *_ in found]
        left = self._daemons.less_overhead([HostKind(host.capacity, host.labels) for host in hosts])
        return [
            DaemonHost(name, host.capacity, kind.capacity, has_room, name in away)
            for (name, _, has_room), host, kind in zip(found, hosts, left, strict=True)
        ]

    def _fleet(self) -> TrialFleet:
        """Copy the fleet with the hosts of which nothing is announced now, and what the books say is free there."""
        with self._lock:
            fleet, table = TrialFleet(self._table.rooms.fleet), self._table
            unannounced = [
                (table.registered.by_name[name], free, table.rooms.hosts.get(name), self._daemons.missing_on(name))
                for name, free in table.unannounced().items()
            ]
        fleet.put_hosts([_row(*one, len(fleet)) for one in unannounced])
        return fleet

    def _prepared(self, fleet: Fleet, shapes: Sequence[PodShape]) -> dict[PodShape, dict[int, Misfit]]:
        """As for a lease; returns hosts that take none of the pods."""
        now_s = self._clock()
        aversion = self._aversions.of_job(NOBODY, now_s)
        are_gpus_kept = self._table.gpu_waits.keep_from((NOBODY, False), now_s)
        self._chooser.prepare(fleet, shapes, frozenset(), aversion)
        return {
            shape: {**self._kept(fleet, shape), **self._chooser.barred(fleet, shape, aversion, are_gpus_kept)}
            for shape in shapes
        }

    def _kept(self, fleet: Fleet, shape: PodShape) -> dict[int, Misfit]:
        """Hosts that would take the pod but for what is held or reserved there."""
        found = {}
        for name in self._table.kept_on() & fleet.row_of.keys():
            host = self._table.rooms.hosts.get(name)
            is_announced = host is not None and bool(host.rooms)
            why = self._chooser.misfit_on(host, shape, frozenset()) if host and is_announced else Misfit(HostRule.HELD)
            if why is not None and why.rule in (HostRule.HELD, HostRule.RESERVED):
                found[fleet.row_of[name]] = why
        return found


def _row(host: RegisteredHost, free: Resources, room: HostRoom | None, missing: Resources, order: int) -> HostRow:
    """``missing``: what is kept there for daemons."""
    kind = room.kind_labels if room else tuple(one for one in label_pairs(host.labels) if one[0] != HOSTNAME_LABEL)
    left = Resources(*(max(have - kept, 0) for have, kept in zip(free, missing, strict=True)))
    slack = max(host.revocable.cpu_milli - host.revocable_held.cpu_milli, 0)
    order = room.order if room else order
    return HostRow(host.hostname, left, host.capacity, slack, PORTS_MAX, POD_SLOTS_UNLIMITED, kind, order)
