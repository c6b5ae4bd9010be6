"""Spread over domains, as a host manager counts it: open domains, counts of pods, and turns of placements."""

from __future__ import annotations

from collections import Counter

import pytest

from peloton.errors import Unavailable
from peloton.model.host import HostLease, LeasedHost
from peloton.model.ids import Hostname
from peloton.model.layout import DomainCount, Domains, GangClose, Layout, Spread
from peloton.model.pod import HostLabel, PodShape
from peloton.model.resources import Resources
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.hosts.spread_turns import SpreadTurns
from tests.unit.hostmgr.test_host_chooser import make_maintenance
from tests.unit.hostmgr.test_hosts import JOB, LEASE_S, OTHER, free_part, refusals_of

RACKS = {"h1": "a", "h2": "a", "h3": "b", "h4": "c", "h5": "small"}
HARD = Layout((Spread("rack"),))


def cache() -> HostCache:
    found = HostCache(LEASE_S)
    found.set_hosts(
        RegisteredHost(
            f"{name}-S",
            Hostname(name),
            "",
            Resources.of(0.5 if rack == "small" else 4, 2048, 20_000),
            Resources(),
            {"hostname": name, "rack": rack, "disk": "ssd" if rack == "a" else "hdd"},
        )
        for name, rack in RACKS.items()
    )
    found.add_resources([free_part(name, rack=rack) for name, rack in RACKS.items() if rack != "small"])
    return found


def shape(cpu: float = 1, constraint: HostLabel | None = None, layout: Layout = HARD) -> PodShape:
    return PodShape(Resources.of(cpu, 10), constraint=constraint, layout=layout)


def count(of: HostCache, wanted: PodShape, **pod_counts: int) -> DomainCount:
    [found] = of.domains.count([wanted], {Hostname(name): number for name, number in pod_counts.items()})[wanted]
    return found


def test_domains_are_open_where_a_host_could_take_the_pod() -> None:
    """A domain is open by labels and size of its hosts, free or not; hosts in maintenance open
    none, and pods there count.
    """
    hosts = cache()
    pods = {"a": 3, "c": 1, "small": 2}
    pod_counts = {"h1": 1, "h2": 2, "h4": 1, "h5": 2, "gone": 7}

    assert DomainCount(pods, frozenset("abc")) == count(hosts, shape(), **pod_counts)
    assert DomainCount(pods, frozenset("a")) == count(hosts, shape(constraint=HostLabel("disk", "ssd")), **pod_counts)
    assert DomainCount(pods, frozenset()) == count(hosts, shape(5), **pod_counts)
    hosts.set_maintained(make_maintenance(name, True) for name in ("h2", "h4"))
    assert DomainCount(pods, frozenset("ab")) == count(hosts, shape(), **pod_counts)
    wanted = shape()
    planned = hosts.domains.count([wanted], {Hostname("h3"): 2}, drained=[Hostname("h3")])
    assert [DomainCount({"b": 2}, frozenset("a"))] == [*planned[wanted]], "without those that are to be drained"
    assert DomainCount(pods, frozenset("ab")) == count(hosts, shape(), **pod_counts)


def test_a_lease_has_the_hosts_that_the_bound_allows() -> None:
    """The racks with fewest pods come first; the lease has the domains that placement needs."""
    hosts, wanted = cache(), shape(4)
    counts = hosts.domains.count([wanted], {Hostname("h3"): 1})

    lease = hosts.acquire(JOB, [(wanted, 4)], 0.0, counts=counts)

    racks = Counter(dict(host.labels)["rack"] for host in lease.hosts)
    assert Counter(a=2, b=1, c=1) == racks
    assert {wanted: (Domains({"a": 0, "b": 1, "c": 0}),)} == lease.domains


def test_a_lease_reports_which_hosts_the_bound_keeps_out() -> None:
    """Each host is listed under the lowest domain, of which the lease may have no host."""
    hosts, wanted = cache(), shape()
    hosts.acquire(OTHER, [(shape(4, HostLabel("rack", "c"), Layout()), 1)], 0.0)
    counts = hosts.domains.count([wanted], {Hostname("h1"): 1, Hostname("h3"): 1})

    lease = hosts.acquire(JOB, [(wanted, 1)], 0.0, counts=counts)

    assert () == lease.hosts
    why = "at most 1 pod of the job in a rack: rack=c has 0, max skew 1"
    assert {"leased to another placement": 1, why: 3} == refusals_of(lease)
    assert {wanted: (Domains({}, "c", 0),)} == lease.domains


def test_a_lease_for_a_gang_is_close() -> None:
    """All hosts are in one rack; hosts of the others are reported as too small for the gang."""
    hosts, wanted = cache(), shape(layout=Layout(close=GangClose("rack", True)))

    lease = hosts.acquire(JOB, [(wanted, 8)], 0.0, for_gang=True)
    assert ["h1", "h2"] == sorted(host.hostname for host in lease.hosts)
    hosts.release(lease.lease_id)
    lease = hosts.acquire(JOB, [(wanted, 9)], 1.0, for_gang=True)
    assert {"fits 8 of the gang's 9 pods in one rack": 2} == refusals_of(lease)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def leases(lease_id: str) -> HostLease:
    return HostLease(lease_id, (LeasedHost(Hostname("h"), Resources(), Resources()),))


def test_placements_of_one_job_take_turns() -> None:
    """A gang waits until the lease of the job's other pods is launched, released, or expired; other
    jobs do not wait.
    """
    clock = Clock()
    turns = SpreadTurns(LEASE_S, clock)
    turns.lease((JOB, False), lambda: leases("one"))
    turns.lease((OTHER, True), lambda: leases("other"))
    turns.lease((JOB, False), lambda: leases("two"))  # replaces the first lease

    with pytest.raises(Unavailable, match=f"other pods of job {JOB} are being placed"):
        turns.lease((JOB, True), lambda: leases("three"))
    with turns.launching("two"):
        turns.end("two")
        clock.now_s += LEASE_S
        for is_gang in (True, False):
            with pytest.raises(Unavailable):
                turns.lease((JOB, is_gang), lambda: leases("three"))
    turns.lease((JOB, True), lambda: leases("three"))
    turns.end("three")
    turns.lease((JOB, False), lambda: leases("four"))
    clock.now_s += LEASE_S
    assert leases("five") == turns.lease((JOB, True), lambda: leases("five"))


def test_a_lease_without_hosts_takes_no_turn() -> None:
    """A lease without hosts takes no turn, as nothing can be launched from it."""
    turns = SpreadTurns(LEASE_S, Clock())
    turns.lease((JOB, False), lambda: HostLease("none", ()))
    assert leases("one") == turns.lease((JOB, True), lambda: leases("one"))
