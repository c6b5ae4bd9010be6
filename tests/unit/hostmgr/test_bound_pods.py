"""Pods that fail on the only host that could take them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.model.host import HostState
from peloton.model.ids import Hostname, PodId
from peloton.model.pod import HostLabel, PodShape
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_avoidances import there
from tests.unit.hostmgr.test_hosts import JOB, LEASE_S, shape
from tests.unit.hostmgr.test_maintenance import make_maintenance

POD = PodId(JOB, 0, 1)
ON_H1 = HostLabel("hostname", "h1")
IN_RACK = HostLabel("rack", "a")


def cache_of(*names: str) -> HostCache:
    cache = HostCache(LEASE_S)
    cache.set_hosts([there(name) for name in names])
    return cache


@pytest.mark.parametrize(
    ("names", "wanted", "is_bound"),
    [
        (["h1"], shape(), True),
        (["h1", "h2"], shape(), False),
        (["h1", "h2"], shape(constraint=ON_H1), True),
        (["h2", "h3"], shape(constraint=ON_H1), True),
        (["h2"], shape(), False),
        (["h1", "h2"], shape(cpu=400.0), True),
    ],
)
def test_a_pod_is_bound_to_its_host_where_no_other_could_take_it(
    names: list[str], wanted: PodShape, is_bound: bool
) -> None:
    """A pod is bound if no other registered host could take it; free resources do not matter, since they change."""
    assert ({POD} if is_bound else set()) == cache_of(*names).bound_to_host([(POD, wanted, Hostname("h1"))])


def test_a_host_in_maintenance_is_no_other_host() -> None:
    """The pod returns to its host while the other one takes none."""
    cache = cache_of("h1", "h2")
    failed = [(POD, shape(), Hostname("h1"))]

    cache.set_maintained([make_maintenance("h2", HostState.DRAINING)])
    drained = cache.bound_to_host(failed)
    cache.set_maintained([])

    assert ({POD}, set()) == (drained, cache.bound_to_host(failed))


def test_one_pod_of_a_shape_is_bound_and_another_is_not() -> None:
    """The only host of a rack has changed its label since the second pod began on another."""
    cache = HostCache(LEASE_S)
    cache.set_hosts([replace(there("h1"), labels={"hostname": "h1", "rack": "a"}), there("h2")])
    other, wanted = PodId(JOB, 1, 1), shape(constraint=IN_RACK)

    assert {POD} == cache.bound_to_host([(POD, wanted, Hostname("h1")), (other, wanted, Hostname("h2"))])


def test_no_pod_is_bound_before_hosts_are_known() -> None:
    """A new leader assumes other hosts."""
    assert set() == HostCache(LEASE_S).bound_to_host([(POD, shape(), Hostname("h1"))])
