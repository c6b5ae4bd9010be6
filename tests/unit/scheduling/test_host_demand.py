"""Host pools that receive and give hosts, and the number of hosts that each lacks."""

from __future__ import annotations

from dataclasses import replace

from peloton.model.host_pool import HostInPool, HostPool, HostPools, HostPoolTotals, Workload, sum_totals
from peloton.model.ids import Hostname
from peloton.model.misfit import HostRule, Slots
from peloton.model.reason import ClusterReason, NoHost, PlacementReason, RefusingHosts
from peloton.model.resources import Resources
from peloton.scheduling.host_demand import (
    Demand,
    giver_now,
    givers,
    lacks_hosts,
    lent_to,
    moving_count,
    sources_of,
    taker_now,
    takers,
)
from peloton.scheduling.mover import HostPoolLoad

BATCH, SHARED, STATELESS, GPU = Workload.BATCH, Workload.SHARED, Workload.STATELESS, Workload.GPU
TEN = Resources(10_000, 1_000)


def pools(**serves: set[Workload]) -> HostPools:
    named = {name: HostPool(name, frozenset(work)) for name, work in {"default": set[Workload](), **serves}.items()}
    return HostPools(1, named)


def test_services_take_and_batch_jobs_give() -> None:
    """Host pools of services receive hosts and host pools of batch jobs give them, the ones for preemptible jobs first.
    A pool that serves both, gpus or no workload does neither.
    """
    found = pools(services={STATELESS}, web={STATELESS, GPU}, mixed={STATELESS, SHARED}, spare=set(),
                  batch={BATCH}, all={BATCH, SHARED}, low={SHARED})  # fmt: skip

    assert (["services", "web"], ["low", "all", "batch"]) == (takers(found), givers(found))


def test_the_default_host_pool_takes_part_by_what_is_left_to_it() -> None:
    """The default host pool serves the workloads that no other serves, and takes part by these."""
    assert (["services"], []) == (takers(pools(services={STATELESS})), givers(pools(services={STATELESS})))
    rest = pools(services={STATELESS}, others={GPU, Workload.STATEFUL})
    assert ["default"] == givers(rest)
    assert ["default"] == takers(pools(batch={BATCH, SHARED}))


def why(*rules: HostRule) -> PlacementReason:
    hosts = tuple(RefusingHosts(1, Slots(rule)) for rule in rules)
    return (ClusterReason("", pods=(NoHost(1, hosts=hosts),)),)


def test_only_pods_that_more_hosts_would_help_count() -> None:
    """Waiting pods count if hosts are full, or if there are none; not if no host meets their constraint."""
    assert lacks_hosts(why(HostRule.HOST_POOL, HostRule.CONSTRAINT, HostRule.FREE_RESOURCES))
    assert lacks_hosts(why(HostRule.HOST_POOL))
    assert not lacks_hosts(why(HostRule.HOST_POOL, HostRule.CONSTRAINT))
    assert not lacks_hosts(())


def test_waiting_pods_are_counted_in_hosts() -> None:
    """Waiting pods are counted in hosts of the mean size, by the scarcest resource; pods too large for one, and pods of
    other host pools, are not.
    """
    waiting = [
        (STATELESS, Resources(3_000, 10), 5),
        (STATELESS, Resources(1_000, 400), 6),
        (STATELESS, Resources(11_000, 1), 50),
        (BATCH, Resources(1_000, 1), 50),
    ]
    totals = {
        "services": HostPoolTotals(2, TEN * 2, Resources(15_000, 100)),
        "batch": HostPoolTotals(4, TEN * 4, Resources(1, 3_000)),
    }
    demand = Demand(pools(services={STATELESS}, batch={BATCH}), totals, waiting)

    assert HostPoolLoad("services", 2, 0, 15_000, 10_000, waiting_count=3) == taker_now("services", demand)
    assert HostPoolLoad("batch", 4, 0, 3_000, 1_000, takes=False) == giver_now("batch", demand)


def test_a_host_pool_without_hosts_is_measured_in_those_of_the_givers() -> None:
    """A host pool without hosts is measured in hosts of the givers; otherwise it would never receive its first host."""
    demand = Demand(
        pools(services={STATELESS}, batch={BATCH}), {"batch": HostPoolTotals(4, TEN * 4)}, [(STATELESS, TEN, 3)]
    )

    assert (3, 0) == (taker_now("services", demand).waiting_count, taker_now("services", demand).host_count)


def test_marked_moving_and_lent_hosts() -> None:
    """Mark count where the host is; a loan counts once the host is at rest."""
    h1, h2, h3 = (Hostname(f"h{at}") for at in (1, 2, 3))
    at = {
        h1: HostInPool("services", "services"),
        h2: HostInPool("batch", "services"),
        h3: HostInPool("services", "services"),
    }
    made = pools(services={STATELESS}, batch={BATCH})
    found = HostPools(1, made.pools, at, {h1: "batch", h2: "batch"})
    now = taker_now("services", Demand(found, {}, (), [h1, h2, h3], [h3]))

    assert (2, 1) == (now.marked_count, now.red_count)
    assert {"batch": 1} == lent_to("services", found)
    assert (1, 1, 0) == tuple(moving_count({name}, found) for name in ("services", "batch", "default"))


def test_one_that_gives_hosts_is_first_asked_for_what_it_has_lent() -> None:
    """A pool that gives hosts is first asked for the ones it has lent, the others for as many as they have above their
    minimum; one that receives hosts asks no pool of the same kind.
    """
    h1 = Hostname("h1")
    at = {h1: HostInPool("services", "services")}
    found = HostPools(1, pools(services={STATELESS}, batch={BATCH}).pools, at, {h1: "batch"})
    services, web = HostPoolLoad("services", 4, 1), HostPoolLoad("web", 3, 0)
    batch, shared = HostPoolLoad("batch", 2, 5, takes=False), HostPoolLoad("shared", 9, 2, takes=False)

    def sources(pool: HostPoolLoad) -> list[HostPoolLoad]:
        return sources_of(pool, [services, web], [shared, batch], found)

    assert [replace(services, minimum=3), shared] == sources(batch)
    assert [shared, batch] == sources(services)


def test_totals_add_up() -> None:
    """Free resources of hosts of several clusters add up."""
    one = HostPoolTotals(1, TEN, Resources(1))

    assert HostPoolTotals(2, TEN * 2, Resources(2)) == sum_totals([one, one])
    assert HostPoolTotals() == sum_totals([])
