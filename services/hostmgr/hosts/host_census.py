"""Hosts as rebalancing sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from peloton.lifecycle.constraints import HOSTNAME_LABEL
from peloton.model.ids import Hostname
from peloton.model.pod import Label
from peloton.scheduling.fit import PORTS_MAX, HostView
from peloton.scheduling.relocation import HostNow
from services.hostmgr.hosts.host_chooser import GOES_NOTICE_NS
from services.hostmgr.hosts.host_table import HostTable

NO_LABELS: Mapping[Label, int] = {}


def hosts_now(
    table: HostTable, wall_ns: int, avoided: Collection[Hostname], others: Mapping[Hostname, int]
) -> list[HostNow]:
    """Registered hosts. Pods go to none that is in maintenance or will be, that pods avoid, where room is held or
    reserved for pods, or whose name another cluster has. What is leased counts as free: a lease is over in a moment.
    Room of a reserved host that is not held for others is for the pod that waits for it."""
    soon = {name for name, goes_ns in table.rooms.going.items() if goes_ns - GOES_NOTICE_NS <= wall_ns}
    held = {*table.holds.hostnames()}
    closed = {*table.maintained, *table.name_taken, *avoided, *soon}
    reserved = {one.hostname: (one.job_id, one.shape) for one in table.reservations.all()}
    apart = {*closed, *held, *reserved}
    pods = table.pod_labels.by_host()
    return [
        HostNow(
            name,
            host.capacity,
            _view(table, name),
            pods.get(name, NO_LABELS),
            others.get(name, 0),
            takes_pods=name not in apart,
            reserved_for=reserved.get(name) if name not in closed and name not in held else None,
            has_holds=name in held,
        )
        for name, host in table.registered.by_name.items()
    ]


def _view(table: HostTable, name: Hostname) -> HostView:
    """Of what was announced; where nothing is, of what the cluster says is free."""
    room = table.rooms.hosts.get(name)
    if room is not None and room.rooms:
        labels = {**room.labels, HOSTNAME_LABEL: name}
        return HostView(labels, room.free, port_count=room.port_count, pod_slots=room.pod_slots)
    host = table.registered.by_name[name]
    return HostView({**host.labels, HOSTNAME_LABEL: name}, host.free, port_count=PORTS_MAX)
