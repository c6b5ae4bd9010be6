"""Hosts as rebalancing sees them."""

from __future__ import annotations

import time

from peloton.hosts.host_table import GOES_NOTICE_NS
from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from peloton.scheduling.relocation import HostNow
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_hosts import JOB, free_part, pool_with, shape
from tests.unit.hostmgr.test_maintenance import make_maintenance
from tests.unit.hostmgr.test_resource_holds import back

CAPACITY = Resources.of(8, 4_096, 40_000)


def cache(*names: str) -> HostCache:
    """Return a book of hosts with 8 cpus: 4 are offered, or on a host named ``quiet`` 2 are free by the report of the
    cluster.
    """
    found = pool_with(*(free_part(name) for name in names if name.startswith("h")))
    held = CAPACITY - Resources.of(2, 1_024, 10_000)
    found.set_hosts(
        [RegisteredHost(f"{n}-S", Hostname(n), "127.0.0.1", CAPACITY, Resources(), {}, held=held) for n in names]
    )
    return found


def by_name(found: HostCache) -> dict[str, HostNow]:
    return {host.hostname: host for host in found.census({Hostname("h1"): 2})}


def test_free_resources_are_what_was_announced_or_else_what_the_cluster_says() -> None:
    """Leased resources count as free, since a lease is short."""
    found = cache("h1", "quiet")
    found.acquire(JOB, [(shape(), 1)], 0.0)

    hosts = by_name(found)

    assert (CAPACITY, Resources.of(4, 2_048, 20_000), 10, 2) == (
        hosts["h1"].capacity, hosts["h1"].view.free, hosts["h1"].view.port_count, hosts["h1"].others
    )  # fmt: skip
    assert (Resources.of(2, 1_024, 10_000), 0) == (hosts["quiet"].view.free, hosts["quiet"].others)
    assert ["h1", "quiet"] == [host.view.labels["hostname"] for host in hosts.values()]
    assert all(host.takes_pods for host in hosts.values())


def test_hosts_that_take_no_pods() -> None:
    """Hosts in or before maintenance, with resources held for returning pods, or about to be removed take no pods."""
    found = cache("h1", "h2", "h3", "h4")
    found.set_maintained([make_maintenance("h2", HostState.DOWN), make_maintenance("h3", HostState.UP)])
    found.hold([back()], time.monotonic())
    goes = free_part("h5")
    goes.goes_ns = time.time_ns() + GOES_NOTICE_NS // 2
    found.add_resources([goes])
    found.set_hosts(
        [RegisteredHost(f"h{n}-S", Hostname(f"h{n}"), "", CAPACITY, Resources(), {}) for n in (1, 2, 3, 4, 5)]
    )

    assert {"h1": False, "h2": False, "h3": False, "h4": True, "h5": False} == {
        name: host.takes_pods for name, host in by_name(found).items()
    }


def test_pods_are_counted_by_label() -> None:
    """The counts equal the ones that constraints on other pods use."""
    found = cache("h1", "h2")
    web = ("app", "web")
    found.pods_launched(JOB, [(0, 1, "h1", (web, ("tier", "1"))), (1, 1, "h1", (web,))])

    assert [{web: 2, ("tier", "1"): 1}, {}] == [dict(host.pods) for host in by_name(found).values()]
