"""Placement: pods that fit are placed by their strategy, no host is overcommitted, and the other pods have a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.lifecycle.constraints import pod_labels_named
from peloton.lifecycle.reason_text import placement_text
from peloton.model.host import POD_SLOTS_UNLIMITED, HostLease, LeasedHost, PlacementBatch, ReadyGang
from peloton.model.ids import Hostname, JobId
from peloton.model.misfit import HostRule, LackingAmount, Refused, UnmetConstraint
from peloton.model.pod import AllOf, AnyOf, Constraint, HostLabel, PodLabel, PodShape, Strategy
from peloton.model.reason import ClusterReason, NoHost, RefusingHosts
from peloton.model.resources import Resources, to_extended
from peloton.ports import Placer
from peloton.scheduling.placement import FirstFitPlacer, place
from tests.nightly import examples

JOB = JobId("job")
FPGA = "example.com/fpga"


def host(
    name: str,
    cpu: float = 4,
    memory: float = 1000,
    *,
    gpu: float = 0,
    revocable_cpu: float = 0,
    ports: tuple[tuple[int, int], ...] = (),
    labels: tuple[tuple[str, str], ...] = (),
    slots: int = POD_SLOTS_UNLIMITED,
    fpga: int = 0,
) -> LeasedHost:
    free = replace(Resources.of(cpu, memory, 1000, gpu), extended=to_extended({FPGA: fpga}))
    return LeasedHost(Hostname(name), free, Resources.of(revocable_cpu), ports, labels, pod_slots=slots)


def shape(cpu: float = 1, memory: float = 10, constraint: Constraint | None = None, **more: Any) -> PodShape:
    return PodShape(Resources.of(cpu, memory), constraint=constraint, **more)


def kind(of: PodShape) -> tuple[tuple[str, str], ...]:
    """Pods that carry the labels that they count: at most n of their kind on a host."""
    return tuple(sorted(pod_labels_named(of.constraint)))


def singles(of: PodShape, count: int, start: int = 0) -> list[ReadyGang]:
    return [ReadyGang(of, ((start + i, 1),), kind(of)) for i in range(count)]


def gang(of: PodShape, size: int, start: int = 0) -> ReadyGang:
    return ReadyGang(of, tuple((start + i, 1) for i in range(size)), kind(of))


def lease(*hosts: LeasedHost) -> HostLease:
    return HostLease("lease", hosts)


def where(batch: PlacementBatch) -> dict[str, list[int]]:
    return {p.hostname: [pod.instance_id for pod in p.pods] for p in batch.placements}


def test_is_a_placer() -> None:
    """The class has the port's shape."""
    placer: Placer = FirstFitPlacer()

    assert placer.place(JOB, [], lease()) == PlacementBatch(JOB, "lease")


def test_pack_fills_hosts_in_order() -> None:
    """Small pods share the first host until it is full."""
    batch = place(JOB, singles(shape(), 6), lease(host("h1"), host("h2"), host("h3")))

    assert where(batch) == {"h1": [0, 1, 2, 3], "h2": [4, 5]}
    assert (batch.unplaced_count, batch.why) == (0, ())


def test_spread_gives_each_host_one() -> None:
    """Three pods on three hosts are placed one on each; a fourth begins the next round."""
    spread = shape(strategy=Strategy.SPREAD_JOB)
    hosts = lease(host("h1"), host("h2"), host("h3"))

    assert where(place(JOB, singles(spread, 3), hosts)) == {"h1": [0], "h2": [1], "h3": [2]}
    assert where(place(JOB, singles(spread, 4), hosts)) == {"h1": [0, 3], "h2": [1], "h3": [2]}


def test_spread_counts_pods_of_other_shapes() -> None:
    """Pods of one job are spread even if each has a shape of its own."""
    gangs = [g for i in range(3) for g in singles(shape(1 + i / 10, strategy=Strategy.SPREAD_JOB), 1, i)]

    assert where(place(JOB, gangs, lease(host("h1"), host("h2"), host("h3")))) == {"h1": [0], "h2": [1], "h3": [2]}


@pytest.mark.parametrize("strategy", Strategy)
def test_a_host_gets_no_more_pods_than_it_has_slots(strategy: Strategy) -> None:
    """A host has no more pods than slots, however small they are, and whatever shape and resources they have; the
    reason says so.
    """
    hosts = lease(host("h1", slots=2), host("h2", slots=0), host("h3", slots=1, revocable_cpu=4))
    small, revocable = shape(0.1, strategy=strategy), shape(0.1, strategy=strategy, revocable=True)

    batch = place(JOB, [*singles(small, 2), *singles(revocable, 1, 2), *singles(small, 4, 3)], hosts)

    assert {"h1": 2, "h3": 1} == {name: len(pods) for name, pods in where(batch).items()}
    assert "pods without a host (3 hosts: no pod slot left)" in placement_text(batch.why)


def test_a_gang_needs_a_slot_for_each_member() -> None:
    """A gang is placed whole, with a slot for each member, or not at all."""
    batch = place(JOB, [gang(shape(0.1), 4)], lease(host("h1", slots=2), host("h2", slots=1)))

    assert {} == where(batch)
    assert "gang of 4 without a host (2 hosts: fits 3 of the gang's 4 pods)" == placement_text(batch.why)


def test_gangs_are_whole() -> None:
    """A gang that fits but for one member is not placed, and leaves the resources to others."""
    batch = place(JOB, [gang(shape(), 9), *singles(shape(), 2, 20)], lease(host("h1"), host("h2")))

    assert where(batch) == {"h1": [20, 21]}
    assert batch.unplaced_count == 9
    assert placement_text(batch.why) == "gang of 9 without a host (2 hosts: fits 8 of the gang's 9 pods)"


def test_reasons_count_hosts_by_rule() -> None:
    """The reason names each rule with its numbers and the hosts that fail it."""
    hosts = [host(f"full{i}", cpu=2 + i / 2) for i in range(2)]
    hosts += [host("other-rack", cpu=9, labels=(("rack", "b"),))]
    wanted = shape(4, constraint=HostLabel("rack", "a"))
    hosts = [LeasedHost(h.hostname, h.free, h.revocable, (), h.labels or (("rack", "a"),)) for h in hosts]

    batch = place(
        JOB,
        singles(wanted, 2),
        HostLease("lease", tuple(hosts), {wanted: (RefusingHosts.of(3, Refused(HostRule.MAINTENANCE)),)}),
    )

    assert placement_text(batch.why) == (
        "2 pods without a host (1 host: label rack=a not met; 2 hosts: less than 4 cpu free, 2.5 at most; "
        "3 hosts: in maintenance)"
    )
    refusing = (
        RefusingHosts.of(1, UnmetConstraint("label rack=a")),
        RefusingHosts.of(2, LackingAmount(HostRule.FREE_RESOURCES, "cpu", 4_000, 2_500)),
        RefusingHosts.of(3, Refused(HostRule.MAINTENANCE)),
    )
    assert batch.why == (ClusterReason(pods=(NoHost(2, False, refusing),)),)


def test_empty_lease() -> None:
    """A lease without hosts places no pod, and the reason says so."""
    batch = place(JOB, singles(shape(), 1), lease())

    assert (batch.unplaced_count, placement_text(batch.why)) == (1, "1 pod without a host (no host offered)")


def test_ports_are_assigned_in_ascending_order() -> None:
    """Dynamic ports are taken from the host's ranges, lowest first, and never twice."""
    hosts = lease(host("h1", ports=((31005, 31006), (31000, 31002))))

    batch = place(JOB, singles(shape(port_count=2), 3), hosts)

    assert [pod.ports for pod in batch.placements[0].pods] == [(31000, 31001), (31002, 31005)]
    assert placement_text(batch.why) == "1 pod without a host (1 host: less than 2 ports free, 1 at most)"


def test_revocable_uses_revocable_cpu() -> None:
    """Revocable pods use revocable cpu and ordinary memory; others never use revocable cpu."""
    hosts = lease(host("h1", cpu=1, memory=30, revocable_cpu=2))

    batch = place(JOB, [*singles(shape(revocable=True), 3), *singles(shape(), 2, 10)], hosts)

    assert where(batch) == {"h1": [0, 1, 10]}
    assert placement_text(batch.why) == (
        "1 pod without a host (1 host: less than 1 revocable cpu free, 0 at most); "
        "1 pod without a host (1 host: less than 1 cpu free, 0 at most)"
    )


def test_exclusive_hosts() -> None:
    """A host with the exclusive label accepts only pods whose constraint mentions it."""
    hosts = lease(host("gpu1", labels=(("peloton/exclusive", "ml"),)), host("h1", cpu=1))
    asks = shape(constraint=HostLabel("peloton/exclusive", "ml"))

    assert where(place(JOB, singles(asks, 1), hosts)) == {"gpu1": [0]}
    plain = place(JOB, singles(shape(), 2), hosts)
    assert where(plain) == {"h1": [0]}
    assert placement_text(plain.why) == (
        "1 pod without a host (1 host: kept for pods that ask for peloton/exclusive; "
        "1 host: less than 1 cpu free, 0 at most)"
    )


def test_extended_resources_bound_the_pods_of_a_host() -> None:
    """A host takes as many pods as it has of the extended resource; the reason names what is asked and the most that a
    host has left.
    """
    asked = replace(shape(), resources=replace(Resources.of(1, 10), extended=((FPGA, 2),)))
    hosts = lease(host("a", 99, fpga=5), host("b", 99), host("c", 99, fpga=2))

    batch = place(JOB, singles(asked, 4), hosts)

    assert {"a": 2, "c": 1} == {one.hostname: len(one.pods) for one in batch.placements}
    assert placement_text(batch.why).endswith(f"(3 hosts: less than 2 {FPGA} free, 1 at most)")


def test_hostname_is_a_label() -> None:
    """A constraint on hostname needs no attribute of that name."""
    batch = place(JOB, singles(shape(constraint=HostLabel("hostname", "h2")), 1), lease(host("h1"), host("h2")))

    assert where(batch) == {"h2": [0]}


def test_pod_limit_per_host() -> None:
    """A limit of pods with a label on a host counts the batch's own pods."""
    two = shape(0.1, constraint=PodLabel("app", "web", "<", 2))

    batch = place(JOB, singles(two, 7), lease(host("h1"), host("h2"), host("h3")))

    assert where(batch) == {"h1": [0, 1], "h2": [2, 3], "h3": [4, 5]}
    assert placement_text(batch.why) == "1 pod without a host (3 hosts: pods with app=web < 2 not met)"


def test_pod_labels_count_over_shapes() -> None:
    """Pods of another shape with the same label count too; the larger ones come first."""
    one = PodLabel("app", "web", "<", 1)
    gangs = [*singles(shape(1, constraint=one), 2), *singles(shape(2, constraint=one), 1, 10)]

    assert where(place(JOB, gangs, lease(host("h1"), host("h2")))) == {"h1": [10], "h2": [0]}


LABELS = st.sampled_from([("rack", "a"), ("rack", "b"), ("disk", "ssd")])
HOSTS = st.builds(
    lambda cpu, memory, slack, ports, labels: (cpu, memory, slack, ports, labels),
    st.integers(0, 6),
    st.integers(0, 60),
    st.integers(0, 4),
    st.integers(0, 4),
    st.lists(LABELS, max_size=2, unique=True),
)
LEAVES = st.one_of(
    st.builds(
        lambda label, c, n: HostLabel(label[0], label[1], c, n), LABELS, st.sampled_from("<=>"), st.integers(0, 2)
    ),
    st.builds(lambda c, n: PodLabel("app", "x", c, n), st.sampled_from("<="), st.integers(0, 3)),
)
CONSTRAINTS = st.one_of(
    st.none(),
    LEAVES,
    st.builds(lambda parts: AllOf(tuple(parts)), st.lists(LEAVES, max_size=3)),
    st.builds(lambda parts: AnyOf(tuple(parts)), st.lists(LEAVES, max_size=3)),
)
SHAPES = st.builds(
    lambda cpu, memory, ports, revocable, strategy, constraint, fpga: PodShape(
        replace(Resources.of(cpu, memory), extended=to_extended({FPGA: fpga})),
        ports,
        revocable,
        strategy=strategy,
        constraint=constraint,
    ),
    st.integers(0, 3),
    st.integers(0, 20),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(Strategy),
    CONSTRAINTS,
    st.sampled_from([0, 0, 0, 1, 2]),
)


def _lease(hosts: list[tuple[int, int, int, int, list[tuple[str, str]]]]) -> HostLease:
    return lease(
        *(
            host(
                f"h{i}",
                cpu,
                memory,
                revocable_cpu=slack,
                ports=((100, 99 + ports),) if ports else (),
                labels=tuple(labels),
                fpga=ports,
            )
            for i, (cpu, memory, slack, ports, labels) in enumerate(hosts)
        )
    )


@given(st.lists(HOSTS, max_size=5), st.lists(st.tuples(SHAPES, st.integers(1, 4), st.booleans()), max_size=5))
@settings(max_examples=examples(200), deadline=None)
def test_never_overcommits(
    hosts: list[tuple[int, int, int, int, list[tuple[str, str]]]], wanted: list[tuple[PodShape, int, bool]]
) -> None:
    """Hosts keep to their resources, gangs are whole, ports are in the host's ranges and unique, and runs repeat, for
    any request.
    """
    offered = _lease(hosts)
    gangs: list[ReadyGang] = []
    for number, (of, count, is_gang) in enumerate(wanted):
        start = number * 10
        gangs += [gang(of, count, start)] if is_gang else singles(of, count, start)
    shapes = {instance: g.shape for g in gangs for instance, _ in g.pods}

    batch = place(JOB, gangs, offered)

    assert batch == place(JOB, gangs, offered)
    placed = [pod.instance_id for p in batch.placements for pod in p.pods]
    assert max(Counter(placed).values(), default=1) == 1
    assert batch.unplaced_count == len(shapes) - len(placed)
    assert (batch.why == ()) == (batch.unplaced_count == 0)
    for g in gangs:
        assert len({instance for instance, _ in g.pods} & set(placed)) in (0, len(g.pods))
    by_name = {h.hostname: h for h in offered.hosts}
    for placement in batch.placements:
        there, at = by_name[placement.hostname], [(shapes[pod.instance_id], pod) for pod in placement.pods]
        physical = sum((s.resources for s, _ in at), Resources())
        slack = sum(s.resources.cpu_milli for s, _ in at if s.revocable)
        assert (physical - Resources(slack)).fits_in(there.free)
        assert slack <= there.revocable.cpu_milli
        ports = [port for _, pod in at for port in pod.ports]
        assert len(ports) == len(set(ports)) == sum(s.port_count for s, _ in at)
        assert all(any(low <= port <= high for low, high in there.ports) for port in ports)


@given(st.lists(HOSTS, max_size=6), st.tuples(st.integers(1, 3), st.integers(1, 20)), st.integers(1, 20), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_single_pods_of_one_shape_are_placed_to_the_last(
    hosts: list[tuple[int, int, int, int, list[tuple[str, str]]]], need: tuple[int, int], count: int, is_spread: bool
) -> None:
    """A batch places as many pods of one shape as possible."""
    cpu, memory = need
    strategy = Strategy.SPREAD_JOB if is_spread else Strategy.PACK_HOST
    possible = sum(min(c // cpu, m // memory) for c, m, _, _, _ in hosts)

    batch = place(JOB, singles(shape(cpu, memory, strategy=strategy), count), _lease(hosts))

    assert batch.placed_count == min(possible, count)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_hosts_on_which_the_job_failed_take_what_others_leave(strategy: Strategy) -> None:
    """Hosts without failures of the job are filled first, whatever the strategy, and no pod waits for this reason."""
    hosts = (replace(host("bad", cpu=8), is_deprioritized=True), host("h1", cpu=2), host("h2", cpu=2))
    pods = shape(strategy=strategy)

    few, many = place(JOB, singles(pods, 4), lease(*hosts)), place(JOB, singles(pods, 6), lease(*hosts))
    whole = place(JOB, [gang(pods, 6)], lease(*hosts))

    assert {"h1": 2, "h2": 2} == {name: len(found) for name, found in where(few).items()}
    for batch in (many, whole):
        assert {"bad": 2, "h1": 2, "h2": 2} == {name: len(found) for name, found in where(batch).items()}
