"""Spread over domains, as a host manager counts it: open domains, counts of pods, and turns of placements."""

from __future__ import annotations

from collections import Counter

import pytest

from peloton.errors import Unavailable
from peloton.hosts.spread_turns import SpreadTurns
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import DomainCount, Domains, GangClose, Layout, Spread
from peloton.model.pod import HostLabel, PodShape
from peloton.model.resources import Resources
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
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


def take_turn(turns: SpreadTurns, job: JobId, is_gang: bool, lease_id: str, now_s: float = 0.0) -> None:
    turns.check((job, is_gang), now_s)
    turns.record_lease((job, is_gang), lease_id, now_s)


def test_placements_of_one_job_take_turns() -> None:
    """A gang waits until the lease of the job's other pods is launched, released, or expired; other
    jobs do not wait.
    """
    turns, late_s = SpreadTurns(LEASE_S), LEASE_S
    take_turn(turns, JOB, False, "one")
    take_turn(turns, OTHER, True, "other")
    take_turn(turns, JOB, False, "two")  # replaces the first lease

    with pytest.raises(Unavailable, match=f"other pods of job {JOB} are being placed"):
        take_turn(turns, JOB, True, "three")
    turns.launch_began("two")
    turns.end("two")
    for is_gang in (True, False):
        with pytest.raises(Unavailable):
            take_turn(turns, JOB, is_gang, "three", late_s)
    turns.launch_ended("two")
    take_turn(turns, JOB, True, "three", late_s)
    turns.end("three")
    take_turn(turns, JOB, False, "four", late_s)
    with pytest.raises(Unavailable):
        take_turn(turns, JOB, True, "five", late_s)
    take_turn(turns, JOB, True, "five", 2 * LEASE_S)


def test_a_lease_without_hosts_takes_no_turn() -> None:
    """A lease without hosts takes no turn, as nothing can be launched from it."""
    turns = SpreadTurns(LEASE_S)
    take_turn(turns, JOB, False, "")
    take_turn(turns, JOB, True, "one")


def test_the_release_of_a_lease_ends_its_turn() -> None:
    """The release is one event: no placement of the job waits for a turn without a lease."""
    hosts = cache()
    hosts.spread_turns.record_lease((JOB, False), "one", 0.0)
    hosts.release("one")
    hosts.spread_turns.check((JOB, True), 0.0)
