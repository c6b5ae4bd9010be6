"""Free resources for planned pods, in several clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.errors import Unavailable
from peloton.model.daemon import DaemonPlan, DaemonReach
from peloton.model.planned_capacity import CapacityAnswer, PlannedPods
from peloton.model.reason import ClusterReason, ClusterRule, NoHost, RefusingHosts
from tests.unit.hostmgr.test_federation import LEASED, ONE, World


def lacks(cluster: str, count: int, hosts: int, is_gang: bool = False) -> ClusterReason:
    return ClusterReason(cluster, pods=(NoHost(count, is_gang, (RefusingHosts.of(hosts, LEASED),)),))


def test_one_cluster_is_asked_once_for_the_capacity_of_planned_pods() -> None:
    """The answer names no cluster; it has no rules for pods that would wait in the queue."""
    world = World(a=4)
    pods = [PlannedPods(ONE, 5), PlannedPods(ONE, 9, turn=1)]

    assert CapacityAnswer((4, 0), (lacks("", 1, 4),)) == world.all.find_capacity(pods)
    assert {"a": {"room": 1}} == world.asked()


def test_planned_pods_fill_one_cluster_after_the_other() -> None:
    """Each cluster is asked once about the remaining pods; a gang is in one cluster. There is no
    reason if all pods fit.
    """
    world = World(a=2, b=3)

    assert CapacityAnswer((5,)) == replace(world.all.find_capacity([PlannedPods(ONE, 5)]), why=())
    more = world.all.find_capacity([PlannedPods(ONE, 7)])
    assert ((5,), {lacks("b", 4, 3), lacks("a", 2, 2)}) == (more.counts, {*more.why})
    gang = world.all.find_capacity([PlannedPods(ONE, 4, is_gang=True), PlannedPods(ONE, 1)])
    assert ((0, 1), (lacks("a", 4, 2, True), lacks("b", 4, 3, True))) == (gang.counts, gang.why)
    assert [3, 3] == [world.managers[name].asked["room"] for name in "ab"]


def test_a_silent_cluster_is_named_and_the_others_count() -> None:
    """The query fails if no cluster answers."""
    world = World(a=4, b=3)
    world.all.find_capacity([PlannedPods(ONE, 1)])  # caches the free resources there
    world.managers["a"].is_unavailable = True
    answer = world.all.find_capacity([PlannedPods(ONE, 5)])
    away = ClusterReason("a", ClusterRule.FAILED, detail="away")

    assert CapacityAnswer((3,), (away, lacks("b", 2, 3))) == answer
    world.silence("a")
    assert "silent" in [reason.rule for reason in world.all.find_capacity([PlannedPods(ONE, 5)]).why]
    world.managers["b"].is_unavailable = True
    with pytest.raises(Unavailable, match="away"):
        world.all.find_capacity([PlannedPods(ONE, 5)])


def test_a_daemon_is_planned_in_every_cluster() -> None:
    """Each cluster is called once; one that does not answer is listed with the error, and a single one has no name."""
    world = World(a=4, b=3)
    world.managers["b"].is_unavailable = True
    found = world.all.plan_daemon(ONE)

    a, b = found["a"], found["b"]
    assert DaemonPlan(DaemonReach(4, cluster="a")) == a
    assert isinstance(b, Unavailable)
    assert "away" == b.message
    assert {"a": {"plan": 1}, "b": {"plan": 1}} == world.asked()
    assert {"": DaemonPlan(DaemonReach(2))} == World(c=2).all.plan_daemon(ONE)
