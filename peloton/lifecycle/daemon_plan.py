"""Plan of a daemon: hosts on which it would run at once, after evictions, or later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from peloton.lifecycle.daemon import choose_evictions
from peloton.model.daemon import DaemonHost, DaemonPlan, DaemonReach, Neighbour
from peloton.model.ids import Hostname
from peloton.model.resources import Resources


def count_daemon_hosts(
    need: Resources,
    reach: DaemonReach,
    hosts: Sequence[DaemonHost],
    neighbours: Mapping[Hostname, Sequence[Neighbour]],
    capacity: Resources,
) -> DaemonPlan:
    """Return the capacity that a planned daemon would find. ``hosts``: all matching hosts. ``neighbours``: pods of the
    examined hosts without free resources."""
    there = [host for host in hosts if not host.is_unavailable]
    short = [host for host in there if not host.has_capacity]
    examined = [host for host in short if host.hostname in neighbours]
    leaving = [choose_evictions(need, host.capacity, neighbours[host.hostname]) for host in examined]
    evicting = sum(map(bool, leaving))
    return DaemonPlan(
        reach,
        unavailable_count=len(hosts) - len(there),
        free_count=len(there) - len(short),
        evicting_count=evicting,
        evicted_count=sum(map(len, leaving)),
        waiting_count=len(examined) - evicting,
        unchecked_count=len(short) - len(examined),
        overhead=_overhead(need, [host.left for host in there]),
        capacity=capacity,
    )


def _overhead(need: Resources, left: Sequence[Resources]) -> Resources:
    """Return the resources that the daemon takes, at most what each host has left: daemons that together request more
    than a host has wait for each other."""
    taken = (Resources.each(min, need, amounts) * count for amounts, count in Counter(left).items())
    return sum(taken, Resources())
