"""Rounds of preemption: how long pools have been over their entitlement, and which pods may be evicted now.

Each round asks storage which pods are on hosts and which of them end anyway: memory does not follow that. Evicted pods
that have not left yet are in memory, and are rebuilt like the rest of it. The counts of rounds are not: a new leader
counts from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.admission import EvictionOrder, HeldRange
from peloton.model.ids import JobId, RespoolId
from peloton.scheduling.admission import Admission
from peloton.scheduling.cycle import Evictable
from peloton.scheduling.eviction import Eviction, HeldRun
from peloton.scheduling.preemption import count_over, over_entitled
from services.resmgr.ledger import HOLDING, IS_ALLOCATED, JobLedger
from services.resmgr.state import ResmgrState


class PreemptionRounds:
    def __init__(self, period_s: float, sustained_count: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._period_s = period_s
        self._sustained_count = sustained_count
        self._clock_s = clock_s
        self._next_s = clock_s() + period_s
        self._counts: dict[RespoolId, int] = {}

    def is_time(self) -> bool:
        return self._clock_s() >= self._next_s

    def begin(self, state: ResmgrState) -> frozenset[int]:
        """Count this round; return the rows of pools that have been over for long enough, and start their counts
        again."""
        self._next_s = self._clock_s() + self._period_s
        if state.entitlement is None:
            return frozenset()
        left = state.accounts.usage.without(state.leaving().usage)
        rows = over_entitled(state.tree, state.entitlement, left)
        self._counts = count_over(state.tree, rows, self._counts)
        due = {row for row in rows if self._counts[state.tree.ids[row]] >= self._sustained_count}
        for row in due:
            del self._counts[state.tree.ids[row]]
        return frozenset(due)


def jobs_to_evict_from(state: ResmgrState, due: frozenset[int], notes: Admission | None = None) -> list[JobId]:
    """Return the jobs that may lose pods, by the notes of the last cycle.

    They are jobs of pools that are due, and jobs of a lower priority than a gang that waits in their own pool.
    """
    if not state.waiting.pools:
        return []
    waits: dict[RespoolId, int] = {}
    notes = notes or state.admission
    refused = [(run.job_id, reason) for run, reason in notes.heads.values()]
    refused += [(job_id, reason) for (job_id, _), reason in notes.passed.items()]
    for job_id, reason in refused:
        job = state.jobs.get(job_id)
        if job is not None and reason.pool_path == state.path_of(job.pool_id):  # else other pools must give back
            waits[job.pool_id] = max(job.priority, waits.get(job.pool_id, job.priority))
    due_pools = {state.tree.ids[row] for row in due}
    return [
        job.job_id
        for job in state.jobs.values()
        if job.allocated_count
        and (job.pool_id in due_pools or (job.pool_id in waits and waits[job.pool_id] > job.priority))
    ]


def evictable(
    state: ResmgrState, held: Mapping[JobId, Sequence[HeldRange]], due: frozenset[int], pod_limit: int
) -> Evictable:
    """Return the held pods of these jobs, by storage, in the form that ``preempt`` takes."""
    runs: list[HeldRun] = []
    gone: dict[JobId, np.ndarray] = {}
    for job_id, ranges in held.items():
        ledger = state.jobs.get(job_id)
        row = None if ledger is None else state.tree.row.get(ledger.pool_id)
        if ledger is None or row is None:
            continue
        stays = [span for span in ranges if not span.is_leaving]
        gone[job_id] = _find_leaving(ledger, stays)
        runs += [HeldRun(row, run, is_launched) for run, is_launched in ledger.list_held_runs(stays)]
    return Evictable(runs, state.leaving(gone).usage, due, pod_limit)


def _find_leaving(ledger: JobLedger, stays: Sequence[HeldRange]) -> np.ndarray:
    """Return instances that memory counts as allocated and that do not stay."""
    goes = IS_ALLOCATED[ledger.states]
    for span in stays:
        mine = ledger.states[span.start : span.start + span.count]
        assert (mine == HOLDING).all(), f"pods of {ledger.job_id} in {span.start}+{span.count} hold no resources here"
        goes[span.start : span.start + span.count] = False
    return np.flatnonzero(goes)


def order(eviction: Eviction) -> EvictionOrder:
    run = eviction.run
    return EvictionOrder(run.job_id, run.start, run.pod_count, run.gang_size > 1, eviction.grounds)


def summary(evictions: Sequence[Eviction]) -> str:
    pods = sum(one.run.pod_count for one in evictions)
    return f"{pods} pods evicted in {len(evictions)} runs; the first: {eviction_text(evictions[0].grounds)}"
