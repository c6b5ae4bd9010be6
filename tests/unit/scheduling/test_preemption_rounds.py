"""Preemption over time: with a constant demand it comes to rest, and every pool gets what is its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.model.ids import JobId
from peloton.model.respool import PoolSpec
from peloton.scheduling.admission import GangRun
from peloton.scheduling.cycle import Evictable, Plan, Snapshot, plan_cycle
from peloton.scheduling.eviction import HeldRun
from peloton.scheduling.preemption import count_over, over_entitled, without
from peloton.scheduling.tree import build_tree
from tests.unit.scheduling.eviction_table import Stage
from tests.unit.scheduling.pool_table import pool

SUSTAINED = 2
CYCLES = 100
LEAVES_AFTER = 3
"""Cycles from an eviction until the gang has ended on its hosts."""
BACK_AFTER = 5
"""Cycles from an eviction until the gang waits again: in between its pool wants less."""


@dataclass
class Cluster:
    """Cycles as the resource manager makes them, with single gangs that never end by themselves."""

    stage: Stage
    leaving: list[tuple[int, HeldRun]] = field(default_factory=list)  # cycle of the eviction
    away: list[tuple[int, HeldRun]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    now: int = 0
    next_seq: int = 10_000
    evicted: Counter[tuple[str, int]] = field(default_factory=Counter)
    last_eviction: int = -1

    def cycle(self) -> Plan:
        stage, self.now = self.stage, self.now + 1
        self._return()
        gone = [one for _, one in self.leaving]
        usage = stage.usage([*stage.held, *gone])
        left = without(usage, stage.usage(gone))
        over = over_entitled(stage.tree, self.entitlement(), left)
        self.counts = count_over(stage.tree, over, self.counts)  # type: ignore[arg-type, assignment]
        due = {row for row in over if self.counts[stage.tree.ids[row]] >= SUSTAINED}
        demand, slack_demand = stage.demand()
        plan = plan_cycle(
            Snapshot(
                stage.tree,
                stage.capacity,
                stage.slack_cpu,
                usage,
                demand,
                slack_demand,
                stage.queues(),
                10_000,
                is_clearing=bool(gone),
                evictable=Evictable(stage.held, stage.usage(gone), due, 10_000),
            )
        )
        self._apply(plan)
        return plan

    def entitlement(self):  # type: ignore[no-untyped-def]
        held, self.stage.held = self.stage.held, [*self.stage.held, *(one for _, one in self.leaving)]
        try:
            return self.stage.entitlement()
        finally:
            self.stage.held = held

    def _return(self) -> None:
        for since, one in list(self.leaving):
            if since + LEAVES_AFTER <= self.now:
                self.leaving.remove((since, one))
                self.away.append((since, one))
        for since, one in list(self.away):
            if since + BACK_AFTER <= self.now:
                self.away.remove((since, one))
                self.next_seq += 1
                self.stage.waiting.append((one.pool, replace(one.run, queue_seq=self.next_seq)))

    def _apply(self, plan: Plan) -> None:
        stage = self.stage
        launched = [replace(one, is_launched=True) for one in stage.held]
        gone = {(one.run.job_id, one.run.start) for one in plan.evictions}
        for one in stage.held:
            if (one.run.job_id, one.run.start) not in gone:
                continue
            self.last_eviction = self.now
            self.evicted[one.run.job_id, one.run.start] += 1
            if one.is_launched:
                self.leaving.append((self.now, one))
            else:
                stage.waiting.append((one.pool, one.run))
        stage.held = [one for one in launched if (one.run.job_id, one.run.start) not in gone]
        taken = {(one.run.job_id, one.run.start): one for one in plan.admission.admitted}
        stage.held += [HeldRun(one.pool, one.run, False) for one in taken.values()]
        stage.waiting = [(row, run) for row, run in stage.waiting if (run.job_id, run.start) not in taken]


POOLS: tuple[PoolSpec, ...] = (
    pool("/a", "6/6", "20/20", controller_limit="50"),
    pool("/b", "6/6", "14/14"),
    pool("/b/c", "2/2", "14/14"),
    pool("/b/d", "4/4", "14/14", "3"),
    pool("/e", "4/4", "20/20"),
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Jobs of all pools, which come one after the other."""
    tree = build_tree(POOLS)
    leaves = [row for row in range(len(tree.ids)) if tree.is_leaf[row]]
    stage = Stage(tree, np.array([20_000, 20, 1000, 0], np.int64))
    cluster = Cluster(stage)
    for job in range(draw(st.integers(2, 9))):
        row, priority = draw(st.sampled_from(leaves)), draw(st.integers(0, 2))
        size = draw(st.sampled_from([1, 1, 1, 2, 5]))
        need = (draw(st.sampled_from([500, 1000, 2000])) * size, draw(st.integers(0, 2)) * size, 0, 0)
        preemptible, controller = draw(st.sampled_from([True, True, False])), draw(st.integers(0, 4)) == 0
        for gang in range(draw(st.integers(1, 12 if size == 1 else 2))):
            run = GangRun(
                JobId(str(job)), gang * size, 1, size, need, priority, job, preemptible, controller=controller
            )
            stage.waiting.append((row, run))
        for _ in range(draw(st.integers(0, 3))):
            cluster.cycle()
    return cluster


@given(clusters())
@settings(max_examples=60, deadline=None)
def test_comes_to_rest(cluster: Cluster) -> None:
    """At constant demand evictions stop within half of 100 cycles, and nobody is evicted again and again."""
    for _ in range(CYCLES):
        cluster.cycle()
        held = cluster.stage.usage([*cluster.stage.held, *(one for _, one in cluster.leaving)])
        total = cluster.stage.tree.roll_up(held.non_slack)
        assert (total[0] <= cluster.stage.capacity).all()
        assert (total[1:] <= cluster.stage.tree.limit[1:]).all()

    assert cluster.last_eviction < cluster.now - CYCLES // 2
    assert max(cluster.evicted.values(), default=0) <= 5


@given(clusters())
@settings(max_examples=40, deadline=None)
def test_nobody_waits_for_what_is_lent(cluster: Cluster) -> None:
    """At rest no gang waits that one single eviction from a pool above its entitlement would let in."""
    for _ in range(CYCLES):
        cluster.cycle()
    stage = cluster.stage

    assert stage.evict() == []


def test_a_deficit_evicts_once() -> None:
    """While the evicted are on their way out nobody else is evicted for the same gangs."""
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


def test_room_is_kept_for_the_gang_that_evicted() -> None:
    """A gang that may not be preempted gets what it evicted although smaller ones, evicted too, would fit earlier."""
    tree = build_tree([pool("/a", "6", "6")])
    stage = Stage(tree, np.array([6_000, 0, 0, 0], np.int64))
    stage.held = [HeldRun(1, GangRun(JobId("low"), i, 1, 1, (1000, 0, 0, 0), 0, 1), is_launched=True) for i in range(6)]
    stage.waiting = [(1, GangRun(JobId("service"), 0, 1, 4, (4000, 0, 0, 0), 1, 2, preemptible=False))]
    cluster = Cluster(stage)

    for _ in range(30):
        cluster.cycle()

    assert Counter(one.run.job_id for one in stage.held) == {"low": 2, "service": 1}
    assert sum(cluster.evicted.values()) == 4
