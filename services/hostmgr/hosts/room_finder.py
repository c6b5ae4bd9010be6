"""The part of the ``HostBook`` that tries pods which are only planned on the hosts as they are now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from peloton.model.host import POD_SLOTS_UNLIMITED
from peloton.model.ids import JobId
from peloton.model.pod import PodShape
from peloton.model.reason import HostRule, Misfit
from peloton.model.resources import Resources
from peloton.model.room import FoundRoom, PlannedPods
from peloton.scheduling.fit import PORTS_MAX
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.room import find_room
from peloton.scheduling.rows import HostRow
from peloton.scheduling.spreading import Spreading
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
        """What is leased counts as free: a lease is over in a moment. ``counts``: for pods that spread. Places without
        the lock, so that leases go on meanwhile."""
        shapes = list(dict.fromkeys(each.shape for each in pods))
        with self._lock:
            fleet = self._table.rooms.fleet.for_trial()
            for host in self._unannounced():
                fleet.put_host(host)
            barred = self._prepared(fleet, shapes)
        return find_room(fleet, pods, barred, Spreading(fleet, everywhere(counts)) if counts else None)

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
        for name in self._table.kept_on():
            host = self._table.rooms.hosts.get(name)
            why = self._chooser.misfit_on(host, shape, frozenset()) if host else None
            if why is not None and why.rule in (HostRule.HELD, HostRule.RESERVED):
                found[fleet.row_of[name]] = why
        return found

    def _unannounced(self) -> Iterator[HostRow]:
        """Hosts of which nothing is announced now, by what the cluster says is free there."""
        table, kept = self._table, self._table.kept_on()
        for name, host in table.registered.by_name.items():
            room = table.rooms.hosts.get(name)
            if name in kept or (room is not None and room.rooms):
                continue
            seen = room or HostRoom(name, host.host_id, host.labels, len(table.rooms.hosts))
            missing, _ = self._daemons.missing(seen)
            free = Resources(*(max(have - wanted, 0) for have, wanted in zip(host.free, missing, strict=True)))
            slack = max(host.revocable.cpu_milli - host.revocable_held.cpu_milli, 0)
            counts = slack, PORTS_MAX, POD_SLOTS_UNLIMITED
            yield HostRow(name, free, host.capacity, *counts, seen.kind_labels, seen.order)
