"""Pods that leave a hot host: tables, properties, and a cluster over time that comes to rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.reason import QosReason, QosRule
from peloton.scheduling.qos import (
    Correction,
    HostLoad,
    HostWatch,
    QosPolicy,
    RevocablePod,
    Use,
    after,
    corrections,
    is_due,
    observe,
)

POLICY = QosPolicy()
JOB = JobId("00000000-0000-4000-8000-000000000001")
HOT = HostWatch(hot_count=2)
SHORT = HostWatch(short_count=2)


def pod(
    number: int, use: int, priority: int = 0, held: int = 100, memory: int = 0, leaving: bool = False
) -> RevocablePod:
    """Started in the order of their numbers; ``use`` and ``held`` in thousandths of a cpu."""
    return RevocablePod(PodId(JOB, number, 1), priority, number, held, Use(use, memory), leaving)


def load(used: int, memory: int = 0, slack: int = 1000, held: int = 0) -> HostLoad:
    """A host of 1 cpu and 1000 MiB."""
    return HostLoad(Hostname("h"), Use(1000, 1000), Use(used, memory), slack, held)


def list_evicted(found: tuple[Correction, ...]) -> list[int]:
    return [each.pod_id.instance_id for each in found]


@pytest.mark.parametrize(
    ("pods", "used", "expected"),
    [
        ([pod(0, 300), pod(1, 300)], 950, [1]),  # the youngest
        ([pod(0, 300, priority=1), pod(1, 300, priority=2)], 950, [0]),  # unless it is more important
        ([pod(0, 100), pod(1, 100), pod(2, 100)], 950, [2, 1]),  # as many as are needed
        ([pod(0, 100), pod(1, 100)], 1500, [1, 0]),  # all, when that is not enough
        ([pod(0, 300), pod(1, 0)], 950, [0]),  # not a pod without use
        ([pod(0, 300), pod(1, 20)], 950, [1, 0]),  # in their order, also when one by itself would do
        ([pod(0, 300), pod(1, 300, leaving=True)], 950, []),  # a pod is leaving already
        ([pod(0, 300)], 900, []),  # warm is not hot
        ([], 1000, []),  # ordinary pods are never evicted
    ],
)
def test_a_hot_host_is_brought_below_the_target(pods: list[RevocablePod], used: int, expected: list[int]) -> None:
    """A host above 90 % is brought to 80 % by as few pods as possible, the least important and youngest first."""
    assert expected == list_evicted(corrections(HOT, load(used), pods, POLICY))


def test_memory_makes_a_host_hot_too() -> None:
    """A pod that holds memory leaves, not the one that uses cpu; the reason has the numbers."""
    found = corrections(HOT, load(500, memory=950), [pod(0, 10, memory=200), pod(1, 400, memory=0)], POLICY)

    assert [Correction(PodId(JOB, 0, 1), QosReason(QosRule.HOT_MEMORY, "h", 950, 1_000, 90))] == list(found)
    assert eviction_text(found[0].why) == "host h is hot: memory 950 of 1000 MiB in use (95 %, allowed 90 %)"


def test_who_holds_more_than_the_slack_leaves() -> None:
    """Pods leave, whatever they use, until the others fit into the remaining slack."""
    pods = [pod(0, 0, held=200), pod(1, 0, held=200), pod(2, 0, held=200)]

    found = corrections(SHORT, load(0, slack=250, held=600), pods, POLICY)

    assert [2, 1] == list_evicted(found)
    assert eviction_text(found[0].why) == "host h has cpu 0.25 of slack left, revocable pods hold 0.6"
    assert [] == list_evicted(corrections(SHORT, load(0, slack=600, held=900), pods, POLICY))


def test_one_measurement_is_not_enough() -> None:
    """Two measurements in a row must agree before a pod leaves, and one that disagrees restarts the count."""
    watch = HostWatch()
    due = []
    for used in (950, 500, 950, 950):
        watch = observe(watch, load(used), POLICY)
        due.append(is_due(watch, POLICY))

    assert [False, False, False, True] == due
    assert not is_due(after(watch, corrections(watch, load(950), [pod(0, 500)], POLICY), 0.0, POLICY), POLICY)


def test_a_host_is_closed_for_longer_each_time() -> None:
    """A host that is hot again soon after it opened is closed twice as long; much later, as long as at first."""
    hot = [Correction(PodId(JOB, 0, 1), QosReason(QosRule.HOT_CPU, "h", 95, 100, 90))]
    first = after(HOT, hot, 100.0, POLICY)
    second = after(first, hot, 200.0, POLICY)
    late = after(second, hot, 1000.0, POLICY)

    assert [60.0, 120.0, 60.0] == [watch.closed_for_s for watch in (first, second, late)]
    assert (second.is_closed(319.0), second.is_closed(320.0), second.is_idle(439.0), second.is_idle(440.0)) == (
        True,
        False,
        False,
        True,
    )
    assert not after(SHORT, [replace(hot[0], why=replace(hot[0].why, rule=QosRule.LESS_SLACK))], 0.0, POLICY).is_closed(
        0.0
    )


PODS = st.lists(
    st.builds(
        pod,
        st.integers(0, 50),
        st.integers(0, 800),
        st.integers(0, 2),
        st.integers(0, 400),
        st.integers(0, 400),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda each: each.pod_id,
)


@given(PODS, st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 2000), st.integers(0, 3), st.integers(0, 3))
def test_as_few_leave_as_the_order_allows(
    pods: list[RevocablePod], used: int, memory: int, slack: int, hot_count: int, short_count: int
) -> None:
    """Evicted pods leave the host at its targets, or no other pod could help; without the last of them it would not be.
    Pods that leave already are not evicted again.
    """
    watch, host = HostWatch(hot_count, short_count), load(used, memory, slack)
    leaving = [each for each in pods if each.is_leaving]
    by_id = {each.pod_id: each for each in pods}

    victims = [by_id[each.pod_id] for each in corrections(watch, host, pods, QosPolicy(evicted_pods_max=100))]

    stays = [each for each in pods if each not in victims and not each.is_leaving]
    for cause, lack in missing(watch, host, pods, leaving + victims).items():
        assert lack <= 0 or all(part(each, cause) == 0 for each in stays)
    for number, victim in enumerate(victims):
        assert not victim.is_leaving
        lacks = missing(watch, host, pods, leaving + victims[:number])
        unmet = [cause for cause, lack in lacks.items() if lack > 0]
        assert any(part(victim, cause) > 0 for cause in unmet)
        earlier = [each for each in stays if rank(each) < rank(victim)]
        assert all(part(each, cause) == 0 for each in earlier for cause in unmet)
    bounded = corrections(watch, host, pods, QosPolicy(evicted_pods_max=2))
    assert [each.pod_id for each in victims[:2]] == [each.pod_id for each in bounded]


def rank(each: RevocablePod) -> tuple[int, int]:
    return each.priority, -each.started_ns


def part(each: RevocablePod, cause: QosRule) -> int:
    return {
        QosRule.HOT_CPU: each.used.cpu_milli,
        QosRule.HOT_MEMORY: each.used.memory_mib,
        QosRule.LESS_SLACK: each.held,
    }[cause]


def missing(
    watch: HostWatch, host: HostLoad, pods: list[RevocablePod], leaving: list[RevocablePod]
) -> dict[QosRule, int]:
    """Return the amount by which each rule that is due is still broken once the given pods have left."""
    found = {}
    if watch.hot_count >= 2 and host.used.cpu_milli > 900:
        found[QosRule.HOT_CPU] = host.used.cpu_milli - 800 - sum(each.used.cpu_milli for each in leaving)
    if watch.hot_count >= 2 and host.used.memory_mib > 900:
        found[QosRule.HOT_MEMORY] = host.used.memory_mib - 800 - sum(each.used.memory_mib for each in leaving)
    if watch.short_count >= 2:
        found[QosRule.LESS_SLACK] = sum(each.held for each in pods if each not in leaving) - host.slack
    return found


# Over time.


class Cluster:
    """Hosts of 1 cpu at constant load. Evicted pods leave after a while, return to the queue, and are placed again
    where revocable cpu is free and the host is open.
    """

    GRACE_S = 20.0

    def __init__(self, ordinary: list[int], slack: list[int], uses: list[int]) -> None:
        self.ordinary, self.slack, self.uses = ordinary, slack, uses
        self.watches = [HostWatch() for _ in ordinary]
        self.where: dict[int, int] = {}  # pod -> host
        self.leaving: dict[int, float] = {}  # pod -> when it is gone
        self.runs = [0] * len(uses)
        self.evictions: list[float] = []

    def step(self, now_s: float) -> None:
        for number in [number for number, until_s in self.leaving.items() if until_s <= now_s]:
            del self.leaving[number], self.where[number]
        for host in range(len(self.ordinary)):
            self._correct(host, now_s)
        for number in range(len(self.uses)):
            if number not in self.where:
                self._place(number, now_s)

    def _pods(self, host: int) -> list[RevocablePod]:
        return [
            RevocablePod(PodId(JOB, n, self.runs[n]), 0, self.runs[n], 100, Use(self.uses[n]), n in self.leaving)
            for n, at in self.where.items()
            if at == host
        ]

    def load(self, host: int) -> HostLoad:
        pods = self._pods(host)
        used = self.ordinary[host] + sum(each.used.cpu_milli for each in pods)
        return HostLoad(Hostname(f"h{host}"), Use(1000, 1000), Use(used), self.slack[host], 100 * len(pods))

    def _correct(self, host: int, now_s: float) -> None:
        watch = observe(self.watches[host], self.load(host), POLICY)
        made = corrections(watch, self.load(host), self._pods(host), POLICY) if is_due(watch, POLICY) else ()
        for each in made:
            self.leaving[each.pod_id.instance_id] = now_s + self.GRACE_S
            self.evictions.append(now_s)
        self.watches[host] = after(watch, made, now_s, POLICY) if made else watch

    def _place(self, number: int, now_s: float) -> None:
        for host, watch in enumerate(self.watches):
            if not watch.is_closed(now_s) and 100 * (len(self._pods(host)) + 1) <= self.slack[host]:
                self.where[number] = host
                self.runs[number] += 1
                return


HOUR_S = 3600


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=4),
    st.lists(st.integers(0, 100), max_size=25),
)
def test_constant_load_comes_to_rest(hosts: list[tuple[int, int]], uses: list[int]) -> None:
    """No pod is evicted where slack is the part that ordinary pods leave unused and pods use no more than they
    request.
    """
    cluster = Cluster([use for use, _ in hosts], [min(slack, max(0, 900 - use)) for use, slack in hosts], uses)

    for now_s in range(0, HOUR_S, 5):
        cluster.step(now_s)

    assert cluster.evictions == []


@settings(max_examples=20)
@given(st.integers(0, 1000), st.lists(st.integers(0, 1000), min_size=1, max_size=12))
def test_pods_that_use_too_much_are_tried_ever_less_often(ordinary: int, uses: list[int]) -> None:
    """A host with a fixed slack and pods that use far more than they request, at constant load, stays closed for twice
    as long each time, so that evictions become rare instead of continuing at the same rate.
    """
    cluster = Cluster([ordinary], [1000], uses)

    for now_s in range(0, 6 * HOUR_S, 5):
        cluster.step(now_s)

    moments = sorted(set(cluster.evictions))
    assert len([at for at in moments if at < HOUR_S]) <= 8
    assert len([at for at in moments if at >= 2 * HOUR_S]) <= 8


def test_slack_that_shrinks_is_given_back_once() -> None:
    """Ordinary pods wake up: as many revocable pods leave as no longer fit, once, and return when load is low."""
    cluster = Cluster([100], [800], [100] * 8)
    for now_s in range(0, 100, 5):
        cluster.step(now_s)
    assert (cluster.evictions, len(cluster.where)) == ([], 8)

    cluster.ordinary, cluster.slack = [500], [300]
    for now_s in range(100, HOUR_S, 5):
        cluster.step(now_s)
    assert (len(cluster.evictions), len(cluster.where)) == (5, 3)
    assert max(cluster.evictions) <= 110

    cluster.ordinary, cluster.slack = [100], [800]
    for now_s in range(HOUR_S, 2 * HOUR_S, 5):
        cluster.step(now_s)
    assert (len(cluster.evictions), len(cluster.where)) == (5, 8)
