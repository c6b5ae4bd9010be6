"""Invariants of every step, computed from the rows of storage and not from the memory under test."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from peloton.model.host_pool import Workload
from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState
from peloton.model.resources import RESOURCE_KINDS
from peloton.model.times import NS_PER_S
from peloton.scheduling.admission import Admission
from peloton.scheduling.backfill import BACKFILL_MAX_S
from peloton.scheduling.cycle import Plan, Snapshot
from peloton.scheduling.gangs import GangRun, QueueKind, Usage
from peloton.scheduling.invariants import above_bounds, grown, wrong_evictions
from peloton.scheduling.tree import Ints
from services.resmgr.accounts import Accounts
from services.resmgr.state import ResmgrState
from tests.simulation.records import COLUMNS, WORKLOADS, Job, Records

NON_SLACK, SLACK, NON_PREEMPTIBLE, CONTROLLER = (COLUMNS.index(name) for name in COLUMNS[2:])
UNLAUNCHED = (PodState.INITIALIZED, PodState.PENDING, PodState.READY)


class Broken(AssertionError):
    """Raised when an invariant does not hold."""


def accounts_of(records: Records, state: ResmgrState, workloads: Collection[Workload] = WORKLOADS) -> Ints:
    """Return ``[P,C,R]`` by the rows of the pool tree and COLUMNS, from the rows of pods; inner pools have 0."""
    ledgers = np.zeros((len(state.tree.ids), len(COLUMNS), len(RESOURCE_KINDS)), np.int64)
    for pool_id, by_workload in records.ledgers.items():
        for work in workloads:
            ledgers[state.tree.row[pool_id]] += by_workload[work]
    return ledgers


def parts_of(records: Records, state: ResmgrState) -> list[Ints]:
    """Return the same array for each compartment."""
    part_of = state.accounts.part_of
    return [
        accounts_of(records, state, [work for work in WORKLOADS if part_of[work] == part])
        for part in range(len(state.compartments))
    ]


def usage_of(records: Records, state: ResmgrState) -> Usage:
    parts = tuple(Usage(*_list_held(ledgers)) for ledgers in parts_of(records, state))
    return Usage(*_list_held(accounts_of(records, state)), parts=parts, part_of=state.accounts.part_of)


def _list_held(ledgers: Ints) -> Iterator[Ints]:
    yield from (ledgers[:, column] for column in (NON_SLACK, SLACK, NON_PREEMPTIBLE, CONTROLLER))


def check(faults: Iterable[str]) -> None:
    for fault in faults:
        raise Broken(fault)


def check_accounts(state: ResmgrState, records: Records) -> None:
    """Check that memory and rows agree on the demand and usage of each pool, also in each compartment: every admitted
    pod counts exactly once.
    """
    _check_accounts(state, state.accounts, accounts_of(records, state))
    for accounts, ledgers in zip(state.accounts.parts, parts_of(records, state), strict=True):
        _check_accounts(state, accounts, ledgers)


def _check_accounts(state: ResmgrState, accounts: Accounts, ledgers: Ints) -> None:
    for number, column in enumerate(COLUMNS):
        expected, actual = ledgers[:, number], getattr(accounts, column)
        if not np.array_equal(expected, actual):
            row = int(np.flatnonzero((expected != actual).any(axis=1))[0])
            numbers = f"{actual[row].tolist()} in memory, {expected[row].tolist()} in the rows"
            raise Broken(f"{column} of {state.tree.paths[row]}: {numbers}")


def check_cycle(now: Snapshot, plan: Plan, before: Usage, after: Usage) -> None:
    """Run the resource manager's own checks on the rows instead of its memory."""
    check(above_bounds(replace(now, usage=before), plan, after))
    check(wrong_evictions(now, plan))


def check_controllers(state: ResmgrState, before: Ints, after: Ints) -> None:
    """Check that controllers outside gangs stay within their limit; every controller of the simulation does."""
    limit = state.tree.controller_limit
    check(grown(state.tree, "the controller limit", before[:, CONTROLLER], after[:, CONTROLLER], limit))


OVERTAKEN_MAX = 20
"""Waiting runs of one queue that are compared with the runs admitted from it."""


Passed = dict[tuple[JobId, int], int]
"""Time at which another run of its queue was first admitted before a waiting run, by (job, first instance)."""


def check_order(state: ResmgrState, records: Records, admission: Admission, passed: Passed) -> None:
    """Check that in each queue, admitted runs stood before the first waiting run that could ever fit and is not in
    backoff. Runs of other compartments may be passed, and in all queues but the ordinary one every run for a bounded
    time.
    """
    parts_of = state.accounts.usage.parts_of
    _follow_the_rests(admission, passed)
    last: dict[tuple[int, int, tuple[int, ...]], tuple[int, int, int]] = {}
    for chosen in admission.admitted:
        key, order = (chosen.pool, chosen.run.queue, tuple(parts_of(chosen.run))), _place(records, chosen.run)
        last[key] = max(last.get(key, order), order)
    for (row, kind, parts), order in last.items():
        for run in state.waiting.pools.get(state.tree.ids[row], {}).get(QueueKind(kind), [])[:OVERTAKEN_MAX]:
            if (
                tuple(parts_of(run)) != parts
                or (run.job_id, run.start) in admission.passed_over
                or _is_in_backoff(records, run)
            ):
                continue
            if _place(records, run) < order:
                since_ns = passed.setdefault((run.job_id, run.start), records.clock_ns)
                waited_s = (records.clock_ns - since_ns) / NS_PER_S
                if run.queue is QueueKind.ORDINARY or waited_s >= BACKFILL_MAX_S:
                    who = f"{run.job_id} of {state.tree.paths[row]} was overtaken {waited_s:g} s after the first time"
                    raise Broken(f"{who}: {_place(records, run)}, {order}")
    for job_id, start in list(passed):
        if records.jobs[job_id].pods[start].state is not PodState.PENDING:
            del passed[job_id, start]


def _follow_the_rests(admission: Admission, passed: Passed) -> None:
    """Date the rest of a run that was admitted in part as its first gangs were dated."""
    for chosen in admission.admitted:
        run = chosen.run
        if chosen.is_part and (run.job_id, run.start) in passed:
            passed.setdefault((run.job_id, chosen.rest_start), passed[run.job_id, run.start])


def check_in_backoff(records: Records, admission: Admission) -> None:
    """Check, before the rows are written, that no run in backoff is admitted."""
    for chosen in admission.admitted:
        if _is_in_backoff(records, chosen.run):
            raise Broken(f"{chosen.run.job_id} was admitted from {chosen.run.start} on while it is in backoff")


def _is_in_backoff(records: Records, run: GangRun) -> bool:
    rows = records.jobs[run.job_id].pods
    pods = range(run.start, run.start + run.pod_count)
    return any(rows[i].held_until_ns > records.clock_ns for i in pods)


def _place(records: Records, run: GangRun) -> tuple[int, int, int]:
    """Return the position of a run by the rows: priority, then the order of arrival."""
    job = records.jobs[run.job_id]
    return (-job.record.sla.priority, job.pods[run.start].queue_seq, run.start)


def check_falls_only(old: Ints, new: Ints) -> None:
    """Check that no pool's allocation grows between two admissions."""
    held = slice(NON_SLACK, CONTROLLER + 1)
    if (new[:, held] > old[:, held]).any():
        raise Broken("a pool holds more than after the last admission")


def check_gang(job: Job) -> None:
    """Check that all members of a gang have been launched or none has; ending members do not count."""
    size = job.record.gang_size
    if size > 1:
        members = [pod for i, pod in job.pods.items() if i < size and pod.goal is not PodState.KILLED]
        in_backoff = sum(pod.run_id == 1 and pod.state in UNLAUNCHED for pod in members)
        if in_backoff not in (0, len(members)) and len(members) == size:
            raise Broken(f"{in_backoff} of {size} members of the gang of {job.record.name} were not launched")


def check_launch(job: Job, members: Sequence[PodId]) -> bool:
    """Check that all members of a placed gang were launched or none was; return which."""
    launched = sum(job.pods[pod_id.instance_id].state is PodState.LAUNCHED for pod_id in members)
    if launched not in (0, len(members)):
        raise Broken(f"{launched} of {len(members)} members of the gang of {job.record.name} were launched")
    return launched > 0


def check_gang_runs(job: Job, members: Sequence[PodId]) -> None:
    """Check that members launched together run, or have ended, after the time of a launch."""
    late = [pod_id.instance_id for pod_id in members if job.pods[pod_id.instance_id].state is PodState.LAUNCHED]
    if late:
        raise Broken(f"members {late} of the gang of {job.record.name} do not run when its launch is over")


def check_idle(state: ResmgrState) -> None:
    """Check that all accounts are exactly 0 when no pod runs or waits."""
    left = {column: getattr(state.accounts, column).sum() for column in COLUMNS}
    if any(left.values()) or state.jobs or state.waiting.pools:
        raise Broken(f"nothing runs, and there is left: {left}, {len(state.jobs)} jobs, {state.waiting.pools}")
