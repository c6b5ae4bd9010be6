"""Gangs close: all pods of a gang on hosts with one value of a label."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.model.host import HostLease, LeasedHost, PlacementBatch, ReadyGang
from peloton.model.layout import Domains, GangClose, Layout, Spread
from peloton.model.pod import PodShape, Strategy
from peloton.model.resources import Resources
from peloton.scheduling.placement import place
from tests.unit.scheduling.test_spreading import JOB, by, host, texts

REQUIRED, PREFERRED = GangClose("rack", True), GangClose("rack")
SIZES = {"a": (3, 3), "b": (2, 2), "c": (9,)}
HOSTS = [host(f"{rack}{number}", cpu, rack=rack) for rack, sizes in SIZES.items() for number, cpu in enumerate(sizes)]


def run(
    hosts: list[LeasedHost], close: GangClose, size: int, strategy: Strategy = Strategy.PACK_HOST
) -> PlacementBatch:
    wanted = PodShape(Resources(1_000), strategy=strategy, layout=Layout(close=close))
    gang = ReadyGang(wanted, tuple((instance, 1) for instance in range(size)))
    return place(JOB, [gang], HostLease("l", tuple(hosts)))


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(("size", "rack"), [(2, "b"), (4, "b"), (5, "a"), (6, "a"), (7, "c"), (9, "c")])
def test_a_gang_goes_to_the_smallest_domain_that_has_capacity(strategy: Strategy, size: int, rack: str) -> None:
    """A gang is placed in the smallest domain with enough resources, whatever its strategy: larger domains stay free
    for larger gangs.
    """
    for close in (REQUIRED, PREFERRED):
        assert Counter({rack: size}) == by("rack", HOSTS, run(HOSTS, close, size, strategy))


def test_a_gang_that_fits_into_no_domain() -> None:
    """A gang that is required to be close waits, with the most that one domain has resources for; else it is placed
    anywhere.
    """
    waits = run(HOSTS, REQUIRED, 10)
    assert 0 == waits.placed_count
    assert [("fits 9 of the gang's 10 pods in one rack", 5)] == texts(waits)
    assert 10 == run(HOSTS, PREFERRED, 10).placed_count


def test_hosts_without_the_label_are_no_domain() -> None:
    """A gang that is required to be close uses no host without the label."""
    bare = [host("x", 9), host("a", 2, rack="a")]
    assert 0 == run(bare, REQUIRED, 3).placed_count
    assert 3 == run(bare, PREFERRED, 3).placed_count


def test_close_and_spread() -> None:
    """A gang is placed in one zone, and spread there over its racks."""
    hosts = [host(f"{zone}{rack}", 4, zone=zone, rack=zone + rack) for zone in "xy" for rack in "123"]
    layout = Layout((Spread("rack", is_hard=False),), GangClose("zone", True))
    wanted = PodShape(Resources(1_000), layout=layout)
    racks = Domains({dict(each.labels)["rack"]: 0 for each in hosts})
    gang = ReadyGang(wanted, tuple((instance, 1) for instance in range(6)))

    batch = place(JOB, [gang], HostLease("l", tuple(hosts), domains={wanted: (racks,)}))

    assert [6] == list(by("zone", hosts, batch).values())
    assert [2, 2, 2] == list(by("rack", hosts, batch).values())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=9), st.integers(2, 12))
def test_a_gang_waits_only_if_no_domain_has_capacity(sizes: list[tuple[str, int]], size: int) -> None:
    """A gang waits only if no domain has enough resources, and is in one domain otherwise."""
    hosts = [host(f"h{number}", cpu, rack=rack) for number, (rack, cpu) in enumerate(sizes)]
    fit_counts = Counter[str]()
    for rack, cpu in sizes:
        fit_counts[rack] += cpu

    placed = by("rack", hosts, run(hosts, REQUIRED, size))

    assert ([size] if max(fit_counts.values(), default=0) >= size else []) == list(placed.values())
