"""Hosts in the form that rebalancing uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from peloton.hosts.host_table import HostTable
from peloton.lifecycle.constraints import HOSTNAME_LABEL
from peloton.model.ids import Hostname
from peloton.model.pod import Label
from peloton.scheduling.fit import PORTS_MAX, HostView
from peloton.scheduling.relocation import HostNow

NO_LABELS: Mapping[Label, int] = {}


def hosts_now(table: HostTable, avoided: Collection[Hostname], others: Mapping[Hostname, int]) -> list[HostNow]:
    """Return the registered hosts. Pods move to no host that is in maintenance or will be, is avoided, has resources
    held or reserved for pods, or has a name that another cluster has. Leased resources count as free, because leases
    are short. Resources of a reserved host that are not held are available to the pod for which it is reserved."""
    held = {*table.holds.hostnames()}
    closed = {*table.find_closed(), *table.maintained, *avoided}
    reserved = {one.hostname: (one.job_id, one.shape) for one in table.reservations.all()}
    apart = {*closed, *held, *reserved}
    pods = table.pod_labels.by_host()
    return [
        HostNow(
            name,
            host.capacity,
            _view_of(table, name),
            pods.get(name, NO_LABELS),
            others.get(name, 0),
            takes_pods=name not in apart,
            reserved_for=reserved.get(name) if name not in closed and name not in held else None,
            has_holds=name in held,
        )
        for name, host in table.registered.by_name.items()
    ]


def _view_of(table: HostTable, name: Hostname) -> HostView:
    """Return the offered resources; without an offer, the free resources that the cluster reports."""
    on_host = table.free_resources.hosts.get(name)
    if on_host is not None and on_host.free_resources:
        labels = {**on_host.labels, HOSTNAME_LABEL: name}
        return HostView(labels, on_host.free, port_count=on_host.port_count, pod_slots=on_host.pod_slots)
    host = table.registered.by_name[name]
    return HostView({**host.labels, HOSTNAME_LABEL: name}, host.free, port_count=PORTS_MAX)
