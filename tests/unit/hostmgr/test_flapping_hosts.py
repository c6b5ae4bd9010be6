"""Hosts that leave their cluster and come back, and their avoidance."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_avoidances import there
from tests.unit.hostmgr.test_hosts import LEASE_S, free_part, lease_hosts, refusals_of, shape
from tests.unit.hostmgr.test_maintenance import make_maintenance

NAMES = ("h1", "h2", "h3", "h4")
WHY = "avoided after it was gone and came back 3 times within 20 s"


class Cluster:
    """Four hosts; each event comes five seconds after the last."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.cache = HostCache(LEASE_S, clock=lambda: self.now_s)
        self.cache.add_resources([free_part(name) for name in NAMES])
        self.show()

    def show(self, without: Collection[str] = ()) -> None:
        self.now_s += 5.0
        self.cache.set_hosts([there(name) for name in NAMES if name not in without])

    def flap(self, *names: str, times: int = 3) -> None:
        for _ in range(times):
            self.show(without=names)
            self.show()

    def avoided(self) -> list[str]:
        return sorted(self.cache.avoidances.list_avoided(self.now_s))

    def lease(self, count: int) -> Any:
        return self.cache.acquire(JobId("job"), [(shape(4.0), count)], self.now_s)


def test_a_host_that_flaps_is_not_leased() -> None:
    """The host is avoided for a minute, while others could take the pods; the lease has the reason."""
    cluster = Cluster()
    cluster.flap("h1", times=2)
    assert [] == cluster.avoided()
    cluster.flap("h1", times=1)

    lease = cluster.lease(4)

    assert ["h2", "h3", "h4"] == [host.hostname for host in lease.hosts]
    assert {WHY: 1} == refusals_of(lease)
    assert ["h1"] == lease_hosts(cluster.cache, shape(), 1, now_s=cluster.now_s + 61.0, job=JobId("later"))


def test_it_is_the_cluster_when_many_come_back_at_once() -> None:
    """Many hosts that return together, for example after a failover of the master, are not avoided."""
    cluster = Cluster()
    cluster.flap("h1", "h2", times=9)

    assert [] == cluster.avoided()


def test_no_more_than_a_share_is_avoided() -> None:
    """One of four hosts is avoided at most."""
    cluster = Cluster()
    cluster.flap("h1")
    cluster.flap("h2")

    assert ["h1"] == cluster.avoided()


def test_a_host_in_maintenance_comes_and_goes() -> None:
    """A host in maintenance may leave and return without being avoided."""
    cluster = Cluster()
    cluster.cache.set_maintained([make_maintenance("h1", HostState.DOWN)])
    cluster.flap("h1", times=9)

    assert [] == cluster.avoided()


def test_a_host_returns_when_its_maintenance_is_over() -> None:
    """A return counts by the maintenance that was there at the departure, which has ended by then."""
    cluster = Cluster()
    for _ in range(9):
        cluster.cache.set_maintained([make_maintenance("h1", HostState.DOWN)])
        cluster.show(without=["h1"])
        cluster.cache.set_maintained([])
        cluster.show()

    assert [] == cluster.avoided()


def test_a_maintenance_ends_between_two_reads_of_the_hosts() -> None:
    """A departure that is noticed only when the maintenance has ended is still due to it."""
    cluster = Cluster()
    for _ in range(9):
        cluster.cache.set_maintained([make_maintenance("h1", HostState.DRAINING)])
        cluster.show()
        cluster.cache.set_maintained([])
        cluster.show(without=["h1"])
        cluster.show()

    assert [] == cluster.avoided()


def test_a_host_that_crashed_is_repaired() -> None:
    """A maintenance that begins while the host is gone accounts for its return, too."""
    cluster = Cluster()
    for _ in range(9):
        cluster.show(without=["h1"])
        cluster.cache.set_maintained([make_maintenance("h1", HostState.DOWN)])
        cluster.show(without=["h1"])
        cluster.cache.set_maintained([])
        cluster.show()

    assert [] == cluster.avoided()


def test_a_host_that_flaps_after_its_maintenance_is_avoided() -> None:
    """A return is excused only if it ends the maintenance."""
    cluster = Cluster()
    cluster.cache.set_maintained([make_maintenance("h1", HostState.DOWN)])
    cluster.show(without=["h1"])
    cluster.cache.set_maintained([])
    cluster.show()
    cluster.flap("h1", times=2)
    assert [] == cluster.avoided()
    cluster.flap("h1", times=1)

    assert ["h1"] == cluster.avoided()


def test_hosts_in_maintenance_do_not_hide_one_that_flaps() -> None:
    """Hosts that return from maintenance at the same moment do not count as flapping together."""
    cluster = Cluster()
    for _ in range(3):
        cluster.cache.set_maintained([make_maintenance("h2", HostState.DOWN), make_maintenance("h3", HostState.DOWN)])
        cluster.show(without=["h1", "h2", "h3"])
        cluster.cache.set_maintained([])
        cluster.show()

    assert ["h1"] == cluster.avoided()


def test_hosts_that_are_new_are_not_back() -> None:
    """A host manager that begins to lead sees all of them for the first time."""
    cluster = Cluster()
    cluster.cache = HostCache(LEASE_S, clock=lambda: cluster.now_s)
    cluster.show()

    assert ([], Hostname("h1")) == (cluster.avoided(), cluster.cache.hosts()[0].hostname)
