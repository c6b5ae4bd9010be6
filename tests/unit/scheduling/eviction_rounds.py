"""Cycles and rounds of preemption as the resource manager makes them, over time, with gangs that never end by
themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from peloton.model.ids import JobId, RespoolId
from peloton.model.resources import Resources
from peloton.model.respool import PoolSpec
from peloton.scheduling.cycle import Evictable, Plan, Snapshot, plan_cycle
from peloton.scheduling.entitlement import Entitlement
from peloton.scheduling.eviction import HeldRun
from peloton.scheduling.gangs import GangRun
from peloton.scheduling.preemption import count_over, over_entitled
from peloton.scheduling.tree import build_tree
from tests.unit.scheduling.eviction_table import Stage
from tests.unit.scheduling.pool_table import pool

Key = tuple[JobId, int]
"""Identity of a gang: its job and its first instance."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in cycles."""

    sustained: int = 2
    round_every: int = 1
    leaves_after: tuple[int, ...] = (3,)
    """Cycles from an eviction until the gang has ended on its hosts, by turns."""
    back_after: int = 5
    """Cycles from an eviction until the gang waits again: in between the demand of its pool is lower."""
    keeps_place: bool = False
    """True if an evicted gang keeps its place in the queue, False if it waits behind its equals."""
    admitted_pods: int = 10_000
    evicted_pods: int = 10_000


@dataclass
class Cluster:
    stage: Stage
    pace: Pace = field(default_factory=Pace)
    ends_finally: frozenset[JobId] = frozenset()  # killOnPreempt
    leaving: list[tuple[int, HeldRun]] = field(default_factory=list)  # cycle of the end
    away: list[tuple[int, HeldRun]] = field(default_factory=list)  # cycle of the return
    counts: dict[RespoolId, int] = field(default_factory=dict)
    now: int = 0
    next_seq: int = 10_000
    resume_at: int = 0
    evicted: Counter[Key] = field(default_factory=Counter)
    last_eviction: int = 0
    rounds_with_evictions: int = 0

    @property
    def gone(self) -> list[HeldRun]:
        return [one for _, one in self.leaving]

    def cycle(self) -> Plan:
        stage, self.now = self.stage, self.now + 1
        self._return()
        usage, leaving = stage.usage([*stage.held, *self.gone]), stage.usage(self.gone)
        evictable = None
        if self.now % self.pace.round_every == 0:
            over = over_entitled(stage.tree, self.entitlement(), usage.without(leaving))
            self.counts = count_over(stage.tree, over, self.counts)
            due = {row for row in over if self.counts[stage.tree.ids[row]] >= self.pace.sustained}
            for row in due:
                del self.counts[stage.tree.ids[row]]
            evictable = Evictable(stage.held, leaving, due, self.pace.evicted_pods)
        plan = plan_cycle(
            Snapshot(
                stage.tree,
                stage.capacity,
                stage.slack_cpu,
                usage,
                *stage.demand(),
                stage.queues(),
                self.pace.admitted_pods,
                self.resume_at,
                leaving if self.leaving else None,
                evictable,
            )
        )
        self._apply(plan)
        return plan

    def entitlement(self) -> Entitlement:
        held, self.stage.held = self.stage.held, [*self.stage.held, *self.gone]
        try:
            return self.stage.entitlement()
        finally:
            self.stage.held = held

    def lose(self, part: float) -> None:
        """Remove a part of the capacity, and with it the last gangs until the rest fits; they wait again."""
        stage = self.stage
        stage.capacity = (stage.capacity * (1 - part)).astype(np.int64)
        stage.slack_cpu = int(stage.slack_cpu * (1 - part))
        while stage.held and not self.fits():
            lost = stage.held.pop()
            self.away.append((self.now + self.pace.back_after, lost))

    def fits(self) -> bool:
        usage = self.stage.usage([*self.stage.held, *self.gone])
        total = usage.non_slack.sum(axis=0) + usage.slack.sum(axis=0)
        total[0] = usage.non_slack[:, 0].sum()
        return bool((total <= self.stage.capacity).all())

    def _return(self) -> None:
        for end, one in [pair for pair in self.leaving if pair[0] <= self.now]:
            self.leaving.remove((end, one))
            if one.run.job_id not in self.ends_finally:
                self.away.append((max(self.now, end + self.pace.back_after - self.pace.leaves_after[0]), one))
        for back, one in [pair for pair in self.away if pair[0] <= self.now]:
            self.away.remove((back, one))
            self.next_seq += 1
            run = one.run if self.pace.keeps_place else replace(one.run, queue_seq=self.next_seq)
            self.stage.waiting.append((one.pool, run))

    def _apply(self, plan: Plan) -> None:
        stage, self.resume_at = self.stage, plan.admission.resume_at
        gone = {_key(one.run) for one in plan.evictions}
        if gone:
            self.last_eviction, self.rounds_with_evictions = self.now, self.rounds_with_evictions + 1
        for one in stage.held:
            if _key(one.run) not in gone:
                continue
            self.evicted[_key(one.run)] += 1
            if one.is_launched:
                delays = self.pace.leaves_after
                self.leaving.append((self.now + delays[self.evicted.total() % len(delays)], one))
            else:
                stage.waiting.append((one.pool, one.run))
        stage.held = [replace(one, is_launched=True) for one in stage.held if _key(one.run) not in gone]
        taken = {_key(one.run) for one in plan.admission.admitted}
        stage.held += [HeldRun(one.pool, one.run, False) for one in plan.admission.admitted]
        stage.waiting = [(row, run) for row, run in stage.waiting if _key(run) not in taken]


def _key(run: GangRun) -> Key:
    return run.job_id, run.start


POOLS: tuple[PoolSpec, ...] = (
    pool("/a", "6/6", "20/20", controller_limit="50"),
    pool("/b", "6/6", "14/14"),
    pool("/b/c", "2/2", "14/14"),
    pool("/b/d", "4/4", "14/14", "3"),
    pool("/e", "4/4", "20/20"),
)
TREES: tuple[tuple[PoolSpec, ...], ...] = (
    POOLS,
    (  # limits within limits, each less than the sum of the limits below
        pool("/a", "8/8", "12/9", slack_limit="50"),
        pool("/a/x", "4/4", "8/8", "2", slack_limit="50"),
        pool("/a/y", "4/2", "9/9", controller_limit="50"),
        pool("/b", "8/10", "20/20", "2", slack_limit="100"),
        pool("/b/z", "4/4", "10/7", slack_limit="100"),
        pool("/b/w", "0/2", "14/20", "3"),
        pool("/b/w/1", "0/1", "14/12"),
        pool("/b/w/2", "0/1", "9/20"),
    ),
    (  # licenses of all pools together, which no host has
        pool("/a", "10/10/0/0/2", "20/20/0/0/6"),
        pool("/b", "10/10/0/0/4", "20/20/0/0/4"),
    ),
    (  # all of it is guaranteed, some of it without an end
        pool("/a", "10/10", "20/20", type="STATIC", controller_limit="20"),
        pool("/b", "5/5", "5/5"),
        pool("/c", "5/5", "20/20", "0", slack_limit="100"),
    ),
)


GANG_COSTS_MAX = 60
"""Evictions that the largest gang of ``clusters`` may need."""


@st.composite
def paces(draw: st.DrawFn) -> Pace:
    sustained, every = draw(st.sampled_from([(2, 1), (1, 1), (1, 4), (3, 2)]))
    leaves = draw(st.sampled_from([(3,), (1, 4), (1, 2, 3, 4, 5, 6)]))
    admitted = draw(st.sampled_from([10_000, 10_000, 10_000, 3, 2]))
    evicted = draw(st.sampled_from([10_000, 10_000, GANG_COSTS_MAX]))
    return Pace(sustained, every, leaves, draw(st.sampled_from([1, 5, 9])), draw(st.booleans()), admitted, evicted)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Jobs of all pools, one after the other; at some cycle hosts may be lost."""
    tree = build_tree(draw(st.sampled_from(TREES)))
    leaves = [row for row in range(len(tree.ids)) if tree.is_leaf[row]]
    stage = Stage(tree, tree.compute_capacity(Resources(20_000, 20, 1000, 0)), draw(st.sampled_from([0, 4_000])))
    count = draw(st.integers(2, 10))
    loses_at, part = draw(st.integers(0, 3 * count)), draw(st.sampled_from([0.25, 0.5]))
    mortal = frozenset(JobId(str(job)) for job in range(count) if draw(st.integers(0, 7)) == 0)
    cluster = Cluster(stage, draw(paces()), mortal)
    for job in range(count):
        row, priority = draw(st.sampled_from(leaves)), draw(st.integers(0, 2))
        size = draw(st.sampled_from([1, 1, 1, 2, 3, 5]))
        need: tuple[int, ...] = (
            draw(st.sampled_from([0, 500, 1000, 1000, 2000])) * size,
            draw(st.integers(0, 2)) * size,
            0,
            0,
        )
        need += tuple(draw(st.integers(0, 2)) * size for _ in tree.licenses)
        preemptible, controller = draw(st.sampled_from([True, True, False])), draw(st.integers(0, 4)) == 0
        revocable = preemptible and draw(st.integers(0, 4)) == 0
        for gang in range(draw(st.integers(1, 12 if size == 1 else 3))):
            run = GangRun(
                JobId(str(job)), gang * size, 1, size, need, priority, job, preemptible, revocable, controller
            )
            stage.waiting.append((row, run))
        for _ in range(draw(st.integers(0, 4))):
            cluster.cycle()
        if job == loses_at:
            cluster.lose(part)
    return cluster
