"""Measurement of the slack of nodes."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.driver import UseSample
from services.hostmgr.kubernetes.cluster_view import ClusterView
from services.hostmgr.kubernetes.nodes.node_line import Demand
from services.hostmgr.kubernetes.nodes.nodes import Node
from services.hostmgr.kubernetes.nodes.slack import NODES_PER_ROUND_MAX, SILENCES_MAX, SlackEstimator
from services.hostmgr.kubernetes.settings import IN_CLUSTER, KubernetesSettings

TIMEOUT_S = 180.0
NODE = "n1"
TWO_CPUS = Demand(Resources.of(2, 100))
BORROWER = Demand(Resources(memory_mib=10), slack_milli=500)


class World:
    """Nodes with pods that use cpu at a steady rate; a round takes 10 s."""

    def __init__(self) -> None:
        self.view = ClusterView(KubernetesSettings(IN_CLUSTER), lambda reports: None, lambda: None)
        self.ledger = self.view.ledger
        self.at_s = 0.0
        self.rates: dict[str, float] = {}  # of pods on NODE
        self.counters = defaultdict[str, float](float)
        self.asked: list[str] = []
        self.answered = threading.Event()
        self.is_silent = False
        self.estimator = self.another()

    def another(self, period_s: float = 3_600) -> SlackEstimator:
        return SlackEstimator(self.view, self.samples_of, period_s)

    def put_node(self, name: str = NODE) -> None:
        more: dict[str, Any] = {"labels": {}, "pods_max": 10}
        self.ledger.put_node(Node(Hostname(name), f"uid-{name}", "", Resources.of(4, 1_000), **more))

    def put_pod(self, pod: str, demand: Demand = TWO_CPUS, rate: float | None = None, node: str = NODE) -> None:
        """Put a pod on the node; it is not measured if it has no rate."""
        self.ledger.put_pod(pod, node, demand)
        if rate is not None:
            self.rates[pod] = rate

    def samples_of(self, name: str) -> list[UseSample]:
        self.asked.append(name)
        self.answered.set()
        if self.is_silent:
            raise OSError("no route to host")
        return [UseSample(pod, None, self.counters[pod], self.at_s, 1) for pod in self.rates if name == NODE]

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.at_s += 10
            for pod, rate in self.rates.items():
                self.counters[pod] += rate * 10
            self.estimator.run_round()

    @property
    def slack(self) -> int | None:
        return self.ledger.slack_of(NODE)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.put_node()
    yield made
    made.estimator.stop()


def test_what_pods_leave_is_lent_less_a_tenth(world: World) -> None:
    """Two measurements make a rate; external pods count too."""
    world.put_pod("peloton/a", rate=0.5)
    world.put_pod("x/b", TWO_CPUS._replace(is_foreign=True), rate=0.25)
    world.rounds(1)
    assert world.slack is None

    world.rounds(1)

    assert 4_000 - 400 - 750 == world.slack


def test_a_pod_that_is_not_measured_uses_all_that_it_requests(world: World) -> None:
    """An unmeasured pod may have just started."""
    world.put_pod("a", rate=0.5)
    world.rounds(2)

    world.put_pod("b")
    world.rounds(2)

    assert 1_300 == world.slack


def test_revocable_pods_count_neither_as_lenders_nor_as_use(world: World) -> None:
    """Revocable pods use slack and lend none."""
    world.put_pod("a", rate=0.5)
    world.put_pod("r", BORROWER, rate=1.5)

    world.rounds(2)

    assert 1_300 == world.slack


def test_a_rise_in_use_counts_at_once_and_a_fall_little_by_little(world: World) -> None:
    """A rise takes slack at once, since ordinary pods have priority."""
    world.put_pod("a", rate=0.0)
    world.rounds(2)
    assert 1_800 == world.slack

    world.rates["a"] = 1.6
    world.rounds(1)
    assert 200 == world.slack
    world.rates["a"] = 0.0
    world.rounds(1)

    assert 1_000 == world.slack
    world.rounds(1)
    assert 1_400 == world.slack


def test_no_more_is_lent_than_the_node_has(world: World) -> None:
    """External pods may exceed the capacity of the node."""
    for i in range(4):
        world.put_pod(f"x/{i}", rate=0.0)

    world.rounds(2)

    assert 3_600 == world.slack


def test_revocable_pods_stay_while_the_slack_is_unknown(world: World) -> None:
    """The slack equals the allocation of revocable pods after a restart of the host manager, so that none is evicted;
    none is free.
    """
    world.put_pod("a", rate=0.5)
    world.put_pod("r", BORROWER)
    world.rounds(1)

    (on_node,), (host,) = world.ledger.changes().announced, world.ledger.hosts()
    assert (0, 500, 500) == (on_node.revocable.cpu_milli, host.revocable.cpu_milli, host.revocable_held.cpu_milli)
    world.rounds(1)

    (on_node,), (host,) = world.ledger.changes().announced, world.ledger.hosts()
    assert (800, 1_300, 500) == (on_node.revocable.cpu_milli, host.revocable.cpu_milli, host.revocable_held.cpu_milli)


def test_a_measurement_that_is_not_new_makes_no_estimate(world: World) -> None:
    """A kubelet may measure more rarely than it is read."""
    world.put_pod("a", rate=0.5)
    world.rounds(1)

    world.estimator.run_round()
    assert world.slack is None
    world.rounds(1)

    assert 1_300 == world.slack


def test_the_slack_of_a_silent_node_becomes_unknown(world: World) -> None:
    """The slack is kept at the first failure; it is measured again when the node answers."""
    world.put_pod("a", rate=0.5)
    world.rounds(2)
    world.is_silent = True
    world.rounds(SILENCES_MAX - 1)
    assert 1_300 == world.slack

    world.rounds(1)
    assert world.slack is None
    world.is_silent = False
    world.rounds(1)
    assert world.slack is None
    world.rounds(1)

    assert 1_300 == world.slack


def test_a_node_that_lends_no_more_has_no_slack(world: World) -> None:
    """The pods of the node have gone; it is measured no more."""
    world.put_pod("a", rate=0.5)
    world.rounds(2)
    world.ledger.drop_pod("a")
    world.rates.clear()
    world.rounds(1)
    assert 0 == world.slack
    world.asked.clear()

    world.rounds(1)

    assert [] == world.asked


def test_a_round_has_a_bound_and_the_next_one_continues(world: World) -> None:
    """Nodes without pods are not read."""
    names = [f"m{i:03}" for i in range(NODES_PER_ROUND_MAX + 50)]
    for name in names:
        world.put_node(name)
        world.put_pod(f"on-{name}", node=name)

    world.rounds(2)

    assert 2 * NODES_PER_ROUND_MAX == len(world.asked)
    assert set(names) == set(world.asked)
    assert {1, 2} == set(Counter(world.asked).values())


def test_it_measures_by_itself(world: World) -> None:
    """The slack is measured every period, until the estimator is stopped."""
    world.put_pod("a", rate=0.5)
    running = world.another(period_s=0.01)
    running.start()

    assert world.answered.wait(TIMEOUT_S)
    world.answered.clear()
    assert world.answered.wait(TIMEOUT_S)
    running.stop()

    assert {NODE} == set(world.asked)


def test_revocable_pods_alone_have_nothing_to_borrow(world: World) -> None:
    """A host manager that starts when the lenders have gone measures zero, too."""
    world.put_pod("r", BORROWER, rate=0.5)

    world.rounds(2)

    assert 0 == world.slack
