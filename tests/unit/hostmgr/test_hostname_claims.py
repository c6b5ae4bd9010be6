"""Names of hosts are unique over all clusters."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from services.hostmgr.driver import FreeResources, RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.hosts.hostname_claims import HostnameClaims
from tests.unit.hostmgr.test_hosts import refusals_of

JOB = JobId("00000000-0000-4000-8000-000000000001")
SHAPE = PodShape(Resources(1_000))


class Table:
    def __init__(self, **rows: str) -> None:
        self.rows = dict(rows)
        self.calls: list[tuple[str, list[str]]] = []

    def claim(self, cluster: str, hostnames: Collection[str], is_first: bool = False) -> dict[str, str]:
        self.calls.append(("begin" if is_first else "claim", sorted(hostnames)))
        for name in hostnames:
            self.rows.setdefault(name, cluster)
        return {name: self.rows[name] for name in hostnames if self.rows[name] != cluster}

    def disclaim(self, cluster: str, hostnames: Collection[str]) -> None:
        self.calls.append(("disclaim", sorted(hostnames)))
        for name in hostnames:
            del self.rows[name]

    def list_claimed(self, cluster: str) -> set[str]:
        return {name for name, holder in self.rows.items() if holder == cluster}


def test_storage_is_asked_about_what_changed() -> None:
    """Changed names alone are sent to storage; a read of known hosts sends nothing."""
    table = Table(h1="b", h0="b")
    claims = HostnameClaims(table, "b")

    looks = [claims.find_refused(names) for names in (["h1", "h2"], ["h1", "h2"], ["h2"])]

    assert [{}, {}, {}] == looks
    assert [("disclaim", ["h0"]), ("claim", ["h2"]), ("disclaim", ["h1"])] == table.calls
    assert {"h2": "b"} == table.rows


def test_hosts_with_which_a_cluster_begins_have_not_joined_it() -> None:
    """Later hosts have joined, even if another process saw the first ones."""
    table = Table(h9="a")
    claims = HostnameClaims(table, "b")

    claims.find_refused(["h9"])
    claims.find_refused(["h1", "h2"])
    claims.find_refused(["h1", "h2", "h3"])
    HostnameClaims(table, "b").find_refused(["h1", "h2", "h3", "h4"])

    assert [("begin", ["h9"]), ("begin", ["h1", "h2"]), ("claim", ["h3"]), ("claim", ["h4"])] == table.calls


def test_a_name_of_another_cluster_is_refused_until_it_is_free(caplog: pytest.LogCaptureFixture) -> None:
    """The rejection is logged once, and the name is claimed again at each call."""
    table = Table(h1="a")
    claims = HostnameClaims(table, "b")

    looks = [claims.find_refused(["h1", "h2"]), claims.find_refused(["h1", "h2"])]
    del table.rows["h1"]

    assert [{"h1": "a"}, {"h1": "a"}, {}] == [*looks, claims.find_refused(["h1", "h2"])]
    assert ["host h1 is ignored: cluster a has a host of that name, and names are unique over all clusters"] == [
        record.getMessage() for record in caplog.records
    ]


def test_a_refused_host_takes_no_pods() -> None:
    """The host is not in the capacity and not listed, and the reason names the other cluster."""
    pool = HostCache(30.0)
    agent = RegisteredHost("agent1", Hostname("h1"), "ip:1", Resources(4_000), Resources(), {})
    free_part = FreeResources("o1", Hostname("h1"), "agent1", Resources(1_000), Resources(), (), {"hostname": "h1"})

    pool.add_resources([free_part])
    pool.set_hosts([agent], {"h1": "a"})

    assert ((Resources(), Resources(), 0), []) == (pool.capacity(), pool.hosts())
    assert {"a host of cluster a has the same name": 1} == refusals_of(pool.acquire(JOB, [(SHAPE, 1)], 0.0))
    pool.set_hosts([agent])
    assert ["h1"] == [host.hostname for host in pool.acquire(JOB, [(SHAPE, 1)], 0.0).hosts]
