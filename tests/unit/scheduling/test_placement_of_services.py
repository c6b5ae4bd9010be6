"""Placement by the labels of other pods, back on the same host, and on the emptiest one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.constraints import evaluate
from peloton.lifecycle.reason_text import placement_text
from peloton.model.host import LeasedHost, ReadyGang
from peloton.model.ids import Hostname
from peloton.model.misfit import HostRule, Refused
from peloton.model.pod import PodLabel, PodShape, Strategy
from peloton.model.reason import NoHost, RefusingHosts
from peloton.model.resources import Resources
from peloton.scheduling.placement import place
from tests.unit.scheduling.test_placement import JOB, host, lease, shape, singles, where

WEB, DB = ("app", "web"), ("app", "db")


def host_with(name: str, **pods: int) -> LeasedHost:
    return replace(host(name, cpu=100), pod_labels=tuple((("app", app), count) for app, count in pods.items()))


def make_unlabelled(of: PodShape, count: int) -> list[ReadyGang]:
    return [ReadyGang(of, ((i, 1),)) for i in range(count)]


def test_pods_that_are_there_count() -> None:
    """A rule of one pod per host counts another job's pods with the label, and the reason counts hosts."""
    batch = place(JOB, singles(shape(constraint=PodLabel(*WEB)), 2), lease(host_with("h1", web=1), host_with("h2")))

    assert {"h2": [0]} == where(batch)
    assert "1 pod without a host (2 hosts: pods with app=web < 1 not met)" == placement_text(batch.why)


def test_pods_keep_away_from_others_and_not_from_each_other() -> None:
    """Pods that do not carry the label of their constraint share a host."""
    batch = place(
        JOB, make_unlabelled(shape(constraint=PodLabel(*DB)), 3), lease(host_with("h1", db=1), host_with("h2"))
    )

    assert {"h2": [0, 1, 2]} == where(batch)


def test_pods_go_where_others_are() -> None:
    """A pod whose constraint requires other pods with a label is placed only on a host that has one."""
    batch = place(
        JOB, make_unlabelled(shape(constraint=PodLabel(*DB, ">", 0)), 2), lease(host_with("h1"), host_with("h2", db=1))
    )

    assert {"h2": [0, 1]} == where(batch)


def test_labels_of_pods_without_a_constraint_count() -> None:
    """The first pod carries the label and has no constraint; the second is kept off its host."""
    one = ReadyGang(shape(), ((0, 1),), (WEB,))
    other = ReadyGang(shape(constraint=PodLabel(*WEB)), ((1, 1),), (WEB,))

    assert {"h1": [0], "h2": [1]} == where(place(JOB, [one, other], lease(host_with("h1"), host_with("h2"))))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(0, 12), st.integers(1, 4))
def test_no_host_gets_more_than_n(there: list[int], wanted: int, limit: int) -> None:
    """A limit of n pods per host includes running pods, a batch fills it while a pod waits, and the evaluator agrees
    with every step.
    """
    rule = PodLabel(*WEB, "<", limit)
    hosts = [host_with(f"h{i}", web=count) for i, count in enumerate(there)]
    batch = place(JOB, singles(shape(constraint=rule), wanted), lease(*hosts))

    placed = Counter({name: len(pods) for name, pods in where(batch).items()})
    fit_counts = sum(max(limit - count, 0) for count in there)
    assert min(wanted, fit_counts) == placed.total()
    for i, count in enumerate(there):
        steps = [evaluate(rule, {}, {"app": {"web": count + step}}) for step in range(placed[f"h{i}"])]
        assert all(steps)


def test_pods_come_back_to_their_hosts() -> None:
    """Pods that come back are placed before others: the first host is left to the pod that ran there."""
    back = ReadyGang(shape(3), ((5, 2),), desired_host="h1")
    batch = place(JOB, [*singles(shape(3), 1), back], lease(host("h1"), host("h2")))

    assert {"h1": [5], "h2": [0]} == where(batch)


def test_a_pod_waits_for_its_host_or_goes_elsewhere() -> None:
    """A pod waits for its host if the lease says so, and counts with a reason; else any host fits."""
    back = ReadyGang(shape(3), ((5, 2),), desired_host="h1")
    offered = lease(host("h1", cpu=1), host("h2"))
    waiting = place(JOB, [back], replace(offered, awaited=((5, Hostname("h1")),)))

    assert ((), 1) == (waiting.placements, waiting.unplaced_count)
    assert (NoHost(1, hosts=(RefusingHosts.of(1, Refused(HostRule.RETURN)),)),) == waiting.why[0].pods
    assert {"h2": [5]} == where(place(JOB, [back], offered))


def test_the_emptiest_host_comes_first() -> None:
    """Hosts are compared by their free share, not the amount, pod after pod; the first host is chosen among equals;
    memory counts when it is the scarcer.
    """
    empties = shape(1, 10, strategy=Strategy.EMPTIEST_HOST)
    big = replace(host("big", cpu=20), capacity=Resources.of(64, 1000))
    small = replace(host("small", cpu=3), capacity=Resources.of(4, 1000))
    hungry = replace(host("hungry", cpu=8, memory=100), capacity=Resources.of(8, 1000))

    assert {"big": [2], "small": [0, 1]} == where(place(JOB, singles(empties, 3), lease(hungry, big, small)))
    assert {"h1": [0, 2], "h2": [1]} == where(
        place(JOB, singles(empties, 3), lease(*map(make_known_host, ("h1", "h2"))))
    )


def make_known_host(name: str) -> LeasedHost:
    return replace(host(name), capacity=Resources.of(4, 1000))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(4, 8)), max_size=5), st.integers(0, 20))
def test_emptiest_first_leaves_no_pod_out(hosts: list[tuple[int, int]], count: int) -> None:
    """All pods that fit are placed, and each on the host that had the largest free share among the hosts that fit."""
    offered = [replace(host(f"h{i}", cpu=f), capacity=Resources.of(t, 1000)) for i, (f, t) in enumerate(hosts)]
    batch = place(JOB, singles(shape(1, 0, strategy=Strategy.EMPTIEST_HOST), count), lease(*offered))

    free = [f for f, _ in hosts]
    order = sorted((instance, int(name[1:])) for name, instances in where(batch).items() for instance in instances)
    assert min(count, sum(free)) == len(order)
    for _, at in order:
        assert free[at] * 10**6 // hosts[at][1] == max(f * 10**6 // t for f, (_, t) in zip(free, hosts, strict=True))
        free[at] -= 1
