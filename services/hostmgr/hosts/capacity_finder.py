"""The part of the ``HostCache`` that tries planned pods on the current hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from peloton.lifecycle.constraints import HOSTNAME_LABEL, label_pairs
from peloton.model.daemon import DaemonHost
from peloton.model.host import POD_SLOTS_UNLIMITED
from peloton.model.ids import JobId
from peloton.model.planned_capacity import FoundCapacity, PlannedPods
from peloton.model.pod import PodShape
from peloton.model.reason import HostRule, Misfit
from peloton.model.resources import Resources
from peloton.scheduling.capacity import find_capacity
from peloton.scheduling.fit import PORTS_MAX, HostKind
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.rows import HostRow
from peloton.scheduling.spreading import Spreading
from peloton.scheduling.trial import TrialFleet
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.avoidances import HostAvoidances
from services.hostmgr.hosts.daemon_hosts import DaemonHosts
from services.hostmgr.hosts.domain_counts import Counts, everywhere
from services.hostmgr.hosts.host_chooser import HostChooser
from services.hostmgr.hosts.host_resources import HostResources
from services.hostmgr.hosts.host_table import HostTable

UNRECORDED_JOB = JobId("")
"""The id of a planned job, which has no records."""


class CapacityFinder:
    """Finds free resources for planned pods. Any thread may call; table and lock are the ``HostCache``'s."""

    def __init__(
        self,
        lock: threading.RLock,
        table: HostTable,
        chooser: HostChooser,
        daemons: DaemonHosts,
        avoidances: HostAvoidances,
        clock: Callable[[], float],
    ) -> None:
        self._lock, self._table, self._chooser = lock, table, chooser
        self._daemons, self._avoidances, self._clock = daemons, avoidances, clock

    def find(self, pods: Sequence[PlannedPods], counts: Counts) -> list[FoundCapacity]:
        """Returns for how many planned pods there are free resources. Leased resources count as free. ``counts`` are
        for pods with spread constraints. Nearly all work is done without the lock, so that leases continue
        meanwhile."""
        shapes = list(dict.fromkeys(each.shape for each in pods))
        fleet = self._fleet()
        with self._lock:
            barred = self._prepare(fleet, shapes)
        return find_capacity(fleet, pods, barred, Spreading(fleet, everywhere(counts)) if counts else None)

    def for_daemon(self, shape: PodShape) -> list[DaemonHost]:
        """Returns the registered hosts on which a daemon with such pods would run, by name, and which of them have
        enough free resources in addition to the reservations of other daemons."""
        fleet = self._fleet()
        flags = zip(fleet.names, fleet.large_enough(shape).tolist(), fleet.fitting(shape, {}).tolist(), strict=True)
        with self._lock:
            registered, unavailable = dict(self._table.registered.by_name), self._table.unavailable()
        found = [one for one in sorted(flags) if one[1] and one[0] in registered]
        hosts = [registered[name] for name, *_ in found]
        left = self._daemons.less_overhead([HostKind(host.capacity, host.labels) for host in hosts])
        return [
            DaemonHost(name, host.capacity, kind.capacity, has_capacity, name in unavailable)
            for (name, _, has_capacity), host, kind in zip(found, hosts, left, strict=True)
        ]

    def _fleet(self) -> TrialFleet:
        """Copies the fleet, and adds the hosts without offers with their free resources by the host book."""
        with self._lock:
            fleet, table = TrialFleet(self._table.free_resources.fleet), self._table
            unannounced = [
                (
                    table.registered.by_name[name],
                    free,
                    table.free_resources.hosts.get(name),
                    self._daemons.missing_on(name),
                )
                for name, free in table.list_unannounced().items()
            ]
        fleet.put_hosts([_row(*one, len(fleet)) for one in unannounced])
        return fleet

    def _prepare(self, fleet: Fleet, shapes: Sequence[PodShape]) -> dict[PodShape, dict[int, Misfit]]:
        """Prepares the fleet as for a lease; returns hosts that take none of the pods."""
        now_s = self._clock()
        avoidance = self._avoidances.of_job(UNRECORDED_JOB, now_s)
        are_gpus_kept = self._table.gpu_waits.keep_from((UNRECORDED_JOB, False), now_s)
        self._chooser.prepare(fleet, shapes, frozenset(), avoidance)
        return {
            shape: {
                **self._find_kept(fleet, shape),
                **self._chooser.find_barred(fleet, shape, avoidance, are_gpus_kept),
            }
            for shape in shapes
        }

    def _find_kept(self, fleet: Fleet, shape: PodShape) -> dict[int, Misfit]:
        """Returns the hosts that do not take the pod because of resources held or reserved there."""
        found = {}
        for name in self._table.find_kept_hosts() & fleet.row_of.keys():
            host = self._table.free_resources.hosts.get(name)
            is_announced = host is not None and bool(host.free_resources)
            why = self._chooser.misfit_on(host, shape, frozenset()) if host and is_announced else Misfit(HostRule.HELD)
            if why is not None and why.rule in (HostRule.HELD, HostRule.RESERVED):
                found[fleet.row_of[name]] = why
        return found


def _row(
    host: RegisteredHost, free: Resources, on_host: HostResources | None, missing: Resources, order: int
) -> HostRow:
    """Returns the row of a host without an offer. ``missing`` is reserved for daemons."""
    kind = (
        on_host.kind_labels if on_host else tuple(one for one in label_pairs(host.labels) if one[0] != HOSTNAME_LABEL)
    )
    left = Resources(*(max(have - kept, 0) for have, kept in zip(free, missing, strict=True)))
    slack = max(host.revocable.cpu_milli - host.revocable_held.cpu_milli, 0)
    order = on_host.order if on_host else order
    return HostRow(host.hostname, left, host.capacity, slack, PORTS_MAX, POD_SLOTS_UNLIMITED, kind, order)
