"""The order in which hosts leave a host pool: cheapest loss first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from peloton.model.host_pool import Occupancy
from peloton.model.ids import Hostname

SHARED = "shared"
"""The only host pool from which hosts are taken by number: its pods are preemptible."""


def leaving_order(hosts: Iterable[Occupancy]) -> list[Hostname]:
    """Return the hosts that may be taken away, the first one first.

    Idle ones lead, then hosts with the fewest controllers, the fewest pods, the lowest mean priority, and the shortest
    mean run time of pods. Hosts with non-preemptible pods are left out.
    """
    return drain_order(host for host in hosts if not host.unpreemptible_count)


def drain_order(hosts: Iterable[Occupancy]) -> list[Hostname]:
    """Return all hosts in the same order; hosts with non-preemptible pods, which a drain also moves, come last."""

    def cost(host: Occupancy) -> tuple[float, ...]:
        count = host.pod_count or 1
        means = host.priority_sum / count, host.run_s_sum / count
        return host.unpreemptible_count, host.controller_count, host.pod_count, *means

    return [host.hostname for host in sorted(hosts, key=lambda h: (cost(h), h.hostname))]


class Sizes(NamedTuple):
    """The size of a host pool: its present and its requested number of hosts."""

    name: str
    host_count: int
    wanted_count: int


def count_to_move(source: Sizes, destination: Sizes, known: Collection[str]) -> tuple[int, str]:
    """Return how many hosts move from one host pool to the other, or why the sizes cannot be.

    Both must change by the same number; a destination that is large enough takes none.
    """
    for pool in (source, destination):
        if pool.name not in known:
            return 0, f"there is no host pool {pool.name or 'without a name'}"
    if source.name != SHARED:
        return 0, f"hosts are taken from host pool {SHARED} only, not from {source.name}"
    shortfall, surplus = destination.wanted_count - destination.host_count, source.host_count - source.wanted_count
    if shortfall <= 0:
        return 0, ""
    if surplus <= 0:
        return 0, f"host pool {source.name} has {source.host_count} hosts and shall have {source.wanted_count}"
    if surplus != shortfall:
        return 0, (
            f"host pool {source.name} has {surplus} hosts more than it shall have, {destination.name} {shortfall} "
            "fewer: the numbers must be equal"
        )
    return shortfall, ""
