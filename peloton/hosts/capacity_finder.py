"""The part of the state that tries planned pods on the current hosts."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.hosts.announced import RegisteredHost
from peloton.hosts.avoidances import HostAvoidances
from peloton.hosts.daemon_hosts import DaemonHosts
from peloton.hosts.host_chooser import HostChooser
from peloton.hosts.host_resources import HostResources
from peloton.hosts.host_table import HostTable
from peloton.lifecycle.constraints import HOSTNAME_LABEL, label_pairs
from peloton.model.host import POD_SLOTS_UNLIMITED
from peloton.model.ids import Hostname, JobId
from peloton.model.misfit import HostRule, Misfit, Refused
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from peloton.scheduling.fit import PORTS_MAX
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.rows import HostRow
from peloton.scheduling.trial import TrialFleet

UnannouncedHost = tuple[RegisteredHost, Resources, HostResources | None, Resources]
"""A host without offers, its free resources, its earlier state, and the resources reserved for daemons."""
UNRECORDED_JOB = JobId("")
"""The id of a planned job, which has no records."""


class CapacityFinder:
    """Copies of the hosts for planned pods. The owner packs pods on a copy between two events."""

    def __init__(
        self, table: HostTable, chooser: HostChooser, daemons: DaemonHosts, avoidances: HostAvoidances
    ) -> None:
        self._table, self._chooser, self._daemons, self._avoidances = table, chooser, daemons, avoidances

    def copy_hosts(self) -> tuple[TrialFleet, list[UnannouncedHost]]:
        """Return a copy of the hosts with offers, and the hosts without offers, which ``complete`` adds to it."""
        fleet, table = TrialFleet(self._table.free_resources.fleet), self._table
        hosts = table.free_resources.hosts
        return fleet, [
            (table.registered.by_name[name], free, hosts.get(name), self._daemons.missing_on(name))
            for name, free in table.list_unannounced().items()
        ]

    def prepare(self, fleet: Fleet, shapes: Sequence[PodShape]) -> dict[PodShape, dict[int, Misfit]]:
        """Prepare the fleet as for a lease; return hosts that take none of the pods."""
        now_s = self._table.now_s
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
        """Return the hosts that do not take the pod because of resources held or reserved there."""
        found = {}
        for name in self._table.find_kept_hosts() & fleet.row_of.keys():
            host = self._table.free_resources.hosts.get(name)
            is_announced = host is not None and bool(host.free_resources)
            why = self._chooser.misfit_on(host, shape, frozenset()) if host and is_announced else Refused(HostRule.HELD)
            if why is not None and why.rule in (HostRule.HELD, HostRule.RESERVED):
                found[fleet.row_of[name]] = why
        return found

    def in_service(self) -> tuple[dict[Hostname, RegisteredHost], set[Hostname]]:
        """Return the registered hosts, and which of them are unavailable."""
        return dict(self._table.registered.by_name), self._table.unavailable()


def complete(fleet: TrialFleet, unannounced: Sequence[UnannouncedHost]) -> None:
    """Add the hosts without offers with their free resources by the cluster's report."""
    fleet.put_hosts([_row(*one, len(fleet)) for one in unannounced])


def _row(
    host: RegisteredHost, free: Resources, on_host: HostResources | None, missing: Resources, order: int
) -> HostRow:
    """Return the row of a host without an offer. ``missing`` is reserved for daemons."""
    kind = (
        on_host.kind_labels if on_host else tuple(one for one in label_pairs(host.labels) if one[0] != HOSTNAME_LABEL)
    )
    left = free.without(missing)
    slack = max(host.revocable.cpu_milli - host.revocable_held.cpu_milli, 0)
    order = on_host.order if on_host else order
    return HostRow(
        host.hostname,
        left,
        host.capacity,
        slack,
        port_count=PORTS_MAX,
        pod_slots=POD_SLOTS_UNLIMITED,
        kind=kind,
        order=order,
    )
