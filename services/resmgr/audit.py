"""Invariants of the resource manager's memory, at any time and around each cycle.

A setting has them checked after each cycle: faults are logged and counted, and the loop continues.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import numpy as np

from peloton.model.ids import JobId
from peloton.scheduling.cycle import Plan, Snapshot
from peloton.scheduling.gangs import Footprint
from peloton.scheduling.invariants import above_bounds, wrong_evictions
from services.resmgr.accounts import COLUMNS
from services.resmgr.ledger import HOLDING, IS_ALLOCATED, LEAVING, PENDING
from services.resmgr.state import ResmgrState

log = logging.getLogger(__name__)

BROKEN = "invariant broken"
"""The prefix of the log line of each fault."""
FAULTS_MAX = 20
"""Limit of the faults that are logged per cycle."""


def audit(before: Snapshot, plan: Plan, state: ResmgrState) -> int:
    """Log all faults, and return how many. ``state``: after the plan's admissions, before its evictions."""
    try:
        found = list(islice(around_cycle(before, plan, state), FAULTS_MAX))
    except Exception as error:  # the check itself may fail on a broken state
        found = [f"the check failed: {error!r}"]
    for fault in found:
        log.error("%s: %s", BROKEN, fault)
    return len(found)


def around_cycle(before: Snapshot, plan: Plan, state: ResmgrState) -> Iterator[str]:
    yield from above_bounds(before, plan, state.accounts.usage)
    yield from wrong_evictions(before, plan)
    for chosen in plan.admission.admitted:
        run, pods = chosen.run, chosen.gang_count * chosen.run.gang_size
        held = state.jobs[run.job_id].states[run.start : run.start + pods] == HOLDING
        if not held.all():
            yield f"of {pods} pods of job {run.job_id} admitted from {run.start} on, {int(held.sum())} hold resources"
    yield from faults(state)


def faults(state: ResmgrState) -> Iterator[str]:
    """Yield faults of the memory: queues out of order, and pods not counted exactly once by their job and their pool.

    It takes time with the number of pods.
    """
    queued: dict[JobId, int] = {}
    for pool_id, queues in state.waiting.pools.items():
        path = state.path_of(pool_id)
        for kind, queue in queues.items():
            if queue != sorted(queue, key=lambda run: run.order):
                yield f"the {kind.name} queue of {path} is out of order"
            for run in queue:
                ledger = state.jobs[run.job_id]
                waits = int((ledger.states[run.start : run.start + run.pod_count] == PENDING).sum())
                if waits != run.pod_count:
                    yield f"{run.pod_count} pods of {run.job_id} from {run.start} on are queued, {waits} are PENDING"
                if (run.queue, ledger.pool_id) != (kind, pool_id):
                    yield f"{run.job_id} is in the {kind.name} queue of {path}, which is not its queue"
                queued[run.job_id] = queued.get(run.job_id, 0) + run.pod_count
    for job_id, ledger in state.jobs.items():
        pending, held = int((ledger.states == PENDING).sum()), int(IS_ALLOCATED[ledger.states].sum())
        counts = (ledger.pending_count, queued.get(job_id, 0), ledger.allocated_count)
        if counts != (pending, pending, held):
            yield f"job {job_id} counts {counts} as pending, queued and allocated, its pods are {pending} and {held}"
        counted = Counter[Footprint]()
        for count, footprint in ledger.footprints.tally(np.flatnonzero(IS_ALLOCATED[ledger.states])):
            counted[footprint] += count
        if counted != ledger.held:
            yield f"job {job_id} holds {dict(ledger.held)}, its pods add up to {dict(counted)}"
        if ledger.is_over:
            yield f"job {job_id} neither waits nor holds resources, and is still in memory"
        if (job_id in state.evicted) != bool((ledger.states == LEAVING).any()):
            yield f"job {job_id} counts as {'' if job_id in state.evicted else 'not '}evicted, its pods say otherwise"
    kept = state.accounts
    fresh = kept.of_all(state.jobs.values(), kept.part_of)
    for column in COLUMNS:
        yield from _compare(state, column, getattr(fresh, column), getattr(kept, column))
        for load, *parts in zip(state.compartments, fresh.parts, kept.parts, strict=True):
            what = f"{column} in {load.host_pools}"
            yield from _compare(state, what, *(getattr(part, column) for part in parts))


def _compare(state: ResmgrState, column: str, counted: np.ndarray, kept: np.ndarray) -> Iterator[str]:
    for row, kind in np.argwhere(counted != kept).tolist():
        numbers = f"{kept[row, kind]} is kept, its pods add up to {counted[row, kind]}"
        yield f"{column} of {state.tree.kinds[kind]} of {state.tree.paths[row]}: {numbers}"
