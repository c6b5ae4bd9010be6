"""Preferences of pods for hosts: the highest sum of weights among the hosts that take the pod, without any wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peloton.lifecycle.constraints import HOSTNAME_LABEL
from peloton.lifecycle.label_tests import EXISTS, LABEL_TEST
from peloton.model.host import HostLease, LeasedHost, PlacementBatch, ReadyGang
from peloton.model.layout import Domains, GangClose, Layout, Spread
from peloton.model.pod import AllOf, AnyOf, HostLabel, HostPreference, PodLabel, PodShape, Strategy
from peloton.model.resources import Resources
from peloton.scheduling.placement import place
from tests.unit.scheduling.test_spreading import JOB, by, host

ONE_CPU = PodShape(Resources(1_000))


def prefer(weight: int, key: str, value: str, condition: str = "=") -> HostPreference:
    return HostPreference(weight, HostLabel(key, value, condition))


def run(hosts: Sequence[LeasedHost], shape: PodShape, count: int, is_gang: bool = False) -> PlacementBatch:
    members = tuple((instance, 1) for instance in range(count))
    gangs = [ReadyGang(shape, members)] if is_gang else [ReadyGang(shape, (one,)) for one in members]
    spread = shape.layout.spread if shape.layout else ()
    labels = [Counter(dict(each.labels)[rule.label] for each in hosts) for rule in spread]
    domains = {shape: tuple(Domains(dict.fromkeys(found, 0)) for found in labels)} if spread else {}
    return place(JOB, gangs, HostLease("l", tuple(hosts), domains=domains))


def count_by_host(batch: PlacementBatch) -> dict[str, int]:
    return {placement.hostname: len(placement.pods) for placement in batch.placements}


TWO = [host("a", 2, zone="x"), host("b", 4, zone="y")]


@pytest.mark.parametrize("strategy", Strategy)
def test_pods_go_to_the_preferred_host_while_it_has_free_resources(strategy: Strategy) -> None:
    """The preferred host is filled first, whatever the strategy, and the others go to the other host."""
    for value, filled in (("x", {"a": 2, "b": 1}), ("y", {"b": 3})):
        shape = replace(ONE_CPU, strategy=strategy, preferences=(prefer(1, "zone", value),))
        assert filled == count_by_host(run(TWO, shape, 3))


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        pytest.param([prefer(1, HOSTNAME_LABEL, "c")], "c", id="a host by its name"),
        pytest.param([prefer(1, HOSTNAME_LABEL, "gone"), prefer(1, "zone", "y")], "b", id="a host that is not there"),
        pytest.param([prefer(1, "zone", "x", "<")], "b", id="without a label"),
        pytest.param([prefer(1, LABEL_TEST + "gen", EXISTS)], "b", id="a label exists"),
        pytest.param([prefer(1, LABEL_TEST + "gen", "> 5")], "c", id="a number above"),
        pytest.param([prefer(50, "zone", "x"), prefer(51, "zone", "y")], "b", id="the heavier one"),
        pytest.param([prefer(50, "zone", "x"), prefer(60, "zone", "y"), prefer(20, "disk", "hdd")], "a", id="the sum"),
        pytest.param([HostPreference(9, AnyOf((HostLabel("gen", "4"), HostLabel("gen", "7"))))], "b", id="either"),
        pytest.param([HostPreference(9, AllOf(())), prefer(1, "zone", "z")], "c", id="one that says nothing"),
    ],
)
def test_the_highest_sum_of_weights_decides(preferences: list[HostPreference], chosen: str) -> None:
    """A pod goes to the host whose met preferences have the highest sum of weights."""
    hosts = [
        host("a", 4, zone="x", disk="hdd"),
        host("b", 4, zone="y", gen="4"),
        host("c", 4, zone="z", gen="7"),
    ]
    assert {chosen: 1} == count_by_host(run(hosts, replace(ONE_CPU, preferences=tuple(preferences)), 1))


def test_preferences_that_all_hosts_meet_change_nothing() -> None:
    """The strategy decides among hosts of equal score, as without preferences."""
    hosts = [host(f"h{number}", number % 4 + 1, zone="x") for number in range(9)]
    for strategy in Strategy:
        plain = replace(ONE_CPU, strategy=strategy)
        shape = replace(plain, preferences=(prefer(7, "zone", "x"),))
        assert run(hosts, plain, 12).placements == run(hosts, shape, 12).placements


def test_hosts_that_come_last_stay_last() -> None:
    """Hosts where pods of the job failed, and those with gpus, come after all others, preferred or not."""
    failed = replace(host("f", 4, zone="x"), is_deprioritized=True)
    with_gpus = replace(host("g", 4, zone="x"), capacity=Resources(8_000, gpu_milli=1_000))
    shape = replace(ONE_CPU, preferences=(prefer(100, "zone", "x"),))

    assert {"b": 4, "f": 2} == count_by_host(run([failed, with_gpus, TWO[1]], shape, 6))


def test_a_constraint_on_pods_holds_on_preferred_hosts() -> None:
    """A preferred host takes no more pods than the constraint on pods allows, and the others take the rest."""
    label = ("app", "web")
    shape = replace(ONE_CPU, constraint=PodLabel(*label, "<", 2), preferences=(prefer(1, "zone", "y"),))
    gangs = [ReadyGang(shape, ((instance, 1),), (label,)) for instance in range(3)]

    assert {"b": 2, "a": 1} == count_by_host(place(JOB, gangs, HostLease("l", tuple(TWO))))


def test_a_soft_spread_yields_to_preferences_and_a_hard_one_does_not() -> None:
    """Pods are spread over the preferred hosts, then over the others; a hard bound on skew holds in any case."""
    hosts = [host(f"{zone}{number}", 2, zone=zone) for zone in "xy" for number in (1, 2)]
    preferences = (prefer(5, "zone", "y"),)

    def spread(label: str, count: int, is_hard: bool) -> dict[str, int]:
        shape = replace(ONE_CPU, layout=Layout((Spread(label, 1, is_hard),)), preferences=preferences)
        return count_by_host(run(hosts, shape, count))

    assert {"y1": 1, "y2": 1} == spread(HOSTNAME_LABEL, 2, is_hard=False)
    assert {"y1": 2, "y2": 2, "x1": 1, "x2": 1} == spread(HOSTNAME_LABEL, 6, is_hard=False)
    assert {"y1": 1, "y2": 1, "x1": 1, "x2": 1} == spread(HOSTNAME_LABEL, 4, is_hard=True)
    assert {"y": 3} == by("zone", hosts, run(hosts, replace(ONE_CPU, preferences=preferences), 3))
    assert 1 == sum(count for name, count in spread("zone", 3, is_hard=True).items() if name[0] == "x")


def test_a_close_gang_goes_to_the_domain_that_it_prefers() -> None:
    """A gang takes the domain with the highest sum of those in which all of it fits, and the smallest of equals."""
    hosts = [
        host("a", 3, rack="small"),
        host("b", 2, rack="mixed", disk="ssd"),
        host("c", 3, rack="mixed"),
        host("d", 6, rack="large", disk="ssd"),
    ]
    shape = replace(ONE_CPU, layout=Layout(close=GangClose("rack", True)), preferences=(prefer(10, "disk", "ssd"),))

    assert {"b": 2} == count_by_host(run(hosts, shape, 2, is_gang=True))
    assert {"d": 3} == count_by_host(run(hosts, shape, 3, is_gang=True))
    assert {"a": 3} == count_by_host(run(hosts, replace(shape, preferences=()), 3, is_gang=True))


# Against all choices.

LEAVES = st.builds(
    HostLabel,
    key=st.sampled_from(["zone", "disk", HOSTNAME_LABEL]),
    value=st.sampled_from(["p", "q", "h0", "h2"]),
    condition=st.sampled_from(["=", "<"]),
)
PREFERENCES = st.lists(
    st.builds(
        HostPreference,
        st.integers(1, 100),
        LEAVES
        | st.builds(lambda *parts: AllOf(parts), LEAVES, LEAVES)
        | st.builds(lambda *parts: AnyOf(parts), LEAVES, LEAVES),
    ),
    max_size=4,
)
HOSTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("pq"), st.sampled_from("pq"), st.booleans()), min_size=1, max_size=5
)


def is_met(one: HostLabel | PodLabel | AllOf | AnyOf, labels: dict[str, str]) -> bool:
    if isinstance(one, AllOf):
        return all(is_met(part, labels) for part in one.constraints)
    if isinstance(one, AnyOf):
        return any(is_met(part, labels) for part in one.constraints)
    assert isinstance(one, HostLabel)
    return (labels.get(one.key) == one.value) == (one.condition == "=")


def rate(each: LeasedHost, preferences: Iterable[HostPreference]) -> tuple[int, int]:
    """Return how much a pod on the host costs: pods on hosts that come last first, then the weights not met."""
    labels = dict(each.labels)
    return int(each.is_deprioritized), sum(one.weight for one in preferences if not is_met(one.constraint, labels))


SOFT = st.sampled_from([None, *(Layout((Spread(label, 1, is_hard=False),)) for label in ("zone", HOSTNAME_LABEL))])


@given(HOSTS, PREFERENCES, st.integers(1, 6), st.sampled_from(Strategy), st.booleans(), SOFT)
def test_no_choice_of_hosts_has_a_higher_sum(
    given_hosts: list[tuple[int, str, str, bool]],
    preferences: list[HostPreference],
    count: int,
    strategy: Strategy,
    is_gang: bool,
    layout: Layout | None,
) -> None:
    """No other choice of hosts has a higher sum of weights, whatever a soft spread wants, and as many pods are placed
    as without preferences.
    """
    assume(preferences or layout is None)  # without preferences a soft spread comes before the rank of hosts
    hosts = [
        replace(host(f"h{number}", cpu, zone=zone, disk=disk), is_deprioritized=is_last)
        for number, (cpu, zone, disk, is_last) in enumerate(given_hosts)
    ]
    plain = replace(ONE_CPU, strategy=strategy, layout=layout)
    batch = run(hosts, replace(plain, preferences=tuple(preferences)), count, is_gang)

    assert run(hosts, plain, count, is_gang).placed_count == batch.placed_count
    rates = {each.hostname: rate(each, preferences) for each in hosts}
    places = [rates[each.hostname] for each in hosts for _ in range(each.free.cpu_milli // 1_000)]
    best = min(tuple(map(sum, zip(*some, strict=True))) for some in combinations(places, batch.placed_count))
    chosen = [rates[placement.hostname] for placement in batch.placements for _ in placement.pods]
    assert best == tuple(map(sum, zip(*chosen, strict=True)))


@given(HOSTS, PREFERENCES, st.integers(1, 6), st.sampled_from(Strategy), st.sampled_from(["zone", HOSTNAME_LABEL]))
def test_a_hard_bound_on_skew_holds_whatever_pods_prefer(
    given_hosts: list[tuple[int, str, str, bool]],
    preferences: list[HostPreference],
    count: int,
    strategy: Strategy,
    label: str,
) -> None:
    """No domain has more pods above another than the bound allows, and as many are placed as without preferences."""
    hosts = [host(f"h{number}", cpu, zone=zone, disk=disk) for number, (cpu, zone, disk, _) in enumerate(given_hosts)]
    plain = replace(ONE_CPU, strategy=strategy, layout=Layout((Spread(label),)))

    batch = run(hosts, replace(plain, preferences=tuple(preferences)), count)

    assert run(hosts, plain, count).placed_count == batch.placed_count
    pods = by(label, hosts, batch)
    counts = [pods[value] for value in {dict(each.labels)[label] for each in hosts}]
    assert max(counts) - min(counts) <= 1


@given(HOSTS, PREFERENCES, st.integers(2, 6))
def test_no_domain_has_a_higher_sum_for_a_close_gang(
    given_hosts: list[tuple[int, str, str, bool]], preferences: list[HostPreference], size: int
) -> None:
    """No other domain in which all of a close gang fits has a higher sum of weights."""
    hosts = [host(f"h{number}", cpu, zone=zone, disk=disk) for number, (cpu, zone, disk, _) in enumerate(given_hosts)]
    shape = replace(ONE_CPU, layout=Layout(close=GangClose("zone", True)), preferences=tuple(preferences))
    costs = {each.hostname: rate(each, preferences)[1] for each in hosts}
    of_zone: dict[str, list[int]] = {}
    for each in hosts:
        of_zone.setdefault(dict(each.labels)["zone"], []).extend(
            [costs[each.hostname]] * (each.free.cpu_milli // 1_000)
        )

    batch = run(hosts, shape, size, is_gang=True)

    found = [costs[placement.hostname] for placement in batch.placements for _ in placement.pods]
    best = min((sum(sorted(places)[:size]) for places in of_zone.values() if len(places) >= size), default=None)
    assert best == (sum(found) if found else None)
