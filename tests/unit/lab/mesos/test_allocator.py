"""The pure parts: resources, filters, shares."""

from __future__ import annotations

import pytest

from services.lab.mesos.master.allocation import Sorter, allocatable, end_of_filter, offerable, refuse_seconds
from services.lab.mesos.model import Filter, Framework
from services.lab.mesos.resources import (
    CPUS,
    MEM,
    PORTS,
    REVOCABLE_CPUS,
    Resources,
    contains,
    cut,
    kind_of,
    merge,
    parse,
    text,
)

_FREE: Resources = {CPUS: 4000, MEM: 1024_000, REVOCABLE_CPUS: 4000, PORTS: ((31000, 31009),)}


def _framework(*capabilities: str) -> Framework:
    info = {"user": "u", "name": "n", "roles": ["web"], "capabilities": [{"type": name} for name in capabilities]}
    return Framework("f", info)


def test_revocable_resources_need_the_capability() -> None:
    """Other frameworks are offered the rest."""
    assert REVOCABLE_CPUS not in offerable(_FREE, "web", _framework("MULTI_ROLE"))
    assert _FREE == offerable(_FREE, "web", _framework("MULTI_ROLE", "REVOCABLE_RESOURCES"))


def test_reserved_resources_go_to_their_role_and_its_children() -> None:
    """A reservation for web is seen by web and web/a, not by db."""
    reserved = kind_of("cpus", reservations=[{"type": "DYNAMIC", "role": "web"}])
    free: Resources = {reserved: 1000}

    assert free == offerable(free, "web", _framework("MULTI_ROLE"))
    assert free == offerable(free, "web/a", _framework("MULTI_ROLE"))
    assert {} == offerable(free, "db", _framework("MULTI_ROLE"))


def test_too_little_is_not_offered() -> None:
    """The minimum of an offer is 0.01 cpus or 32 MB."""
    assert allocatable({CPUS: 10})
    assert allocatable({MEM: 32_000})
    assert not allocatable({CPUS: 9, MEM: 31_999, PORTS: ((1, 9),)})


@pytest.mark.parametrize(
    ("filters", "seconds"),
    [
        (None, 5.0),
        ({}, 5.0),
        ({"refuse_seconds": 0}, 0.0),
        ({"refuse_seconds": -1}, 5.0),
        ({"refuse_seconds": 0.2}, 1.0),
        ({"refuse_seconds": 1e12}, 365 * 24 * 3600.0),
    ],
)
def test_refuse_seconds(filters: dict[str, float] | None, seconds: float) -> None:
    """A missing or negative value is 5 s, 0 is none, a short one is a tick, a long one is a year."""
    assert seconds == refuse_seconds(filters, 1.0)


def test_a_filter_hides_only_what_it_contains() -> None:
    """More than was refused is offered despite the filter."""
    filters = [Filter({CPUS: 1000}, until=10.0)]

    assert 10.0 == end_of_filter(filters, {CPUS: 1000}, now=5.0)
    assert 0.0 == end_of_filter(filters, {CPUS: 1001}, now=5.0)
    assert 0.0 == end_of_filter(filters, {CPUS: 1000}, now=10.0)


def test_shares_decide_then_history_then_names() -> None:
    """The least dominant share comes first; at equal share the client with fewer allocations."""
    sorter = Sorter()
    totals = {"cpus": 10_000, "mem": 10_000}
    sorter.allocate("b", {CPUS: 1000})
    sorter.allocate("c", {MEM: 5000})
    assert ["a", "b", "c"] == sorter.order("cba", totals)

    sorter.release("b", {CPUS: 1000})
    assert ["a", "b", "c"] == sorter.order("cba", totals)

    sorter.allocate("b", {CPUS: 6000})
    assert ["a", "c", "b"] == sorter.order("cba", totals)


def test_ranges_are_cut_and_merged() -> None:
    """Inclusive ranges, adjacent ones joined."""
    assert ((1, 9),) == merge([(5, 9), (1, 4)])
    assert ((1, 2), (6, 9)) == cut(((1, 9),), ((3, 5),))
    assert contains({PORTS: ((1, 9),)}, {PORTS: ((2, 3), (5, 5))})
    assert not contains({PORTS: ((1, 9),)}, {PORTS: ((9, 10),)})


def test_scalars_have_three_decimals() -> None:
    """The sum 0.1 + 0.2 is 0.3, and texts show no trailing zeros."""
    rows = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": value}} for value in (0.1, 0.2)]

    assert {CPUS: 300} == parse(rows)
    assert "cpus(allocated: *):0.3; ports(allocated: *):[1-2, 4-5]" == text({CPUS: 300, PORTS: ((1, 2), (4, 5))}, "*")
