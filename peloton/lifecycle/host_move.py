"""Moves of hosts to other host pools: where a host is to be is stored, and its maintenance follows that.

A host that is to be in another host pool is drained as for maintenance, changes its host pool once it is empty, and
takes pods again. Its row of maintenance holds how far that is; a row that no longer agrees with where the host is to be
is put right here, so it does not matter which process saw the change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance


@dataclass(frozen=True, slots=True)
class MoveChanges:
    """What is to be done so that the maintenance of hosts agrees with where they are to be. Host names rising."""

    begin: Mapping[Hostname, str] = field(default_factory=dict)  # or wait under a new bound; -> the host pool
    redirect: Mapping[Hostname, str] = field(default_factory=dict)  # under way to another one
    stay: tuple[Hostname, ...] = ()  # under way, and wanted where they are
    arrive: Mapping[Hostname, str] = field(default_factory=dict)  # without a move: maintenance has emptied them


def move_changes(
    wanted: Mapping[Hostname, str],
    rows: Mapping[Hostname, HostMaintenance],
    registered: Collection[str],
    bounds: Mapping[Hostname, int] | None = None,
) -> MoveChanges:
    """``wanted``: hosts that are to be in another host pool than they are -> that one; ``rows``: those of the cluster
    that are in maintenance or move; ``registered``: hosts of the cluster; ``bounds``: hosts that may be away for a host
    to begin, where not the installation's bound holds.

    A host on its way down moves when it has no pods any more, one on its way up when it is there."""
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
