"""Resources that are held for pods that return to their hosts."""

from __future__ import annotations

import pytest

from peloton.hosts import resource_holds
from peloton.hosts.resource_holds import HOLD_S
from peloton.model.host import ComingBack, Desired, HostLease
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import Strategy
from peloton.model.resources import Resources
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.messages import decode_desired, encode_desired, lease_from_wire, lease_to_wire
from tests.unit.hostmgr.test_hosts import JOB, OTHER, free_part, lease_hosts, pool_with, refusals_of, shape

H1 = Hostname("h1")
BIG, SMALL = shape(3), shape(2)
GRACE_S = 30
END_S = GRACE_S + HOLD_S


def back(instance: int = 0, job: JobId = JOB) -> ComingBack:
    return ComingBack(job, instance, H1, Resources.of(3, 32), GRACE_S)


def make_cache_with_holds(*hosts: str) -> HostCache:
    """Return a pool whose host h1 has resources for the returning pod, and one cpu more."""
    pool = pool_with(*map(free_part, hosts))
    pool.set_hosts(
        [RegisteredHost(f"{name}-S", Hostname(name), "127.0.0.1", Resources(), Resources(), {}) for name in hosts]
    )
    pool.hold([back()], 0.0)
    return pool


def come_back(pool: HostCache, now_s: float = 1.0, instance: int = 0) -> HostLease:
    return pool.acquire(JOB, [(BIG, 1)], now_s, desired=[Desired(instance, H1, BIG)])


def test_others_do_not_see_what_is_held() -> None:
    """Held resources are hidden from other jobs and from other pods of the same job; the rest is available."""
    pool = make_cache_with_holds("h1")
    lease = pool.acquire(OTHER, [(SMALL, 1)], 1.0)

    assert ((), {"resources reserved for returning pods": 1}) == (lease.hosts, refusals_of(lease))
    assert [] == lease_hosts(pool, SMALL, 1)
    assert () == come_back(pool, instance=7).hosts
    [host] = pool.acquire(OTHER, [(shape(1), 1)], 1.0).hosts
    assert 1_000 == host.free.cpu_milli


def test_the_slot_of_who_comes_back_is_held() -> None:
    """The last slot of a host is for the returning pod alone."""
    pool = make_cache_with_holds("h1")
    pool.add_resources([free_part("h1", slots=1)])

    lease = pool.acquire(OTHER, [(shape(0.1), 1)], 1.0)

    assert ((), {"resources reserved for returning pods": 1}) == (lease.hosts, refusals_of(lease))
    assert [(H1, 1)] == [(host.hostname, host.pod_slots) for host in come_back(pool).hosts]


def test_who_comes_back_gets_its_host_first() -> None:
    """The lease has all free resources of the host, though another host comes before it; no second host is leased."""
    lease = come_back(make_cache_with_holds("h0", "h1"))

    assert [(H1, 4_000)] == [(host.hostname, host.free.cpu_milli) for host in lease.hosts]


def test_who_comes_back_waits_while_its_resources_is_held() -> None:
    """The pod waits even if its host has no resources yet; its job is woken when there are some, and after the hold the
    pod is placed elsewhere.
    """
    pool = make_cache_with_holds("h0", "h1")
    pool.remove_resources(["h1-O1"])
    lease = come_back(pool)
    assert ((), ((0, H1),)) == (lease.hosts, lease.awaited)
    assert lease == lease_from_wire(lease_to_wire(lease, []), [])
    assert {JOB} == pool.add_resources([free_part("h2")])

    late = come_back(pool, END_S)

    assert (["h0"], ()) == ([host.hostname for host in late.hosts], late.awaited)


def test_no_pod_waits_for_a_host_that_is_gone() -> None:
    """The host is neither registered nor announced."""
    pool = make_cache_with_holds("h0", "h1")
    pool.remove_resources(["h1-O1"])
    pool.set_hosts([])

    assert (["h0"], ()) == ([host.hostname for host in come_back(pool).hosts], come_back(pool).awaited)


def test_a_launch_ends_the_hold() -> None:
    """The hold ends whichever host the pod runs on."""
    pool = make_cache_with_holds("h1")
    pool.pods_launched(JOB, [(0, 2, "h9", ())])

    assert ["h1"] == lease_hosts(pool, shape(4), 1)


def test_holds_are_given_up() -> None:
    """Hold end when the pod no longer returns, or after their time: waiting jobs are woken."""
    pool = make_cache_with_holds("h1")
    pool.hold([back(1, OTHER)], 0.0)
    assert [] == lease_hosts(pool, shape(4), 1)

    assert set() == pool.review_holds(lambda job, instances: [back(i, job) for i in instances], 1.0)
    assert {JOB} == pool.review_holds(lambda job, instances: [back(1, OTHER)] if job == OTHER else [], 1.0)
    assert [] == lease_hosts(pool, shape(4), 1)
    assert {JOB} == pool.review_holds(lambda job, instances: [back(1, OTHER)], END_S)
    assert ["h1"] == lease_hosts(pool, shape(4), 1)


def test_holds_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """More pods return without a hold; a repeated hold of a pod counts once."""
    monkeypatch.setattr(resource_holds, "HOLDS_MAX", 1)
    pool = make_cache_with_holds("h1")
    pool.hold([back(), back(1)], 0.0)

    assert (((0, H1),), ()) == (come_back(pool).awaited, come_back(pool, instance=1).awaited)


def test_desired_hosts_cross_the_wire() -> None:
    """Each desired host has the shape of its pod."""
    desired = [Desired(3, H1, SMALL), Desired(0, Hostname("h2"), BIG)]

    assert desired == decode_desired(encode_desired(desired, [BIG, SMALL]), [BIG, SMALL])


def test_emptiest_hosts_are_leased_first() -> None:
    """The lease has one host for each pod, by the free share of the agent, then by name."""
    pool = pool_with(free_part("h2", cpus=2), free_part("h1", cpus=4), free_part("h0", cpus=4))
    pool.set_hosts(
        [
            RegisteredHost(f"{name}-S", Hostname(name), "127.0.0.1", Resources.of(cpus, 2048), Resources(), {})
            for name, cpus in (("h0", 8), ("h1", 8), ("h2", 2))
        ]
    )

    assert ["h2", "h0"] == lease_hosts(pool, shape(1, strategy=Strategy.EMPTIEST_HOST), 2)
