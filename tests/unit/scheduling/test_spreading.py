"""Spread over the domains of host labels: the bound on skew holds, pod by pod, and no pod waits without need."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.constraints import HOSTNAME_LABEL
from peloton.lifecycle.reason_text import misfit_text
from peloton.model.host import HostLease, LeasedHost, PlacementBatch, ReadyGang
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import DomainCount, Domains, Layout, Spread
from peloton.model.misfit import SkewExceeded
from peloton.model.pod import PodShape, Strategy
from peloton.model.resources import Resources
from peloton.scheduling.placement import place

JOB = JobId("00000000-0000-0000-0000-000000000001")
NOTHING = Resources()


def host(name: str, cpu: int, **labels: str) -> LeasedHost:
    carried = tuple(sorted({**labels, HOSTNAME_LABEL: name}.items()))
    return LeasedHost(Hostname(name), Resources(cpu * 1_000), NOTHING, labels=carried, capacity=Resources(8_000))


def shape(*rules: Spread, strategy: Strategy = Strategy.PACK_HOST) -> PodShape:
    return PodShape(Resources(1_000), strategy=strategy, layout=Layout(rules))


def run(
    hosts: list[LeasedHost], wanted: PodShape, count: int, pods: dict[str, DomainCount], gang: bool = False
) -> PlacementBatch:
    """Place pods. ``pods``: the number of the job's pods by label value, on all hosts."""
    assert wanted.layout is not None
    domains = []
    for rule in wanted.layout.spread:
        near = {value for each in hosts for key, value in each.labels if key == rule.label}
        known = pods.get(rule.label, DomainCount(open=frozenset(near)))
        domains.append(Domains.of(known, near))
    members = tuple((instance, 1) for instance in range(count))
    gangs = [ReadyGang(wanted, members)] if gang else [ReadyGang(wanted, (one,)) for one in members]
    return place(JOB, gangs, HostLease("l", tuple(hosts), domains={wanted: tuple(domains)}))


def by(label: str, hosts: list[LeasedHost], batch: PlacementBatch) -> Counter[str]:
    of_host = {each.hostname: dict(each.labels).get(label, "") for each in hosts}
    found: Counter[str] = Counter()
    for placement in batch.placements:
        found[of_host[placement.hostname]] += len(placement.pods)
    return found


def open_domains(**pods: int) -> DomainCount:
    return DomainCount(pods, frozenset(pods))


def texts(batch: PlacementBatch) -> list[tuple[str, int]]:
    found = chain.from_iterable(no_host.hosts for reason in batch.why for no_host in reason.pods)
    return [(misfit_text(refusing.why), refusing.host_count) for refusing in found]


RACK = Spread("rack")
THREE = [host(f"{rack}{number}", 4, rack=rack) for rack in "abc" for number in (1, 2)]


@pytest.mark.parametrize("strategy", Strategy)
def test_pods_go_to_all_domains_alike(strategy: Strategy) -> None:
    """Eight pods over three racks are placed as three, three and two, whatever the strategy."""
    batch = run(THREE, shape(RACK, strategy=strategy), 8, {})
    assert [2, 3, 3] == sorted(by("rack", THREE, batch).values())


def test_the_recipe_decides_within_the_bound() -> None:
    """A bound of four allows a strategy to pack four pods into one rack."""
    assert Counter(a=4) == by("rack", THREE, run(THREE, shape(Spread("rack", 4)), 4, {}))


def test_pods_that_are_there_count() -> None:
    """The next pods are placed in the domains with the fewest pods of the job."""
    now = {"rack": open_domains(a=2, b=1, c=0)}
    assert Counter(b=1, c=2) == by("rack", THREE, run(THREE, shape(RACK), 3, now))


def test_pods_wait_for_the_bound() -> None:
    """A rack that does not fit the next pod keeps the others from more pods, and the reason says so."""
    hosts = [*THREE[:4], host("c1", 1, rack="c")]
    batch = run(hosts, shape(RACK), 12, {})
    assert Counter(a=2, b=2, c=1) == by("rack", hosts, batch)
    why = "at most 2 pods of the job in a rack: rack=c has 1, max skew 1"
    assert [("less than 1 cpu free, 0 at most", 1), (why, 4)] == texts(batch)


def test_domains_that_are_not_leased_count() -> None:
    """A rack without leased hosts, perhaps of another cluster, keeps the others from more pods."""
    now = {"rack": open_domains(a=1, b=1, c=1, far=0)}
    batch = run(THREE, shape(RACK), 5, now)
    assert 0 == batch.placed_count
    assert [("at most 1 pod of the job in a rack: rack=far has 0, max skew 1", 6)] == texts(batch)


def test_hosts_without_the_label_are_refused() -> None:
    """No pod with a hard bound is placed on a host without the label; one with a soft bound uses it last."""
    hosts = [host("bare", 8), host("a1", 2, rack="a")]
    batch = run(hosts, shape(RACK), 3, {})
    assert Counter(a=2) == by("rack", hosts, batch)
    assert ("no label rack with a domain that could take the pod", 1) in texts(batch)
    assert Counter({"a": 2, "": 1}) == by("rack", hosts, run(hosts, shape(Spread("rack", is_hard=False)), 3, {}))


def test_a_soft_bound_gives_way_to_a_lack_of_capacity() -> None:
    """A full rack does not keep the others from more pods, over which they are still spread."""
    hosts = [*THREE[:4], host("c1", 1, rack="c")]
    batch = run(hosts, shape(Spread("rack", is_hard=False)), 11, {})
    assert Counter(a=5, b=5, c=1) == by("rack", hosts, batch)


def test_two_rules_hold_together() -> None:
    """Pods are spread over zones, and in each over its racks."""
    hosts = [host(f"{zone}{rack}", 4, zone=zone, rack=zone + rack) for zone in "xy" for rack in "123"]
    batch = run(hosts, shape(Spread("zone"), RACK), 9, {})
    assert [4, 5] == sorted(by("zone", hosts, batch).values())
    assert {1, 2} == set(by("rack", hosts, batch).values())


def test_over_hosts() -> None:
    """The name of the host is a label like any other."""
    batch = run(THREE, shape(Spread("hostname")), 9, {})
    assert [1, 1, 1, 2, 2, 2] == sorted(by("hostname", THREE, batch).values())


def test_a_gang_waits_whole() -> None:
    """A gang of which the bound allows only a part is not placed."""
    hosts = [*THREE[:4], host("c1", 1, rack="c")]
    assert 0 == run(hosts, shape(RACK), 6, {}, gang=True).placed_count
    assert 5 == run(hosts, shape(RACK), 5, {}, gang=True).placed_count


@dataclass(frozen=True)
class Case:
    hosts: list[LeasedHost]
    wanted: PodShape
    count: int
    pods: dict[str, DomainCount]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    hosts = []
    for number in range(draw(st.integers(1, 9))):
        labels = {}
        for key, values in (("rack", "abcd"), ("zone", "xy")):
            if value := draw(st.sampled_from(["", *values, *values])):
                labels[key] = value
        hosts.append(host(f"h{number}", draw(st.integers(0, 6)), **labels))
    keys = draw(st.permutations(["rack", "zone", "hostname"]))[: draw(st.integers(1, 2))]
    rules = [Spread(key, draw(st.integers(1, 3)), draw(st.sampled_from([True, True, False]))) for key in keys]
    pods = {}
    for key in keys:
        near = {value for each in hosts for name, value in each.labels if name == key}
        others = set() if draw(st.booleans()) else {"far"}
        counts = {value: draw(st.integers(0, 3)) for value in sorted(near | others)}
        pods[key] = DomainCount(counts, frozenset(counts))
    wanted = shape(*rules, strategy=draw(st.sampled_from(list(Strategy))))
    if draw(st.booleans()):
        wanted = replace(wanted, resources=Resources(2_000))
    return Case(hosts, wanted, draw(st.integers(0, 20)), pods)


def skews(case: Case, put: Counter[Hostname]) -> list[tuple[int, int]]:
    """Return, for each hard rule, the largest skew of a domain that received pods, and the bound."""
    assert case.wanted.layout is not None
    labels = {each.hostname: dict(each.labels) for each in case.hosts}
    found = []
    for rule in case.wanted.layout.spread:
        if rule.is_hard and put:
            counts = Counter(case.pods[rule.label].pods)
            for name, count in put.items():
                counts[labels[name][rule.label]] += count  # KeyError: no host without the label receives a pod
            most = max(counts[labels[name][rule.label]] for name in put)
            found.append((most - min(counts[each] for each in case.pods[rule.label].open), rule.max_skew))
    return found


@given(cases())
def test_no_placement_exceeds_a_hard_bound(case: Case) -> None:
    """Any hosts, strategy, rules and running pods give a placement in which no domain that receives pods exceeds the
    bound, no pod is on a host without the label, and no host is overcommitted.
    """
    batch = run(case.hosts, case.wanted, case.count, case.pods)
    put = Counter({placement.hostname: len(placement.pods) for placement in batch.placements})
    assert all(skew <= bound for skew, bound in skews(case, put))
    free = {each.hostname: each.free.cpu_milli for each in case.hosts}
    assert all(count * case.wanted.resources.cpu_milli <= free[name] for name, count in put.items())


@given(cases())
def test_nothing_waits_that_could_be_placed(case: Case) -> None:
    """A placement by one rule has as many pods as the bound and the resources allow, which a count pod by pod finds."""
    assert case.wanted.layout is not None
    rule = case.wanted.layout.spread[0]
    case = replace(case, wanted=replace(case.wanted, layout=Layout((rule,))))
    known, need = case.pods[rule.label], case.wanted.resources.cpu_milli
    fit_counts: Counter[str] = Counter()
    for each in case.hosts:
        value = dict(each.labels).get(rule.label, "")
        if value or not rule.is_hard:
            fit_counts[value] += each.free.cpu_milli // need
    counts, most = Counter(known.pods), 0
    while most < case.count:
        floor = min((counts[each] for each in known.open), default=0)
        may = [value for value in +fit_counts if not rule.is_hard or counts[value] < floor + rule.max_skew]
        if not may:
            break
        value = min(may, key=lambda one: counts[one])
        fit_counts[value] -= 1
        counts[value] += 1
        most += 1
    assert most == run(case.hosts, case.wanted, case.count, case.pods).placed_count


def test_a_lease_without_counts_places_nothing_under_a_hard_bound() -> None:
    """A missing count is not read as zero."""
    members = [ReadyGang(shape(RACK), ((0, 1),))]
    assert 0 == place(JOB, members, HostLease("l", tuple(THREE))).placed_count


def test_the_reason_names_the_numbers() -> None:
    """The reason has the rule, the lowest domain, and the bound."""
    skewed = SkewExceeded("rack", "c", 1, 2, 1)
    assert "at most 2 pods of the job in a rack: rack=c has 1, max skew 1" == misfit_text(skewed)
