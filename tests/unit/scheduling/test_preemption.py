"""Preemption: the evicted gangs and the gangs they are evicted for, as drawings, and properties against a slow check.

REWRITE=1 in the environment redraws the expected tables; read the difference before you keep it.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.model.ids import JobId
from peloton.scheduling.eviction import POLICIES, Eviction, HeldRun, PriorityFifo
from peloton.scheduling.gangs import GangRun
from peloton.scheduling.preemption import count_over, over_entitled
from peloton.scheduling.tree import build_tree
from tests.nightly import examples
from tests.unit.scheduling.eviction_table import EvictionScenario, Stage, single_gangs
from tests.unit.scheduling.pool_table import pool

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("eviction_*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    """Expected gangs of the drawing are evicted."""
    scenario = EvictionScenario.read(path)

    drawn = scenario.draw()

    if os.environ.get("REWRITE"):
        path.write_text(scenario.scenario.text(drawn))
    assert EvictionScenario.read(path).scenario.expected == drawn


def test_there_are_scenarios() -> None:
    """The folder has at least 11 scenarios."""
    assert len(SCENARIOS) >= 11


def test_rounds_are_counted_in_a_row() -> None:
    """A pool that is within its entitlement once restarts its count."""
    tree = build_tree([pool("/a", "1", "1"), pool("/b", "1", "1")])
    a, b = tree.ids[1], tree.ids[2]

    assert count_over(tree, [1], {a: 2, b: 4}) == {a: 3}


class Eldest(PriorityFifo):
    """The first gangs in the queue leave first, whatever the priorities, and none leaves for a gang of its own pool."""

    def order(self, held: HeldRun) -> tuple[int, ...]:
        return (held.run.queue_seq,)

    def may_evict(self, waiting: GangRun, held: GangRun) -> bool:
        return False


@pytest.mark.parametrize(("policy", "evicted"), [("PriorityFIFO", {"young", "low"}), ("Eldest", {"old"})])
def test_a_pool_names_its_policy(policy: str, evicted: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy plugs in by its name, for the pools that have it and no others."""
    monkeypatch.setitem(POLICIES, "Eldest", Eldest())
    lends = replace(pool("/a", "4", "8"), policy=policy)
    inside = replace(pool("/c", "4", "4"), policy=policy)
    stage = Stage(build_tree([lends, pool("/b", "4", "8"), inside]), np.array([12_000, 0, 0, 0], np.int64))
    stage.held = [
        HeldRun(1, GangRun(JobId("old"), 0, 4, 1, (1000, 0, 0, 0), 0, 1), is_launched=True),
        HeldRun(1, GangRun(JobId("young"), 0, 4, 1, (1000, 0, 0, 0), 0, 2), is_launched=True),
        HeldRun(3, GangRun(JobId("low"), 0, 4, 1, (1000, 0, 0, 0), 0, 3), is_launched=True),
    ]
    stage.waiting = [
        (2, GangRun(JobId("back"), 0, 4, 1, (1000, 0, 0, 0), 0, 4)),
        (3, GangRun(JobId("urgent"), 0, 1, 1, (1000, 0, 0, 0), 9, 5)),
    ]

    assert {one.run.job_id for one in stage.evict()} == evicted


# -- properties -----------------------------------------------------------------------------------------------------

POOLS = (
    pool("/a", "6/6", "20/20", controller_limit="50"),
    pool("/b", "6/6", "14/14"),
    pool("/b/c", "2/2", "14/14"),
    pool("/b/d", "4/4", "14/14", "3"),
    pool("/e", "4/4", "20/20"),
)
TREE = build_tree(POOLS)
LEAVES = [row for row in range(len(TREE.ids)) if TREE.is_leaf[row]]


@st.composite
def runs(draw: st.DrawFn, job: str) -> tuple[int, GangRun]:
    size = draw(st.sampled_from([1, 1, 1, 2, 4]))
    gangs = draw(st.integers(1, 5)) if size == 1 else 1
    cpu, memory = draw(st.sampled_from([0, 500, 1000, 1000, 2000])), draw(st.integers(0, 2))
    need = (cpu * size, memory * size, 0, 0)
    preemptible, controller = draw(st.sampled_from([True, True, True, False])), draw(st.integers(0, 5)) == 0
    revocable = preemptible and draw(st.integers(0, 5)) == 0
    run = GangRun(
        JobId(job), 0, gangs, size, need, draw(st.integers(0, 2)), int(job), preemptible, revocable, controller
    )
    return draw(st.sampled_from(LEAVES)), run


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    """Held gangs fit the cluster (not their entitlements: demand has changed since); others wait."""
    stage = Stage(TREE, np.array([20_000, 20, 1000, 0], np.int64), 4_000)
    for job in range(draw(st.integers(1, 7))):
        row, run = draw(runs(str(job)))
        held = HeldRun(row, run, draw(st.booleans()))
        usage = stage.usage([*stage.held, held])
        total = stage.tree.roll_up(usage.non_slack + usage.slack)
        if (total <= np.minimum(stage.tree.limit, stage.capacity)).all():
            stage.held.append(held)
    for job in range(10, 10 + draw(st.integers(0, 6))):
        stage.waiting.append(draw(runs(str(job))))
    return stage


@given(stages())
@settings(max_examples=examples(300), deadline=None)
def test_never_who_may_not_be(stage: Stage) -> None:
    """Evicted gangs are held and preemptible: of each run the last ones, each once and whole."""
    held = {one.run.job_id: one for one in stage.held}
    ends = {job: one.run.start + one.run.pod_count for job, one in held.items()}

    for one in stage.evict():
        mine = held[one.run.job_id]
        assert (one.pool, one.run.gang_size, True) == (mine.pool, mine.run.gang_size, mine.run.preemptible)
        assert one.run.start + one.run.pod_count == ends[one.run.job_id]
        assert one.run.start >= mine.run.start
        ends[one.run.job_id] = one.run.start


@given(stages())
@settings(max_examples=examples(300), deadline=None)
def test_only_above_entitlement_or_below_a_priority(stage: Stage) -> None:
    """A pool gives resources to another pool only while it is above its entitlement, until its last victim; inside a
    pool only a lower priority is evicted.
    """
    entitlement, over = stage.entitlement(), stage.over()
    evictions = single_gangs(stage.evict())

    for one in evictions:
        if not one.grounds.is_inside:
            assert one.pool in over
        elif not one.run.revocable:
            assert one.run.priority < one.grounds.priority
    for row, revocable in {(one.pool, one.run.revocable) for one in evictions}:
        mine = [one for one in evictions if (one.pool, one.run.revocable) == (row, revocable)]
        if not any(one.grounds.is_inside for one in mine):
            column = "slack" if revocable else "non_slack"
            gone = sum((np.array(one.run.need) for one in mine[:-1]), np.zeros(4, np.int64))
            assert (getattr(stage.usage(), column)[row] - gone > getattr(entitlement, column)[row]).any()


@given(stages())
@settings(max_examples=examples(400), deadline=None)
def test_no_gang_is_evicted_needlessly(stage: Stage) -> None:
    """Each eviction lets waiting gangs be admitted: with any of the evicted gangs back, fewer would be."""
    evictions = single_gangs(stage.evict())
    if not evictions:
        return

    def count_served(gone: list[Eviction]) -> Counter[str]:
        found: Counter[str] = Counter()
        for chosen in stage.admit_without(gone).admitted:
            found[chosen.run.job_id] += chosen.gang_count
        return found

    everything = count_served(evictions)
    for one in evictions:
        fewer = count_served([other for other in evictions if other is not one])
        assert fewer != everything, f"{one.run.job_id} left for nothing"


@given(stages(), st.integers(1, 9))
@settings(max_examples=examples(100), deadline=None)
def test_bounded(stage: Stage, pod_limit: int) -> None:
    """A round evicts at most ``pod_limit`` pods."""
    assert sum(one.run.pod_count for one in stage.evict(pod_limit=pod_limit)) <= pod_limit


@pytest.mark.parametrize(("size", "gangs", "evicted"), [(1, 9, 4), (3, 2, 3), (5, 1, 0)])
def test_the_bound_cuts_between_gangs(size: int, gangs: int, evicted: int) -> None:
    """Four evictions serve four single pods, or one gang of three; a gang of five waits, and evicts none."""
    tree = build_tree([pool("/a", "6", "12"), pool("/b", "6", "12")])
    stage = Stage(tree, np.array([12_000, 0, 0, 0], np.int64))
    stage.held = [HeldRun(1, GangRun(JobId("lent"), 0, 12, 1, (1000, 0, 0, 0), 0, 1), is_launched=True)]
    stage.waiting = [(2, GangRun(JobId("back"), 0, gangs, size, (1000 * size, 0, 0, 0), 0, 2))]

    assert sum(one.run.pod_count for one in stage.evict(pod_limit=4)) == evicted


@given(stages())
@settings(max_examples=examples(100), deadline=None)
def test_no_pool_over_no_gang_lower_no_gang_out(stage: Stage) -> None:
    """A gang is evicted only where a pool is due or a priority is lower."""
    top = max((run.priority for _, run in stage.waiting), default=0)
    stage.held = [one for one in stage.held if one.run.priority >= top]

    assert stage.evict(due=[]) == []
    assert over_entitled(stage.tree, stage.entitlement(), stage.usage([])) == []
