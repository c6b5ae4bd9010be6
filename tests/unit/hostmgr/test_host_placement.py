"""Placement of pods on the hosts themselves: one packing, which finds the hosts that a lease would have."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from peloton.lifecycle.reason_text import misfit_text
from peloton.model.host import ComingBack, PlacementBatch, ReadyGang, count_shapes, find_desired
from peloton.model.ids import Hostname
from peloton.model.layout import GangClose, Layout
from peloton.model.pod import HostLabel, HostPreference, Label, PodLabel, PodShape, Strategy
from peloton.model.resources import Resources
from peloton.scheduling.placement import assemble_batch, place
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_hosts import JOB, OTHER, free_part, pool_with, shape

WEB = ("app", "web")
APART = shape(constraint=PodLabel("app", "web", "<", 1))


def single(instance: int, wanted: PodShape, labels: tuple[Label, ...] = (), host: str = "") -> ReadyGang:
    return ReadyGang(wanted, ((instance, 1),), labels, host)


def gang(size: int, wanted: PodShape) -> ReadyGang:
    return ReadyGang(wanted, tuple((instance, 1) for instance in range(size)))


def place_at_hosts(cache: HostCache, gangs: list[ReadyGang], for_gang: bool = False, now_s: float = 0.0) -> Any:
    lease, packed = cache.place(JOB, gangs, now_s, for_gang)
    return assemble_batch(JOB, lease, packed)


def place_by_lease(cache: HostCache, gangs: list[ReadyGang], for_gang: bool = False) -> PlacementBatch:
    return place(JOB, gangs, cache.acquire(JOB, count_shapes(gangs), 0.0, for_gang, find_desired(gangs)))


def hosts_of(batch: PlacementBatch) -> dict[int, str]:
    return {pod.instance_id: one.hostname for one in batch.placements for pod in one.pods}


def reasons_of(batch: PlacementBatch) -> list[tuple[int, bool, dict[str, int]]]:
    """Return for each explained shape the number of pods, and the hosts by the text of the rule that they fail."""
    return [
        (one.pod_count, one.is_gang, {misfit_text(each.why): each.host_count for each in one.hosts})
        for why in batch.why
        for one in why.pods
    ]


def test_only_hosts_of_placements_are_leased() -> None:
    """A placement leases no host on which it puts no pod, and none when nothing fits."""
    cache = pool_with(*(free_part(f"h{i}") for i in range(3)))

    assert {0: "h0", 1: "h0"} == hosts_of(place_at_hosts(cache, [single(0, shape(2)), single(1, shape(2))]))

    assert ["h1", "h2"] == [host.hostname for host in cache.acquire(OTHER, [(shape(4), 3)], 0.0).hosts]
    batch = place_at_hosts(cache, [single(0, shape(5))])
    assert ((), 1, [(1, False)]) == (batch.placements, batch.unplaced_count, [one[:2] for one in reasons_of(batch)])
    assert ["h0"] == [host.hostname for host in cache.acquire(OTHER, [(shape(4), 3)], 0.0, for_gang=True).hosts]


def test_pods_that_return_share_their_host_as_far_as_it_goes() -> None:
    """A pod returns to its host while that has enough free resources; the others go elsewhere."""
    cache = pool_with(*(free_part(name) for name in ("a", "b")))
    gangs = [single(i, shape(2), host="b") for i in range(3)]

    assert {0: "b", 1: "b", 2: "a"} == hosts_of(place_at_hosts(cache, gangs))


def test_pods_whose_resources_are_held_wait_for_their_host() -> None:
    """A pod that returns waits while too few resources are free on its host, and goes nowhere else."""
    cache = pool_with(free_part("a"), free_part("b", 1))
    cache.hold([ComingBack(JOB, 0, Hostname("b"), Resources.of(4), 0)], 0.0)

    batch = place_at_hosts(cache, [single(0, shape(4), host="b"), single(1, shape(4))])

    assert ({1: "a"}, 1, ()) == (hosts_of(batch), batch.unplaced_count, batch.unplaced)
    (reason,) = reasons_of(batch)
    assert (1, [1]) == (reason[0], [*reason[2].values()])
    cache.add_resources([free_part("b", 3, number=2)])
    assert {0: "b"} == hosts_of(place_at_hosts(cache, [single(0, shape(4), host="b")]))


def test_labels_of_pods_count_for_constraints_on_other_pods() -> None:
    """Pods with the label go to different hosts; a pod without it may join one of them only if its rule allows it."""
    cache = pool_with(*(free_part(name) for name in ("a", "b")))
    gangs = [single(i, APART, (WEB,)) for i in range(3)] + [single(3, shape(1))]

    batch = place_at_hosts(cache, gangs)

    placed = hosts_of(batch)
    assert {"a", "b"} == {placed[0], placed[1]}
    assert (3 in placed, 2 in placed, 1) == (True, False, batch.unplaced_count)


def test_pods_for_which_a_host_has_too_few_ports_are_named() -> None:
    """Ports that pods use are not assigned, though the cluster offers them; a pod without ports is left, with the
    reason."""
    cache = pool_with(free_part("a"))
    cache.pods_launched(OTHER, [(i, 1, "a", (("peloton/port", str(31_000 + i)),)) for i in range(8)])

    batch = place_at_hosts(cache, [single(0, shape(1, port_count=2)), single(1, shape(1, port_count=1))])

    ((placement,),) = (batch.placements,)
    assert [(0, (31_008, 31_009))] == [(pod.instance_id, pod.ports) for pod in placement.pods]
    assert (1, 1) == (batch.unplaced_count, reasons_of(batch)[0][0])


CLOSE = Layout(close=GangClose("rack", is_required=True))


@pytest.mark.parametrize("layout", [None, CLOSE])
def test_a_gang_is_placed_whole_or_leases_nothing(layout: Layout | None) -> None:
    """The reason says how many members the hosts take together, as that of a placement by lease does."""
    parts = [free_part(f"h{i}", rack=f"r{i % 2}") for i in range(4)]
    small = gang(2, shape(4, layout=layout))
    large = gang(5, shape(4, layout=layout))

    assert 2 == len(hosts_of(place_at_hosts(pool_with(*parts), [small], for_gang=True)))
    cache = pool_with(*parts)
    batch = place_at_hosts(cache, [large], for_gang=True)
    assert ((), 5) == (batch.placements, batch.unplaced_count)
    assert reasons_of(place_by_lease(pool_with(*parts), [large], for_gang=True)) == reasons_of(batch)
    assert 4 == len(cache.acquire(OTHER, [(shape(4), 4)], 0.0).hosts)


@pytest.mark.parametrize("seed", range(40))
def test_one_packing_finds_hosts_for_as_many_pods_as_two(seed: int) -> None:
    """The placement has as many pods as a lease and a packing on its hosts, or more. No host takes more than it
    has, and the reasons cover each host once."""
    random = Random(seed)
    parts = [free_part(f"h{i}", random.randint(1, 8), rack=random.choice("ab")) for i in range(12)]
    strategy = random.choice([Strategy.PACK_HOST, Strategy.SPREAD_JOB, Strategy.EMPTIEST_HOST, Strategy.DEFRAGMENT])
    preferences = (HostPreference(random.randint(1, 100), HostLabel("rack", "a")),) * random.randint(0, 1)
    shapes = [
        shape(random.randint(1, 4), strategy=strategy, port_count=random.randint(0, 3), preferences=preferences)
        for _ in range(3)
    ]
    gangs = [single(i, random.choice(shapes), host=random.choice(["", "h0", "h1"])) for i in range(30)]

    one, two = place_at_hosts(pool_with(*parts), gangs), place_by_lease(pool_with(*parts), gangs)

    assert one.unplaced_count <= two.unplaced_count
    assert len(gangs) == len(hosts_of(one)) + one.unplaced_count
    assert [*range(30)] == sorted([*hosts_of(one), *(instance for left in one.unplaced for instance in left.instances)])
    held = Counter[str]()
    for instance, host in hosts_of(one).items():
        held[host] += gangs[instance].shape.resources.cpu_milli
    assert all(held[part.hostname] <= part.free.cpu_milli for part in parts)
    assert all(len(parts) == sum(hosts.values()) for *_, hosts in reasons_of(one))
