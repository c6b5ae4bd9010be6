"""Plans of moves: tables for each goal, properties, and a comparison with an exhaustive search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.layout import Layout, Spread
from peloton.model.pod import AnyOf, Constraint, HostLabel, HostPreference, PodLabel, PodShape, Strategy
from peloton.model.rebalance import Goal, PodNow, Stays, WaitingPods
from peloton.model.resources import Resources, compute_needed
from peloton.scheduling.rebalance import CROWDED_LOAD, SPREAD_MARGIN
from tests.nightly import examples
from tests.unit.scheduling.exhaustive_moves import broken, fewest_moves, takes
from tests.unit.scheduling.moves_table import (
    EMPTY,
    FREE,
    PLENTY,
    SPREAD,
    Cluster,
    cpu,
    hosts_of,
    over,
    pods_on,
    waits,
    ways,
)

# Free resources for a pod that fits no host.


def test_one_pod_leaves_for_the_pod_that_fits_nowhere() -> None:
    """The host where a single move frees enough resources is chosen among hosts with two free cores each."""
    pods = [*pods_on("a", "h1", cpu(2), 3), *pods_on("b", "h2", cpu(1), 6), *pods_on("c", "h3", cpu(3), 2)]
    cluster = Cluster(hosts_of("h1", "h2", "h3"), pods, waits(4))

    found = cluster.plan(FREE)

    assert [("a", "h1", "h2")] == ways(found.moves)
    why = found.moves[0].why
    assert (Goal.FREE, 750, 1000, 1, "big") == (
        why.goal, why.source_load, why.target_load, why.move_count, why.waiting_job
    )  # fmt: skip


def test_nothing_moves_for_a_pod_that_fits() -> None:
    """A pod that fits a host now waits only for its placement."""
    cluster = Cluster(hosts_of("h1", "h2"), pods_on("a", "h1", cpu(2), 3), waits(4))

    assert ((), ()) == (cluster.plan(FREE).moves, cluster.plan(FREE).stuck)


def test_the_capacity_of_what_waits_and_fits_is_not_filled() -> None:
    """The only host for the pod that would move is the one that a waiting pod fits."""
    pods = [*pods_on("a", "h1", cpu(3), 2), *pods_on("b", "h2", cpu(5))]
    small = WaitingPods(JobId("small"), cpu(2), 2, waited_s=1.0)
    cluster = Cluster(hosts_of("h1", "h2"), pods, [*waits(5), small])

    found = cluster.plan(FREE)

    assert ([], ("big",)) == (ways(found.moves), found.stuck)


def test_many_small_pods_leave_together() -> None:
    """Forty pods have more subsets than the planner tries; then it chooses the pods that help most."""
    kinds = PodShape(Resources(1000)), PodShape(Resources(10, 1))
    pods = [pod for kind in kinds for pod in pods_on(f"with-{kind.resources.memory_mib}", "h1", kind, 20)]
    fit_counts = {"h1": Resources(20_200, 20), "h2": Resources(4_500, 4)}
    big = PodShape(Resources(4_000, 4), constraint=HostLabel("rack", "a"))
    cluster = Cluster(fit_counts, pods, [WaitingPods(JobId("big"), big, 1)], {"h1": {"rack": "a"}})

    found = cluster.plan(FREE)

    assert ({"with-0": 4, "with-1": 4}, ()) == (Counter(move.pod_id.job_id for move in found.moves), found.stuck)


def test_a_pod_that_no_moves_let_in_is_named() -> None:
    """A pod that is larger than any host is reported as stuck."""
    cluster = Cluster(hosts_of("h1", "h2"), pods_on("a", "h1", cpu(1)), waits(9))

    assert ((), ("big",)) == (
        cluster.plan(FREE).moves,
        cluster.plan(FREE).stuck,
    )


def test_a_constraint_of_the_waiting_pod_may_want_another_pod_away() -> None:
    """A host has enough free resources, but a pod with a label that the waiting pod excludes."""
    web = ("app", "web")
    pods = [*pods_on("a", "h1", cpu(1), labels=(web,)), *pods_on("b", "h2", cpu(7), labels=(web,))]
    cluster = Cluster(hosts_of("h1", "h2"), pods, waits(2, constraint=PodLabel(*web, "<", 1)))

    assert [("a", "h1", "h2")] == ways(cluster.plan(FREE).moves)


@pytest.mark.parametrize("grants", [1, 2], ids=["one may be away", "both may be away"])
@pytest.mark.parametrize("goals", [FREE, EMPTY], ids=["free", "empty"])
def test_a_pod_that_others_want_alongside_them_does_not_leave_before_them(goals: list[Goal], grants: int) -> None:
    """Two pods would have to leave, one of which requires the other on its host: the later one would be without it."""
    web = ("app", "web")
    near = PodShape(Resources(1000), constraint=PodLabel(*web, ">", 0))
    pods = [*pods_on("a", "h1", cpu(1), labels=(web,)), *pods_on("a", "h1", near, 2)[1:]]
    hosts = {**hosts_of("h1"), **hosts_of("h2", cores=7)}
    cluster = Cluster(hosts, [*pods, *pods_on("b", "h2", cpu(4), labels=(web,))], waits(8), grants=grants)

    assert () == cluster.plan(goals).moves


def test_pods_of_too_many_kinds_for_a_constraint_alongside_them_stay() -> None:
    """A pod whose constraint counts 30 different labels, each on a pod of its own, makes all stay: the planner does not
    try that many orders.
    """
    kinds = [("kind", str(number)) for number in range(30)]
    small = PodShape(Resources(100))
    counting = PodShape(Resources(1), constraint=AnyOf(tuple(PodLabel(*kind, "<", 9) for kind in kinds)))
    pods = [pod for name, kind in enumerate(kinds) for pod in pods_on(f"a{name:02}", "h1", small, labels=(kind,))]
    cluster = Cluster(hosts_of("h1", "h2"), [*pods, *pods_on("b", "h1", counting), *pods_on("c", "h2", cpu(6))], ())

    assert () == cluster.plan(EMPTY).moves
    few = replace(cluster, pods=[*pods[:3], *pods_on("b", "h1", counting), *pods_on("c", "h2", cpu(6))])
    assert 4 == len(few.plan(EMPTY).moves)


@pytest.mark.parametrize("reason", list(Stays))
def test_a_pod_that_stays_is_counted_by_its_reason(reason: Stays) -> None:
    """A pod that may not move stays, even where all else would fit."""
    pods = [replace(pod, stays=reason) for pod in pods_on("a", "h1", cpu(2), 3)]
    cluster = Cluster(hosts_of("h1", "h2", cores=8), [*pods, *pods_on("b", "h2", cpu(1), 5)], waits(6))

    found = replace(cluster, grants=0).plan(FREE)

    expected = Counter({reason: 3}) + Counter({Stays.SLA: 5})
    assert ((), tuple(sorted(expected.items()))) == (found.moves, found.staying)


def test_an_sla_lets_some_go_now_and_the_others_later() -> None:
    """Two pods of a service have to leave, of which one may be unavailable: it moves first, and its reason
    counts two.
    """
    pods = [*pods_on("a", "h1", cpu(2), 3), *pods_on("b", "h2", cpu(4))]
    cluster = Cluster(hosts_of("h1", "h2"), pods, waits(6), grants=1)

    found = cluster.plan(FREE)

    assert [("a", "h1", "h2")] == ways(found.moves)
    assert 2 == found.moves[0].why.move_count


def test_a_plan_keeps_to_the_moves_that_are_left() -> None:
    """Two moves are needed and one is left: the plan makes none that would not help."""
    pods = [*pods_on("a", "h1", cpu(2), 3), *pods_on("b", "h2", cpu(4))]
    cluster = Cluster(hosts_of("h1", "h2"), pods, waits(6))

    assert (2, 0) == tuple(len(cluster.plan(FREE, left).moves) for left in (2, 1))


# Onto hosts that are far emptier.


def test_a_new_host_takes_pods_until_it_is_near_the_mean() -> None:
    """Pods move from the fullest hosts, and the new host stays below the mean."""
    pods = [pod for name in ("h1", "h2", "h3") for pod in pods_on(f"on-{name}", name, cpu(1), 8)]
    cluster = Cluster(hosts_of("h1", "h2", "h3", "new"), pods)

    found = cluster.plan(SPREAD)

    assert {"new"} == {move.target for move in found.moves}
    assert 750 - SPREAD_MARGIN < (8000 - cluster.after(found.moves).free("new").cpu_milli) / 8 <= 750
    assert [1000, 1000, 1000, 875, 875] == [move.why.source_load for move in found.moves]


def test_jobs_that_ask_to_be_packed_are_not_spread() -> None:
    """A pod with the strategy to pack is not spread."""
    packed = replace(cpu(1), strategy=Strategy.PACK_HOST)
    cluster = Cluster(hosts_of("h1", "h2", "new"), [*pods_on("a", "h1", packed, 8), *pods_on("b", "h2", packed, 8)])

    assert () == cluster.plan(SPREAD).moves


def test_pods_leave_a_preferred_host_only_for_a_waiting_pod() -> None:
    """Pods neither level loads nor empty a host that they prefer to the other; they do leave it for a waiting pod."""
    fond = replace(cpu(1), preferences=(HostPreference(10, HostLabel("hostname", "h1")),))
    full = Cluster(hosts_of("h1", "new"), pods_on("a", "h1", fond, 8), waits(4, constraint=HostLabel("hostname", "h1")))
    sparse = Cluster(hosts_of("h1", "h2"), [*pods_on("a", "h1", fond, 2), *pods_on("b", "h2", cpu(1), 4)])

    assert () == replace(full, waiting=()).plan(SPREAD).moves
    assert 4 == len(full.plan(FREE).moves)
    assert () == sparse.plan(EMPTY).moves


def test_a_soft_spread_is_not_levelled_against_preferences() -> None:
    """Pods above a soft bound stay on the host that they prefer, and leave it for a hard one."""
    for is_hard, move_count in ((False, 0), (True, 1)):
        fond = replace(
            cpu(1),
            layout=Layout((Spread("hostname", 1, is_hard),)),
            preferences=(HostPreference(10, HostLabel("hostname", "h1")),),
        )
        cluster = Cluster(hosts_of("h1", "h2"), pods_on("a", "h1", fond, 3))
        assert move_count == len(cluster.plan(SPREAD).moves)


# Away from hosts that are nearly empty.


def test_the_emptiest_host_is_emptied_onto_fuller_ones() -> None:
    """No host is filled beyond the bound for crowded hosts, and an empty one stays empty."""
    pods = [*pods_on("a", "h1", cpu(1), 2), *pods_on("b", "h2", cpu(1), 6), *pods_on("c", "h3", cpu(1), 6)]
    cluster = Cluster(hosts_of("h1", "h2", "h3", "idle"), pods)

    found = cluster.plan(EMPTY)

    assert [("a", "h1", "h2"), ("a", "h1", "h3")] == ways(found.moves)
    assert all(move.why.target_load <= CROWDED_LOAD for move in found.moves)


def test_a_host_with_a_pod_that_stays_is_not_emptied() -> None:
    """No pod leaves a host that cannot be emptied."""
    kept = [replace(pod, stays=Stays.BATCH) for pod in pods_on("b", "h1", cpu(1))]
    cluster = Cluster(hosts_of("h1", "h2"), [*pods_on("a", "h1", cpu(1)), *kept, *pods_on("c", "h2", cpu(1), 4)])

    assert () == cluster.plan(EMPTY).moves


def test_a_spread_job_is_not_gathered_on_one_host() -> None:
    """A job that spreads keeps its pods on separate hosts: the only fuller host has one already."""
    apart = replace(cpu(1), strategy=Strategy.SPREAD_JOB)
    pods = [*pods_on("a", "h1", apart), *pods_on("a", "h2", apart), *pods_on("b", "h2", cpu(1), 3)]

    assert () == Cluster(hosts_of("h1", "h2"), pods).plan(EMPTY).moves


def test_pods_without_gpus_leave_gpus_alone() -> None:
    """A pod without gpus does not move to the only host that fits it, which has gpus."""
    hosts = {**hosts_of("h1", "h2"), "gpu": Resources(8000, 0, 0, 2000)}
    labels = {"h1": {"kind": "plain"}, "h2": {"kind": "plain"}}
    pods = [*pods_on("a", "h1", cpu(4)), *pods_on("b", "h2", cpu(7))]
    cluster = Cluster(hosts, pods, waits(8, constraint=HostLabel("kind", "plain")), labels)

    assert ((), ("big",)) == (cluster.plan(FREE).moves, cluster.plan(FREE).stuck)


# Properties.

LABEL = ("app", "web")
CONSTRAINTS: list[Constraint | None] = [
    None, None, None,
    HostLabel("rack", "a"), PodLabel(*LABEL, "<", 1), PodLabel(*LABEL, ">", 0), PodLabel(*LABEL, "<", 2),
]  # fmt: skip
ALONE: Sequence[Layout | None] = [None]
LAYOUTS: Sequence[Layout | None] = [
    None, None, over("rack"), over("rack", 2, True), over("hostname", 1, True),
    Layout((Spread("rack", 1, True), Spread("hostname", 1, False))),
]  # fmt: skip


@st.composite
def clusters(
    draw: st.DrawFn, host_max: int = 5, pods_max: int = 5, layouts: Sequence[Layout | None] = LAYOUTS
) -> Cluster:
    """Hosts of different sizes with pods that fit there, some of which violate their constraint."""
    names = [f"h{i}" for i in range(draw(st.integers(1, host_max)))]
    capacities = {name: Resources(draw(st.integers(4, 10)) * 1000, draw(st.integers(4, 10))) for name in names}
    racks = {name: {"rack": draw(st.sampled_from("abc"))} for name in names}
    pods: list[PodNow] = []
    cluster = Cluster(capacities, pods, labels=racks)
    for name in names:
        for i in range(draw(st.integers(0, pods_max))):
            shape, labels = draw(shapes(layouts=layouts)), draw(st.sampled_from([(), (LABEL,)]))
            if compute_needed(shape.resources).fits_in(cluster.free(name)):
                stays = draw(st.sampled_from([None, None, None, Stays.VOLUME]))
                job = draw(st.sampled_from("abc"))
                pods.append(PodNow(PodId(JobId(job), int(name[1:]) * 10 + i, 1), Hostname(name), shape, labels, stays))
    waiting = [
        WaitingPods(
            JobId(f"w{i}"), draw(shapes(8, layouts)), draw(st.integers(1, 2)), draw(st.sampled_from([(), (LABEL,)]))
        )
        for i in range(draw(st.integers(0, 2)))
    ]
    return replace(cluster, waiting=waiting, grants=draw(st.sampled_from([1, 2, PLENTY])))


@st.composite
def shapes(draw: st.DrawFn, most: int = 4, layouts: Sequence[Layout | None] = ALONE) -> PodShape:
    amounts = Resources(draw(st.integers(1, most)) * 1000, draw(st.integers(0, most)))
    strategy = draw(st.sampled_from([Strategy.EMPTIEST_HOST, Strategy.SPREAD_JOB, Strategy.PACK_HOST]))
    constraint, layout = draw(st.sampled_from(CONSTRAINTS)), draw(st.sampled_from(layouts))
    return PodShape(amounts, strategy=strategy, constraint=constraint, layout=layout)


GOALS = st.sampled_from([FREE, SPREAD, EMPTY, [*FREE, *SPREAD], [*FREE, *EMPTY]])


def skews(cluster: Cluster) -> dict[tuple[JobId, PodShape, Spread], int]:
    """Return, for each rule of a job that spreads, the number of its pods in the fullest open domain above the
    lowest.
    """
    found = {}
    for job_id, own in cluster.spread().items():
        for shape in own.domains:
            assert shape.layout
            for rule in shape.layout.spread:
                counts = cluster.domains(job_id, shape, rule).values()
                found[job_id, shape, rule] = max(counts, default=0) - min(counts, default=0)
    return found


@settings(max_examples=examples(300), deadline=None)
@given(clusters(), GOALS, st.integers(0, 6))
def test_moves_keep_every_rule_in_any_order(cluster: Cluster, goals: list[Goal], moves_max: int) -> None:
    """Any subset of the moves overcommits no host and breaks no constraint that held; no more pods move than the bound
    and the SLA allow; and pods that may not move stay.
    """
    found = cluster.plan(goals, moves_max)
    moves = found.moves

    sources, targets = {move.source for move in moves}, {move.target for move in moves}
    assert set() == sources & targets
    assert len({move.pod_id for move in moves}) == len(moves) <= moves_max
    assert all(count <= cluster.grants for count in Counter(move.pod_id.job_id for move in moves).values())
    assert set() == {move.pod_id for move in moves} & {pod.pod_id for pod in cluster.pods if pod.stays}
    for made in (made for count in range(len(moves) + 1) for made in combinations(moves, count)):
        after = cluster.after(made)
        assert all(amount >= 0 for host in cluster.capacities for amount in after.free(host))
        assert broken(after) <= broken(cluster)
        before = skews(cluster)
        assert all(skew <= before[rule] for rule, skew in skews(after).items())


@settings(max_examples=examples(150), deadline=None)
@given(clusters(), GOALS)
def test_plans_come_to_rest(cluster: Cluster, goals: list[Goal]) -> None:
    """Plans have no moves after a while, when waiting pods are placed on the first host that fits them."""
    for _ in range(40):
        found = cluster.plan(goals)
        if not found.moves:
            return
        cluster = place_all(cluster.after(found.moves))
    assert [] == ways(found.moves)


def place_all(cluster: Cluster) -> Cluster:
    pods, left = list(cluster.pods), []
    for at, waiting in enumerate(cluster.waiting):
        count = waiting.count
        for host in cluster.capacities:
            while count and takes(replace(cluster, pods=pods), host, waiting.shape, waiting.labels):
                count -= 1
                pod_id = PodId(waiting.job_id, at * 10 + count, 1)
                pods.append(PodNow(pod_id, Hostname(host), waiting.shape, waiting.labels))
        left.append(replace(waiting, count=count))
    return replace(cluster, pods=pods, waiting=[waiting for waiting in left if waiting.count])


@settings(max_examples=examples(100), deadline=None)
@given(clusters(), GOALS, st.randoms(use_true_random=False))
def test_equal_snapshots_give_equal_plans(cluster: Cluster, goals: list[Goal], random: Random) -> None:
    """Plans do not depend on the order of hosts and pods."""
    hosts, pods = list(cluster.capacities.items()), list(cluster.pods)
    random.shuffle(hosts)
    random.shuffle(pods)

    assert cluster.plan(goals) == replace(cluster, capacities=dict(hosts), pods=pods).plan(goals)


@settings(max_examples=examples(200), deadline=None)
@given(clusters(host_max=4, pods_max=3, layouts=ALONE), shapes(most=8))
def test_no_plan_with_fewer_moves_lets_the_pod_in(cluster: Cluster, shape: PodShape) -> None:
    """The plan has as few moves as the exhaustive search, and none where that finds none."""
    cluster = replace(cluster, waiting=[WaitingPods(JobId("big"), shape, 1)], grants=PLENTY)
    expected = fewest_moves(cluster)

    found = cluster.plan(FREE)

    assert (expected or 0, expected is None) == (len(found.moves), bool(found.stuck))
