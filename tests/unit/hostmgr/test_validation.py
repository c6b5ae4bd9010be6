"""Validation of the state of hosts: it accepts what events make of it, and finds each seeded fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from peloton.model.daemon import Daemon, WaitingDaemonPod
from peloton.model.host import ComingBack
from peloton.model.host_pool import HOST_POOL_LABEL, HostPools
from peloton.model.ids import Hostname, PodId
from peloton.model.pod import HostLabel
from peloton.model.reservation import HostReservation, SoonestHost
from peloton.model.resources import Resources
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_hosts import JOB, LEASE_S, OTHER, THIRD, free_part, shape

H1, H2, H3, H4 = map(Hostname, ("h1", "h2", "h3", "h4"))
WHOLE = Resources.of(4, 2_048, 20_000)
CPU = Resources.of(1)
Fault = Callable[[Any, Any, Any], object]


def a_host(name: Hostname) -> RegisteredHost:
    labels: dict[str, str | Mapping[str, int]] = {"hostname": name, "rack": "a"}
    held = Resources.of(1, 100)
    return RegisteredHost(f"{name}-S", name, "", WHOLE, Resources.of(2), labels, Resources.of(1), held=held)


def a_cache(host_pools: HostPools | None = None) -> HostCache:
    """Return a state with an entry of every kind: h1 is leased, h2 holds resources and is reserved, a daemon waits on
    h3, and h4 has no offer."""
    cache = HostCache(LEASE_S)
    if host_pools:
        cache.host_pools.set(host_pools)
        cache.read_requests(lambda: [[(PodId(OTHER, 0, 1), H2, CPU)]])
    cache.daemons.want([Daemon(THIRD, shape(0.5))])
    cache.set_hosts([a_host(name) for name in (H1, H2, H3, H4)])
    cache.add_resources([replace(free_part(name, revocable=1), goes_ns=10**18 * (name == H3)) for name in (H1, H2, H3)])
    cache.pods_launched(OTHER, [(0, 1, H2, (("app", "web"), ("peloton/port", "31000")))])
    cache.pods_launched(THIRD, [(0, 1, H1, ())])
    cache.place_daemon(THIRD, [WaitingDaemonPod(2, 1, H3, shape(50.0))], 0.0)
    cache.acquire(JOB, [(shape(constraint=HostLabel("hostname", "h1")), 1)], 0.0)
    cache.hold([ComingBack(OTHER, 0, H2, Resources.of(1), 0)], 0.0)
    made = HostReservation(OTHER, 1, shape(2.0), SoonestHost(H2, "cpu", 1, 2, 3), 0, 10**12)
    cache._state.table.reservations.add(made, 1_000.0, 0.0)
    return cache


def a_pooled_cache() -> HostCache:
    return a_cache(HostPools(1))


def host_of(cache: HostCache, name: Hostname) -> Any:
    return cache._state.table.free_resources.hosts[name]


def test_entries_of_every_kind_are_valid() -> None:
    """A state with leases, holds, reservations, daemons and host pools has no fault."""
    a_cache().validate()
    a_pooled_cache().validate()


FAULTS: dict[str, Fault] = {
    "offers and their hosts": lambda t, h, c: t.free_resources._arrivals.pop("h1-O1"),
    "hosts of the fleet": lambda t, h, c: t.free_resources.fleet.drop_host(H1),
    "changes of a placement left in the fleet": lambda t, h, c: t.free_resources.fleet.set_rank([0], 1),
    "hosts that their cluster takes down": lambda t, h, c: t.free_resources.going.clear(),
    "free resources of h1": lambda t, h, c: setattr(h, "free", h.free + CPU),
    "revocable resources of h1": lambda t, h, c: setattr(h, "revocable", WHOLE),
    "pod slots of h1": lambda t, h, c: setattr(h, "pod_slots", 1),
    "h1 has negative amounts": lambda t, h, c: setattr(h, "free", h.free - WHOLE - CPU),
    "row of h1": lambda t, h, c: setattr(h, "lease_id", ""),
    "h1 has lease": lambda t, h, c: c._state.leases.clear(),
    "lists a host twice": lambda t, h, c: next(iter(c._state.leases.values()))[1].append(H1),
    "leases of several placements": lambda t, h, c: c._state.lease_of_job.update({(OTHER, True): h.lease_id}),
    "capacity of all hosts": lambda t, h, c: setattr(t.registered, "total", CPU),
    "revocable cpu of all hosts": lambda t, h, c: setattr(t.registered, "revocable_cpu_milli", 0),
    "hosts with revocable pods": lambda t, h, c: t.registered.holders.popitem(),
    "kinds of hosts": lambda t, h, c: t.registered._kinds.clear(),
    "free resources of all hosts": lambda t, h, c: t.registered._free.clear(),
    "h1 is registered, and withdrawn": lambda t, h, c: t.withdrawn.update({H1: a_host(H1)}),
    "holds by host": lambda t, h, c: t.holds._on_host.clear(),
    "reservations by host": lambda t, h, c: t.reservations._by_host.clear(),
    "ends of reservations": lambda t, h, c: t.reservations._until_s.clear(),
    "requests of reservations": lambda t, h, c: t.reservations._asked_s.clear(),
    "pods by label": lambda t, h, c: t.pod_labels._counts.clear(),
    "ports of pods": lambda t, h, c: t.pod_labels._ports.clear(),
    "daemons by host": lambda t, h, c: c._state.daemons._on_host.clear(),
    "pods of daemons": lambda t, h, c: c._state.daemons._pod_counts.clear(),
    "hosts with waiting daemons": lambda t, h, c: t.free_resources.awaited.clear(),
    "resources reserved for daemons on h2": lambda t, h, c: t.free_resources.keep_resources(
        t.free_resources.hosts[H2], CPU, 1
    ),
}
POOL_FAULTS: dict[str, Fault] = {
    "capacity of host pools": lambda t, h, c: t.registered._by_host_pool.clear(),
    "hosts with a host pool": lambda t, h, c: t.pooled._hosts.popitem(),
    "host pool of h1": lambda t, h, c: h.labels.update({HOST_POOL_LABEL: "batch"}),
    "requests of pods by host": lambda t, h, c: t.pooled.asked._on_host.clear(),
    "h2 is filled twice": lambda t, h, c: setattr(t.free_resources.hosts[H2], "free", WHOLE),
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_seeded_fault_is_found(message: str) -> None:
    """The message names the violated invariant."""
    cache = a_cache()
    FAULTS[message](cache._state.table, cache._state.table.free_resources.hosts[H1], cache)
    with pytest.raises(AssertionError, match=message):
        cache.validate()


@pytest.mark.parametrize("message", POOL_FAULTS)
def test_a_seeded_fault_of_host_pools_is_found(message: str) -> None:
    """The same, while host pools are enabled."""
    cache = a_pooled_cache()
    POOL_FAULTS[message](cache._state.table, cache._state.table.free_resources.hosts[H1], cache)
    with pytest.raises(AssertionError, match=message):
        cache.validate()
