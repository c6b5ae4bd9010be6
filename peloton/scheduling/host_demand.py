"""The input of the mover: the host pools that take and give hosts, their usage, and the hosts that they lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from peloton.lifecycle.host_pools import serving
from peloton.model.host_pool import HostPools, HostPoolTotals, Workload, sum_totals
from peloton.model.ids import Hostname
from peloton.model.misfit import HostRule
from peloton.model.reason import PlacementReason
from peloton.model.resources import Resources, pair_amounts
from peloton.scheduling.mover import HostPoolLoad

_LENDING = frozenset({Workload.SHARED, Workload.BATCH})
_LACKING = frozenset({HostRule.FREE_RESOURCES, HostRule.VOLUME_DISK, HostRule.POD_SLOTS, HostRule.PORTS})
"""The rules by which hosts refuse a pod that another host like them would take."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A snapshot of the host pools and the demand on them."""

    pools: HostPools
    totals: Mapping[str, HostPoolTotals]  # by host pool
    waiting: Sequence[tuple[Workload, Resources, int]] = ()  # of pods without a host: workload, request, count
    marked: Collection[Hostname] = ()  # hosts marked orange or red
    red: Collection[Hostname] = ()  # the part of ``marked`` that is red
    slow_count: int = 0  # services marked red


def takers(pools: HostPools) -> list[str]:
    """Return the host pools that serve stateless jobs but no batch jobs."""
    serves = serving(pools.pools.values())
    return sorted(name for name, work in serves.items() if Workload.STATELESS in work and not work & _LENDING)


def givers(pools: HostPools) -> list[str]:
    """Return the host pools for batch jobs alone, in the order in which they give hosts: the ones for preemptible jobs
    first."""
    serves = serving(pools.pools.values())
    lending = [name for name, work in serves.items() if work and work <= _LENDING]
    return sorted(lending, key=lambda name: (Workload.BATCH in serves[name], name))


def lacks_hosts(why: PlacementReason) -> bool:
    """Return whether pods with this placement reason would find a host if their host pool had more of the same hosts.

    They would if some hosts only lack free resources, or if the host pool has no hosts at all.
    """
    rules = {hosts.misfit.rule for cluster in why for pods in cluster.pods for hosts in pods.hosts}
    return bool(rules & _LACKING) or rules == {HostRule.HOST_POOL}


def taker_now(name: str, demand: Demand) -> HostPoolLoad:
    """Return the state of a taking host pool; one without hosts is measured in hosts of the pools that would give
    some."""
    pools = demand.pools
    of_pool = demand.totals.get(name, HostPoolTotals())
    sizes = (
        of_pool
        if of_pool.host_count
        else sum_totals(demand.totals.get(giver, HostPoolTotals()) for giver in givers(pools))
    )
    mine = serving(pools.pools.values())[name]
    waiting = [(asked, count) for work, asked, count in demand.waiting if work in mine]
    lacking = _count_hosts_for(waiting, sizes)
    return replace(_pool_now(name, demand, of_pool, lacking), slow_count=demand.slow_count)


def giver_now(name: str, demand: Demand) -> HostPoolLoad:
    return replace(_pool_now(name, demand, demand.totals.get(name, HostPoolTotals()), 0), takes=False)


def sources_of(
    pool: HostPoolLoad, takers: Sequence[HostPoolLoad], givers: Sequence[HostPoolLoad], pools: HostPools
) -> list[HostPoolLoad]:
    """Return the host pools from which this one takes hosts, in the order in which they are asked.

    A giver first takes back the hosts that it has lent.
    """
    others = [giver for giver in givers if giver.name != pool.name]
    if pool.takes:
        return others
    lent = ((taker, lent_to(taker.name, pools)[pool.name]) for taker in takers)
    owing = [replace(taker, minimum=max(taker.minimum, taker.host_count - count)) for taker, count in lent if count]
    return [*owing, *others]


def lent_to(taker: str, pools: HostPools) -> Counter[str]:
    """Count the hosts that the mover took for a host pool and that have arrived there, by the host pool they came
    from."""
    return Counter(lender for host, lender in pools.lent.items() if pools.of(host) == (taker, taker))


def moving_count(names: Collection[str], pools: HostPools) -> int:
    """Count the hosts that move from or to any of these host pools."""
    places = pools.hosts.values()
    return sum(place.is_moving and (place.current in names or place.desired in names) for place in places)


def _pool_now(name: str, demand: Demand, of_pool: HostPoolTotals, waiting_count: int) -> HostPoolLoad:
    """Return the state of a host pool, in the resource kind of which the largest share is in use."""
    shares = [(used / have, used, have) for used, have in zip(of_pool.used, of_pool.capacity, strict=True) if have]
    _, used, have = max(shares, default=(0.0, 0, of_pool.host_count))
    return HostPoolLoad(
        name,
        of_pool.host_count,
        demand.pools.pools[name].minimum,
        used,
        host_size=max(have // max(of_pool.host_count, 1), 1),
        marked_count=sum(demand.pools.of(host).current == name for host in demand.marked),
        red_count=sum(demand.pools.of(host).current == name for host in demand.red),
        waiting_count=waiting_count,
    )


def _count_hosts_for(waiting: Iterable[tuple[Resources, int]], sizes: HostPoolTotals) -> int:
    """Return how many hosts of mean size these pods fill.

    Pods larger than such a host are not counted: no number of hosts helps them.
    """
    if not sizes.host_count:
        return 0
    size = Resources.each(lambda amount: amount // sizes.host_count, sizes.capacity)
    total = sum((asked * count for asked, count in waiting if asked.fits_in(size)), Resources())
    return max((-(-wanted // one) for _, wanted, one in pair_amounts(total, size) if one), default=0)
