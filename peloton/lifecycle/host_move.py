"""Moves of hosts to other host pools: the desired host pool of a host is stored, and its maintenance follows.

A host that moves to another host pool is drained as for maintenance, changes its host pool once it is empty, and takes
pods again. Its maintenance row holds the progress; a row that contradicts the desired host pool is corrected here, so
that any process may handle the change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance


@dataclass(frozen=True, slots=True)
class MoveChanges:
    """Changes that bring the maintenance of hosts in line with their desired host pools. Host names are sorted."""

    begin: Mapping[Hostname, str] = field(default_factory=dict)  # start, or wait under a new bound -> the host pool
    redirect: Mapping[Hostname, str] = field(default_factory=dict)  # move under way to another host pool -> the new one
    stay: tuple[Hostname, ...] = ()  # moves to cancel
    arrive: Mapping[Hostname, str] = field(default_factory=dict)  # without a move: maintenance has emptied them


def move_changes(
    wanted: Mapping[Hostname, str],
    rows: Mapping[Hostname, HostMaintenance],
    registered: Collection[str],
    bounds: Mapping[Hostname, int] | None = None,
) -> MoveChanges:
    """Return the changes of maintenance. ``wanted``: hosts outside their desired host pool -> that pool; ``rows``:
    hosts of the cluster in maintenance or moving; ``registered``: hosts of the cluster; ``bounds``: unavailable hosts
    allowed for a host to start, instead of the installation's bound.

    A host on its way down moves when it has no pods, a host on its way up when it is up.
    """
    begin: dict[Hostname, str] = {}
    redirect: dict[Hostname, str] = {}
    arrive: dict[Hostname, str] = {}
    for host in sorted(wanted):
        row, pool = rows.get(host), wanted[host]
        if row is None:
            if host in registered:
                begin[host] = pool
        elif row.is_move:
            if row.goal is HostState.DOWN and row.to_pool != pool:
                redirect[host] = pool
            elif row.waits_for_turn and (bounds or {}).get(host, row.at_most) != row.at_most:
                begin[host] = pool
        elif row.state in (HostState.DRAINED, HostState.DOWN):
            arrive[host] = pool
    under_way = (host for host, row in rows.items() if row.is_move and row.goal is HostState.DOWN)
    return MoveChanges(begin, redirect, tuple(sorted(host for host in under_way if host not in wanted)), arrive)
