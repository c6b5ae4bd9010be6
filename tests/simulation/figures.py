"""Figures of a day as a table: utilisation, waiting times, fairness."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from peloton.model.ids import RespoolId
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.gangs import QueueKind
from peloton.scheduling.tree import CPU
from services.resmgr.state import ResmgrState
from tests.simulation.description import JobPlan
from tests.simulation.hosts import SimulatedHosts

if TYPE_CHECKING:
    from tests.simulation.day import Day

PERCENTILES = (50, 90, 99)


class Figures:
    def __init__(self, priorities: Iterable[int]) -> None:
        self.waits_of_pool: dict[RespoolId, list[int]] = {}
        self.waits_of_priority: dict[int, list[int]] = {priority: [] for priority in sorted(set(priorities))}
        self.waits_of_kind: dict[str, list[int]] = {}
        self.allocated: list[list[float]] = []  # per sample and kind, as a part of the capacity
        self.used: list[list[float]] = []  # the same, of pods on hosts
        self.fairness: list[float] = []
        self.queued: list[int] = []

    def launched(self, plan: JobPlan, wait_s: int) -> None:
        """Record a launch, so long after the pod was queued."""
        self.waits_of_pool.setdefault(plan.record.respool_id, []).append(wait_s)
        self.waits_of_priority[plan.record.sla.priority].append(wait_s)
        self.waits_of_kind.setdefault(plan.kind, []).append(wait_s)

    def sample(self, state: ResmgrState, hosts: SimulatedHosts) -> None:
        assert state.capacity is not None
        capacity = np.maximum(np.array(tuple(state.capacity)), 1)
        held = state.accounts.non_slack + state.accounts.slack
        held[:, CPU] = state.accounts.non_slack[:, CPU]
        self.allocated.append((held.sum(axis=0) / capacity).tolist())
        self.used.append((hosts.used() / capacity).tolist())
        self.queued.append(sum(job.pending_count for job in state.jobs.values()))
        index = jain_index(state)
        if index is not None:
            self.fairness.append(index)


def jain_index(state: ResmgrState) -> float | None:
    """Return Jain's index of cpu allocation by entitlement, over pools with waiting ordinary pods; None for fewer than
    two.
    """
    if state.entitlement is None:
        return None
    rows = [
        state.tree.row[pool]
        for pool, queues in state.waiting.pools.items()
        if queues.get(QueueKind.ORDINARY) and state.entitlement.non_slack[state.tree.row[pool], CPU] > 0
    ]
    if len(rows) < 2:
        return None
    part = state.accounts.non_slack[rows, CPU] / state.entitlement.non_slack[rows, CPU]
    squares = float((part**2).sum())
    return float(part.sum()) ** 2 / (len(rows) * squares) if squares else None


# -- the table ------------------------------------------------------------------------------------------------------


def report(day: Day) -> str:
    return "\n".join(_lines(day))


def _lines(day: Day) -> Iterator[str]:
    counts, figures, size = day.counts, day.figures, day.size
    yield f"seed {day.seed}: {size.hosts} hosts, {size.pools} pools, {size.hours:g} hours, load {size.load:g}"
    yield f"  {counts.jobs} jobs with {counts.pods} pods in {counts.steps} steps, {day.resmgr.cycles} cycles"
    yield f"  {counts.took_s:.1f} s of processor time; the last job ended at {counts.ended_s / 3600:.1f} h"
    ended = ", ".join(f"{state} {count}" for state, count in sorted(counts.ended.items()))
    yield f"  jobs ended: {ended}"
    yield f"  pods: {counts.admitted_pods} admitted, {counts.launched} launched, {counts.rejected} refused by hosts, "
    yield f"    {counts.failed_pods} failed, {counts.lost_pods} lost with {counts.lost_hosts} hosts, "
    yield f"    {counts.evicted_pods} evicted in {day.resmgr.evicting_rounds} rounds, at most "
    yield f"    {day.resmgr.evicted_most} in one; {counts.kills} kills by users"
    yield f"  pools changed {counts.pool_changes} times, refused {counts.refused_changes}; "
    yield f"    restarts of the resource manager: {day.resmgr.restarts}"
    yield ""
    yield f"  {'kind':18}{'allocated':>10}{'peak':>8}{'on hosts':>10}{'peak':>8}   (part of the capacity)"
    nothing = [[0.0] * len(RESOURCE_KINDS)]  # the day was ended before its first sample
    allocated, used = np.array(figures.allocated or nothing), np.array(figures.used or nothing)
    for number, kind in enumerate(RESOURCE_KINDS):
        a, u = allocated[:, number], used[:, number]
        yield f"  {kind:18}{a.mean():>10.1%}{a.max():>8.1%}{u.mean():>10.1%}{u.max():>8.1%}"
    yield f"  pods in queues: {np.mean(figures.queued or [0]):.0f}, at most {max(figures.queued, default=0)}"
    if figures.fairness:
        jain = np.array(figures.fairness)
        yield f"  fairness (Jain, cpu): mean {jain.mean():.3f}, tenth percentile {np.percentile(jain, 10):.3f}, "
        yield f"    least {jain.min():.3f}, in {len(jain)} samples with demand in two pools or more"
    yield ""
    yield f"  {'wait from queue to launch, s':28}{'pods':>9}" + "".join(f"{f'p{p}':>8}" for p in PERCENTILES)
    for kind, waits in sorted(figures.waits_of_kind.items()):
        yield _waits(kind, waits)
    for priority, waits in figures.waits_of_priority.items():
        yield _waits(f"priority {priority}", waits)
    tree = day.resmgr.state.tree
    for pool_id, waits in sorted(figures.waits_of_pool.items(), key=lambda item: tree.paths[tree.row[item[0]]]):
        yield _waits(tree.paths[tree.row[pool_id]], waits)


def _waits(name: str, waits: Sequence[int]) -> str:
    numbers = np.percentile(waits, PERCENTILES) if waits else [0] * len(PERCENTILES)
    return f"  {name:28}{len(waits):>9}" + "".join(f"{number:>8.0f}" for number in numbers)
