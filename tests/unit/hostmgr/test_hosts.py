"""Hosts, their free resources, and leases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peloton.hosts.host_chooser import HOSTS_PER_LEASE_MAX
from peloton.lifecycle.reason_text import misfit_text
from peloton.model.host import CLUSTER_KIND_LABEL, CLUSTER_LABEL, POD_SLOTS_UNLIMITED, HostLease
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import DomainCount, Domains, GangClose, Layout, Spread
from peloton.model.planned_capacity import PlannedPods
from peloton.model.pod import AllOf, HostLabel, HostPreference, PodShape, Strategy
from peloton.model.resources import Resources
from services.hostmgr.domain_messages import counts_from_wire, counts_to_wire
from services.hostmgr.driver import FreeResources, RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.messages import decode_wanted, encode_wanted, lease_from_wire, lease_to_wire

JOB = JobId("00000000-0000-4000-8000-000000000001")
OTHER = JobId("00000000-0000-4000-8000-000000000002")
THIRD = JobId("00000000-0000-4000-8000-000000000003")
LEASE_S = 30.0


def free_part(
    name: str,
    cpus: float = 4.0,
    mem: float = 2048,
    revocable: float = 0,
    rack: str = "a",
    number: int = 1,
    slots: int = POD_SLOTS_UNLIMITED,
) -> FreeResources:
    return FreeResources(
        f"{name}-O{number}",
        Hostname(name),
        f"{name}-S",
        Resources.of(cpus, mem, 20_000),
        Resources.of(revocable),
        ((31_000, 31_009),),
        {"hostname": name, "rack": rack},
        pod_slots=slots,
    )


def refusals_of(lease: HostLease) -> dict[str, int]:
    """Return the number of hosts by the text of the rule that excludes them."""
    return {misfit_text(one.why): one.host_count for hosts in lease.refused.values() for one in hosts}


def pool_with(*free_resources: FreeResources) -> HostCache:
    pool = HostCache(LEASE_S)
    pool.add_resources(free_resources)
    return pool


def shape(cpu: float = 1.0, **rest: Any) -> PodShape:
    return PodShape(Resources.of(cpu, 32), **rest)


def lease_hosts(pool: HostCache, wanted: PodShape, count: int, now_s: float = 0.0, job: JobId = JOB) -> list[str]:
    return [h.hostname for h in pool.acquire(job, [(wanted, count)], now_s).hosts]


def test_every_host_has_the_labels_of_its_cluster() -> None:
    """The labels of the cluster override its own values in hosts and offers, even on a host that its operators have
    withdrawn.
    """
    labels = {CLUSTER_LABEL: "west", CLUSTER_KIND_LABEL: "mesos"}
    pool = HostCache(LEASE_S, cluster_labels=labels)
    amounts = Resources.of(4, 1_000), Resources()
    said = {CLUSTER_LABEL: "east", "rack": "a"}
    hosts = [RegisteredHost(f"{name}-S", Hostname(name), "", *amounts, dict(said)) for name in ("h1", "h2")]
    hosts[1].withdrawn = "drained"

    pool.set_hosts(hosts)
    pool.add_resources([FreeResources("r1", Hostname("h1"), "h1-S", *amounts, (), said)])

    expected = tuple(sorted({"rack": "a", **labels}.items()))
    assert [expected] * 2 == [host.labels for host in pool.hosts()]
    assert [expected] == [host.labels for host in pool.acquire(JOB, [(shape(1), 1)], 0.0).hosts]
    assert {"east": False, "west": True} == {
        name: not pool.evaluate([shape(constraint=HostLabel(CLUSTER_LABEL, name, "=", 1))]) for name in ("east", "west")
    }


def test_a_gang_has_a_lease_of_its_own() -> None:
    """The placement of a job's gang does not void the lease of its other pods, nor the other way round."""
    pool = pool_with(free_part("h1"), free_part("h2"))
    others = pool.acquire(JOB, [(shape(4), 1)], 0.0)
    gang = pool.acquire(JOB, [(shape(4), 1)], 0.0, for_gang=True)

    assert ["h1", "h2"] == [host.hostname for host in others.hosts + gang.hosts]
    assert [Hostname("h1")] == list(pool.claim(others.lease_id, [Hostname("h1")]))
    assert ["h2"] == [host.hostname for host in pool.acquire(JOB, [(shape(4), 1)], 1.0, for_gang=True).hosts]


def test_a_job_holds_one_lease() -> None:
    """The next placement after a lost answer finds the same hosts; the lost lease is void."""
    pool = pool_with(free_part("h1"))
    lost = pool.acquire(JOB, [(shape(), 1)], 0.0)

    again = pool.acquire(JOB, [(shape(), 1)], 1.0)

    assert ["h1"] == [h.hostname for h in again.hosts]
    assert {} == pool.claim(lost.lease_id, [Hostname("h1")])


def test_a_lease_takes_no_more_hosts_than_the_pods_need() -> None:
    """Six one-cpu pods fit on two of three four-cpu hosts."""
    pool = pool_with(free_part("h1"), free_part("h2"), free_part("h3"))

    assert lease_hosts(pool, shape(), 6) == ["h1", "h2"]


def test_a_lease_takes_hosts_until_their_pod_slots_are_enough() -> None:
    """Hosts without a pod slot are reported as such, and the rest of their resources is not free."""
    pool = pool_with(free_part("h1", slots=0), free_part("h2", slots=1), free_part("h3", slots=3))
    wanted = shape(0.1)

    lease = pool.acquire(JOB, [(wanted, 5)], 0.0)

    assert ({"h2": 1, "h3": 3}, {"no pod slot left": 1}) == (
        {host.hostname: host.pod_slots for host in lease.hosts},
        refusals_of(lease),
    )
    assert lease == lease_from_wire(lease_to_wire(lease, [wanted]), [wanted])
    assert Resources() == pool.free()  # h1 has resources that no pod can use


def test_spread_takes_one_host_per_pod() -> None:
    """Spreading three small pods asks for three hosts although one would hold them."""
    pool = pool_with(free_part("h1"), free_part("h2"), free_part("h3"))

    assert lease_hosts(pool, shape(0.1, strategy=Strategy.SPREAD_JOB), 3) == ["h1", "h2", "h3"]


def test_two_leases_never_share_a_host() -> None:
    """A leased host is invisible to the next placement until the lease ends."""
    pool = pool_with(free_part("h1"), free_part("h2"))

    first, second, third = (lease_hosts(pool, shape(), 4, job=job) for job in (JOB, OTHER, THIRD))

    assert (["h1"], ["h2"], []) == (first, second, third)


@pytest.mark.parametrize(
    ("wanted", "rule"),
    [
        (shape(5.0), "less than 5 cpu free, 4 at most"),
        (shape(1.0, port_count=11), "less than 11 ports free, 10 at most"),
        (shape(1.0, constraint=HostLabel("rack", "b")), "label rack=b not met"),
        (shape(1.0, revocable=True), "less than 1 revocable cpu free, 0 at most"),
    ],
)
def test_every_host_that_fails_a_rule_is_counted(wanted: PodShape, rule: str) -> None:
    """An empty lease says which rule rejected how many hosts."""
    pool = pool_with(free_part("h1"), free_part("h2"))

    lease = pool.acquire(JOB, [(wanted, 1)], 0.0)

    assert ({rule: 2}, ()) == (refusals_of(lease), lease.hosts)


def test_revocable_pods_use_revocable_cpu() -> None:
    """The cpu of a revocable pod comes from the revocable part; its memory from the ordinary one."""
    pool = pool_with(free_part("h1", cpus=1.0, revocable=4.0))

    assert lease_hosts(pool, shape(3.0, revocable=True), 1) == ["h1"]


def test_a_job_that_got_too_little_is_signalled_when_resources_come() -> None:
    """The next offer returns the job once, and not again."""
    pool = pool_with(free_part("h1"))

    lease_hosts(pool, shape(), 5)

    assert {JOB} == pool.add_resources([free_part("h2")])
    assert set() == pool.add_resources([free_part("h3")])


def test_a_job_that_got_enough_is_left_alone() -> None:
    """An offer wakes waiting jobs alone."""
    pool = pool_with(free_part("h1"))

    lease_hosts(pool, shape(), 4)

    assert set() == pool.add_resources([free_part("h2")])


def test_a_released_lease_frees_its_hosts_and_names_who_waits() -> None:
    """Giving a lease back makes its hosts READY and wakes the job that found none."""
    pool = pool_with(free_part("h1"))
    lease = pool.acquire(JOB, [(shape(), 1)], 0.0)
    pool.acquire(OTHER, [(shape(), 1)], 0.0)

    assert {OTHER} == pool.release(lease.lease_id)
    assert lease_hosts(pool, shape(), 1) == ["h1"]


def test_a_lease_that_was_too_little_wakes_no_job_needlessly() -> None:
    """A job that releases too few hosts is not woken for them, and neither is one that found no hosts leased. A new
    offer wakes both.
    """
    pool = pool_with(free_part("h1"))
    pool.acquire(OTHER, [(shape(8), 1)], 0.0)
    lease = pool.acquire(JOB, [(shape(3), 2)], 0.0, for_gang=True)

    assert set() == pool.release(lease.lease_id)
    assert {JOB, OTHER} == pool.add_resources([free_part("h2")])


def test_a_gang_receives_the_hosts_of_its_other_pods() -> None:
    """A gang that found hosts leased to the job's own pods is woken when they are given back."""
    pool = pool_with(free_part("h1"))
    lease = pool.acquire(JOB, [(shape(), 1)], 0.0)
    pool.acquire(JOB, [(shape(), 1)], 0.0, for_gang=True)

    assert {JOB} == pool.release(lease.lease_id)
    assert set() == pool.add_resources([free_part("h2")])


def test_a_lease_ends_by_itself() -> None:
    """Hosts of a failed holder are free when the lease expires, and a late launch claims nothing."""
    pool = pool_with(free_part("h1"))
    late = pool.acquire(JOB, [(shape(), 1)], 0.0)

    assert lease_hosts(pool, shape(), 1, LEASE_S - 1, job=OTHER) == []
    assert lease_hosts(pool, shape(), 1, LEASE_S, job=OTHER) == ["h1"]
    assert {} == pool.claim(late.lease_id, [Hostname("h1")])


def test_a_launch_consumes_all_offers_of_its_hosts() -> None:
    """The rest of a launched host is offered again; untouched hosts are READY once the lease is released, and jobs that
    found them leased are woken.
    """
    pool = pool_with(free_part("h1"), free_part("h2"))
    lease = pool.acquire(JOB, [(shape(), 8)], 0.0)
    pool.acquire(OTHER, [(shape(), 1)], 0.0)

    claims = pool.claim(lease.lease_id, [Hostname("h1")])

    assert [("h1", ("h1-O1",))] == [(c.hostname, c.resources_ids) for c in claims.values()]
    assert {OTHER} == pool.release(lease.lease_id)
    assert lease_hosts(pool, shape(), 8) == ["h2"]


def test_no_job_is_signalled_of_a_lease_that_a_launch_used_up() -> None:
    """A lease that was used up leaves nothing for other jobs, so none is woken."""
    pool = pool_with(free_part("h1"))
    lease = pool.acquire(JOB, [(shape(), 1)], 0.0)
    pool.acquire(OTHER, [(shape(), 1)], 0.0)
    pool.claim(lease.lease_id, [Hostname("h1")])

    assert set() == pool.release(lease.lease_id)


def test_a_second_launch_under_one_lease_gets_nothing() -> None:
    """A lease is used up by its launch."""
    pool = pool_with(free_part("h1"))
    lease = pool.acquire(JOB, [(shape(), 1)], 0.0)
    pool.claim(lease.lease_id, [Hostname("h1")])

    assert {} == pool.claim(lease.lease_id, [Hostname("h1")])


def test_offers_of_one_host_add_up() -> None:
    """A pod may use resources of several offers."""
    pool = pool_with(free_part("h1", cpus=2.0), free_part("h1", cpus=2.0, number=2))

    lease = pool.acquire(JOB, [(shape(4.0), 1)], 0.0)

    assert [Resources(4_000, 4_096, 40_000)] == [h.free for h in lease.hosts]


def test_offers_that_are_taken_back_are_gone() -> None:
    """Resources of a rescinded offer are not leased any more."""
    pool = pool_with(free_part("h1"))

    pool.remove_resources(["h1-O1"])

    assert lease_hosts(pool, shape(), 1) == []


def test_losing_the_session_forgets_all_offers_and_every_lease() -> None:
    """A lease from before the loss claims nothing afterwards, even when the host is announced again."""
    pool = pool_with(free_part("h1"))
    lease = pool.acquire(JOB, [(shape(), 1)], 0.0)

    pool.forget_resources()
    pool.add_resources([free_part("h1", number=2)])

    assert {} == pool.claim(lease.lease_id, [Hostname("h1")])


def test_a_host_that_comes_back_as_another_machine_starts_afresh() -> None:
    """Offers of the old machine are not added to offers of the new one."""
    pool = pool_with(free_part("h1"))
    again = replace(free_part("h1", cpus=1.0, number=2), host_id="h1-S2")

    pool.add_resources([again])

    assert [1_000] == [h.free.cpu_milli for h in pool.acquire(JOB, [(shape(0.5), 1)], 0.0).hosts]


def test_a_lease_is_bounded() -> None:
    """However many pods are wanted, one lease holds at most HOSTS_PER_LEASE_MAX hosts."""
    pool = pool_with(*(free_part(f"h{i:05}") for i in range(HOSTS_PER_LEASE_MAX + 5)))

    assert HOSTS_PER_LEASE_MAX == len(lease_hosts(pool, shape(4.0), 5_000))


def agent(name: str, slack: int, held: int) -> RegisteredHost:
    return RegisteredHost(
        f"{name}-S",
        Hostname(name),
        "",
        Resources.of(4, 2048),
        Resources(cpu_milli=slack),
        {},
        revocable_held=Resources(cpu_milli=held),
    )


def test_a_closed_host_takes_no_revocable_pods() -> None:
    """A closed host serves ordinary pods, shows no revocable cpu to a placement, and admits pods only up to its
    allocation; when it opens, waiting jobs are woken.
    """
    pool = pool_with(free_part("h1", revocable=2), free_part("h2", revocable=0))
    pool.set_hosts([agent("h1", slack=2000, held=500), agent("h2", slack=0, held=0)])
    slack = shape(0.5, revocable=True)
    assert pool.close_to_revocable({Hostname("h1"): 300}) == set()

    lease = pool.acquire(JOB, [(slack, 1)], 0.0)
    ordinary = pool.acquire(OTHER, [(shape(), 1)], 0.0)

    assert (lease.hosts, refusals_of(lease)["closed to revocable pods after it was hot"]) == ((), 1)
    assert [(host.hostname, host.revocable) for host in ordinary.hosts] == [("h1", Resources())]
    assert pool.capacity()[1] == Resources(cpu_milli=300)
    pool.release(ordinary.lease_id)
    pool.acquire(JOB, [(slack, 1)], 0.0)
    assert pool.close_to_revocable({}) == {JOB}
    assert (lease_hosts(pool, slack, 1), pool.capacity()[1]) == (["h1"], Resources(cpu_milli=2000))


def test_spread_crosses_the_wire() -> None:
    """The rules are sent to the host manager, counts both ways, and domains back; by shape and rule."""
    rules = Spread("rack", 2), Spread("zone", is_hard=False)
    shapes = [shape(), shape(layout=Layout(rules)), shape(2, layout=Layout(rules[:1], GangClose("rack", True)))]
    wanted = [(each, 1) for each in shapes]
    assert wanted == decode_wanted(encode_wanted(wanted))

    racks, zones = DomainCount({"a": 1, "b": 0}, frozenset("ac")), DomainCount({}, frozenset("x"))
    counts = {shapes[1]: (racks, zones), shapes[2]: (zones,)}
    assert counts == counts_from_wire(counts_to_wire(counts, shapes), shapes)

    domains = {shapes[1]: (Domains({"a": 1}, "c", 0), Domains()), shapes[2]: (Domains({"b": 3}),)}
    lease = HostLease("l", (), domains=domains)
    assert lease == lease_from_wire(lease_to_wire(lease, shapes), shapes)


def test_preferences_cross_the_wire_and_choose_the_hosts_of_a_lease() -> None:
    """The host manager leases the hosts with the highest score, by label or by name, while they have free resources."""
    on_b, named = HostPreference(5, HostLabel("rack", "b")), HostPreference(3, HostLabel("hostname", "h1"))
    fond = shape(4, preferences=(on_b, named, HostPreference(1, AllOf((on_b.constraint, named.constraint)))))
    wanted = [(fond, 2), (shape(), 1)]
    assert wanted == decode_wanted(encode_wanted(wanted))

    pool = pool_with(free_part("h0"), free_part("h1"), free_part("h2", rack="b"))
    assert [["h2"], ["h1"], ["h0"]] == [lease_hosts(pool, fond, 1, job=job) for job in (JOB, OTHER, THIRD)]


@pytest.mark.parametrize("strategy", Strategy)
def test_strategies_cross_the_wire(strategy: Strategy) -> None:
    """A host manager of release 0.1 packs for unknown strategies; the flags of its workers are read."""
    wanted = [(shape(strategy=strategy), 2)]
    (wire,) = encode_wanted(wanted)

    assert wanted == decode_wanted([wire])
    wire.ClearField("strategy")
    (of_old,) = decode_wanted([wire])
    known = Strategy.PACK_HOST if strategy in (Strategy.DEFRAGMENT, Strategy.LEAST_LOADED) else strategy
    assert known is of_old[0].strategy


# Free resources without an offer.


def make_host(name: str, held: float = 0) -> RegisteredHost:
    capacity = Resources.of(4.0, 2048, 20_000)
    return RegisteredHost(f"{name}-S", Hostname(name), "", capacity, Resources(), {}, held=Resources.of(held))


def free_cpus(cache: HostCache, name: str = "h1") -> tuple[float, float]:
    """Return the free cpus of one host as it is listed, and of all hosts together."""
    (host,) = cache.hosts([name])
    return host.free.cpu_milli / 1000, cache.free().cpu_milli / 1000


def test_a_host_whose_offer_is_rescinded_has_its_free_resources() -> None:
    """The agent was killed and came back between two reads, and the cluster makes no offer at present."""
    cache = pool_with(free_part("h1"))
    cache.set_hosts([make_host("h1", held=1)])

    cache.remove_resources(["h1-O1"])

    assert (3.0, 3.0) == free_cpus(cache)


def test_resources_that_a_launch_leaves_are_free_though_they_are_not_offered() -> None:
    """Claimed resources are not free until the cluster's report can include the launch: the second one after its end,
    as the first may be older. From then on resources that no pod holds are free.
    """
    cache = pool_with(free_part("h1"))
    cache.set_hosts([make_host("h1")])
    lease = cache.acquire(JOB, [(shape(1.0), 1)], 0.0)
    seen = []
    with cache.launching(["h1"]):
        cache.claim(lease.lease_id, [Hostname("h1")])
        cache.release(lease.lease_id)
        for _ in range(3):
            cache.set_hosts([make_host("h1")])
            seen.append(free_cpus(cache))
    for held in (0, 1):
        cache.set_hosts([make_host("h1", held)])
        seen.append(free_cpus(cache))

    assert [(0.0, 0.0)] * 4 + [(3.0, 3.0)] == seen


def test_a_plan_finds_capacity_that_a_launch_left_and_that_is_not_offered() -> None:
    """A plan uses the same free resources as a lease."""
    cache = pool_with(free_part("h1"))
    cache.set_hosts([make_host("h1")])
    lease = cache.acquire(JOB, [(shape(1.0), 1)], 0.0)
    cache.claim(lease.lease_id, [Hostname("h1")])
    cache.release(lease.lease_id)
    for _ in range(2):
        cache.set_hosts([make_host("h1", held=1)])

    (found,) = cache.finder.find([PlannedPods(shape(1.0), 9)], {})

    assert 3 == found.count
