"""Preemption over time: with a constant demand it comes to rest, and every pool receives its entitlement."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings

from peloton.model.ids import JobId
from peloton.scheduling.eviction import HeldRun
from peloton.scheduling.gangs import GangRun
from peloton.scheduling.tree import build_tree
from tests.nightly import examples
from tests.unit.scheduling.eviction_rounds import Cluster, clusters
from tests.unit.scheduling.eviction_table import Stage
from tests.unit.scheduling.pool_table import pool

CYCLES = 160


@given(clusters())
@settings(max_examples=examples(60), deadline=None)
def test_comes_to_rest(cluster: Cluster) -> None:
    """Evictions stop within half of the cycles at constant demand, and no gang is evicted again and again. At rest no
    gang waits that evictions from pools above their entitlement, or of lower priorities, would admit.
    """
    before = Counter(cluster.evicted)
    for _ in range(CYCLES):
        cluster.cycle()
        held = cluster.stage.usage([*cluster.stage.held, *cluster.gone])
        assert cluster.fits()
        assert (cluster.stage.tree.roll_up(held.non_slack)[1:] <= cluster.stage.tree.limit[1:]).all()

    assert cluster.last_eviction < cluster.now - CYCLES // 2
    assert max((cluster.evicted - before).values(), default=0) <= 5
    assert cluster.stage.evict() == []


def test_a_deficit_evicts_once() -> None:
    """Pods that leave after an eviction count: no others are evicted for the same gangs."""
    tree = build_tree([pool("/a", "6", "12"), pool("/b", "6", "12")])
    stage = Stage(tree, np.array([12_000, 0, 0, 0], np.int64))
    stage.held = [
        HeldRun(1, GangRun(JobId("lent"), i, 1, 1, (1000, 0, 0, 0), 0, 1), is_launched=True) for i in range(12)
    ]
    stage.waiting = [(2, GangRun(JobId("back"), i, 1, 1, (1000, 0, 0, 0), 0, 2)) for i in range(9)]
    cluster = Cluster(stage)

    evicted = [len(cluster.cycle().evictions) for _ in range(30)]

    assert [count for count in evicted if count] == [6]
    assert Counter(one.run.job_id for one in stage.held) == {"lent": 6, "back": 6}


def test_offers_are_kept_for_the_gang_that_evicted() -> None:
    """A gang that may not be preempted receives the resources that it evicted, although smaller evicted ones would fit
    earlier.
    """
    tree = build_tree([pool("/a", "6", "6")])
    stage = Stage(tree, np.array([6_000, 0, 0, 0], np.int64))
    stage.held = [HeldRun(1, GangRun(JobId("low"), i, 1, 1, (1000, 0, 0, 0), 0, 1), is_launched=True) for i in range(6)]
    stage.waiting = [(1, GangRun(JobId("service"), 0, 1, 4, (4000, 0, 0, 0), 1, 2, preemptible=False))]
    cluster = Cluster(stage)

    for _ in range(30):
        cluster.cycle()

    assert Counter(one.run.job_id for one in stage.held) == {"low": 2, "service": 1}
    assert sum(cluster.evicted.values()) == 4
