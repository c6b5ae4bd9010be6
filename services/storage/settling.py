"""Settle: bring what ended to its next run or to rest, roll up the job, and count what is left to do.

One look (a read of one moment: a count over the job's pods, and the few that need a hand), one decision in
``peloton.lifecycle``, one write. The write is refused when the job's row changed since the look, and the look repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, POD_STATES
from peloton.errors import NotFound
from peloton.lifecycle import deadline
from peloton.lifecycle.gang import failed_for_good
from peloton.lifecycle.job import admit_count, has_started, roll_up
from peloton.lifecycle.retry import THROTTLED_MESSAGE, NextRun
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobProgress, JobRecord, JobState
from peloton.model.pod import ON_HOST, TERMINAL, PodState, Termination, TerminationReason
from services.storage.codec import counts_to_text, job_record
from services.storage.engine import lock_job
from services.storage.gangs import GangWork, apply_gang_work, find_gang_work
from services.storage.goals import STOP_MESSAGE, kill_pods
from services.storage.store import INITIALIZED, KILLED, TERMINAL_NUMBERS, Store, among, change_pods, new_run
from services.storage.store import killed_before_launch as killed_values
from services.storage.tables import JOB, POD

SETTLE_PODS_MAX = 1_000
"""Pods that one settle changes."""
LOOKS_MAX = 5
"""Looks before a settle gives up for now."""
_NS = 1_000_000_000
_RUNNING = next(n for n, s in POD_STATES.items() if s is PodState.RUNNING)
_SECOND_DUE, _SECOND_LATER = 1, 2


class Kind(NamedTuple):
    """Pods alike in all that settling looks at."""

    state: PodState
    killed: bool  # its goal is KILLED: it is to end
    newer: bool  # a newer run is wanted
    again: int  # 0: no further run; 1: due; 2: later
    in_gang: bool  # of several


@dataclass(slots=True)
class Look:
    """One moment of a job that has not ended."""

    job: JobRecord
    kinds: Counter[Kind]
    oldest_start_ns: int  # of RUNNING pods that are not to end; 0 = none
    first_start_ns: int
    last_end_ns: int
    next_due_ns: int  # of later runs; 0 = none
    run_seconds: float
    controller: PodState | None
    due: list[int]
    throttled: list[int]
    unqueued_kills: list[int]
    unmarked_kills: list[int]  # of a job that is to be KILLED, missed by an interrupted call
    overdue: list[int]
    gang: GangWork | None = None
    first_run: int = 0  # of instance 0
    more: bool = False

    @property
    def has_work(self) -> bool:
        found = (self.due, self.throttled, self.unqueued_kills, self.unmarked_kills, self.overdue, self.gang)
        return any(found)


class Settling(Store):
    def settle(self, job_id: JobId, now_ns: int) -> JobProgress:
        """At most SETTLE_PODS_MAX pods are changed; ``settle_again`` when that was not all. Raises NotFound.

        ``deadline_s`` counts to the next moment at which settling changes something by itself: the end of a pod's
        longest running time, or of a service's wait before its next run. An ended job is not touched.
        """
        for attempt in range(1, LOOKS_MAX + 1):
            seen = self.db.read(partial(look, job_id=job_id, now_ns=now_ns))
            if isinstance(seen, JobProgress):
                return seen
            if not _must_write(seen, now_ns):
                return progress(seen, seen.job, now_ns)
            settled = self.db.write(partial(apply, seen=seen, now_ns=now_ns))
            if settled is not None:
                return progress(seen, settled, now_ns)
            if attempt == LOOKS_MAX:
                return replace(progress(seen, seen.job, now_ns), settle_again=True)
        raise AssertionError("unreachable")


# -- looking -------------------------------------------------------------------------------------------------------


def look(conn: sa.Connection, job_id: str, now_ns: int) -> Look | JobProgress:
    row = conn.execute(sa.select(JOB).where(JOB.c.job_id == job_id)).one_or_none()
    if row is None:
        raise NotFound(f"job {job_id} not found")
    job = job_record(row)
    if job.state in JOB_TERMINAL:
        return JobProgress(job.state, {state.value: count for state, count in job.pod_counts.items()})
    seen = _count(conn, job, now_ns)
    if job.has_controller:
        seen.controller = _controller(conn, job_id)
    _find_work(conn, seen, now_ns)
    return seen


def _count(conn: sa.Connection, job: JobRecord, now_ns: int) -> Look:
    """The one pass over all pods: kinds are counted by a number that packs what they are made of."""
    again = sa.case(
        (POD.c.next_run == int(NextRun.NONE), 0), (POD.c.due_ns <= now_ns, _SECOND_DUE), else_=_SECOND_LATER
    )
    packed = (
        POD.c.state * 64
        + _flag(POD.c.goal == KILLED) * 32
        + _flag(POD.c.desired_run_id > POD.c.run_id) * 16
        + again * 4
        + _flag(POD.c.instance_id < (job.gang_size if job.gang_size > 1 else 0))
    )
    first_run = sa.case((POD.c.instance_id == 0, POD.c.run_id), else_=0).label("first_run")
    columns = (POD.c.started_ns, POD.c.completed_ns, POD.c.due_ns, POD.c.run_seconds)
    pods = sa.select(packed.label("kind"), first_run, *columns).where(POD.c.job_id == job.job_id).subquery()
    started = sa.func.nullif(pods.c.started_ns, 0)
    query = sa.select(
        pods.c.kind,
        sa.func.count(),
        sa.func.min(started),
        sa.func.max(pods.c.completed_ns),
        sa.func.min(pods.c.due_ns),
        sa.func.sum(pods.c.run_seconds),
        sa.func.max(pods.c.first_run),
    ).group_by(pods.c.kind)
    seen = Look(job, Counter(), 0, 0, 0, 0, 0.0, None, [], [], [], [], [])
    for number, count, first_start, last_end, first_due, seconds, run in conn.execute(query):
        kind = _unpacked(number)
        seen.first_run = max(seen.first_run, run)
        seen.kinds[kind] += count
        seen.run_seconds += seconds
        seen.last_end_ns = max(seen.last_end_ns, last_end)
        seen.first_start_ns = _earlier(seen.first_start_ns, first_start or 0)
        if kind.state is PodState.RUNNING and not kind.killed:
            seen.oldest_start_ns = _earlier(seen.oldest_start_ns, first_start or 0)
        if kind.again == _SECOND_LATER:
            seen.next_due_ns = _earlier(seen.next_due_ns, first_due)
    return seen


def _flag(condition: sa.ColumnElement[bool]) -> sa.Case[int]:
    return sa.case((condition, 1), else_=0)


def _unpacked(number: int) -> Kind:
    return Kind(POD_STATES[number // 64], bool(number & 32), bool(number & 16), number // 4 % 4, bool(number & 1))


def _earlier(a_ns: int, b_ns: int) -> int:
    return min(a_ns, b_ns) if a_ns and b_ns else a_ns or b_ns


def _controller(conn: sa.Connection, job_id: str) -> PodState | None:
    query = sa.select(POD.c.state).where(POD.c.job_id == job_id, POD.c.instance_id == 0)
    number = conn.execute(query).scalar()
    return None if number is None else POD_STATES[number]


def _find_work(conn: sa.Connection, seen: Look, now_ns: int) -> None:
    """Instances that this settle changes. Queries only for what the count says is there."""
    job, room = seen.job, SETTLE_PODS_MAX
    ends = POD.c.goal == KILLED
    cutoff = deadline.cutoff_ns(job, now_ns)
    overdue = cutoff is not None and 0 < seen.oldest_start_ns < cutoff
    later = sa.and_(POD.c.next_run != 0, POD.c.due_ns > now_ns, POD.c.message != THROTTLED_MESSAGE)
    alive = POD.c.state.not_in(TERMINAL_NUMBERS)
    tasks: list[tuple[bool, list[int], sa.ColumnElement[bool]]] = [
        (_any(seen, lambda k: k.again == _SECOND_DUE), seen.due, sa.and_(POD.c.next_run != 0, POD.c.due_ns <= now_ns)),
        (
            _any(seen, lambda k: k.state is PodState.INITIALIZED and k.killed),
            seen.unqueued_kills,
            sa.and_(POD.c.state == INITIALIZED, ends),
        ),
        (
            job.goal is JobState.KILLED and _any(seen, lambda k: k.state not in TERMINAL and not k.killed),
            seen.unmarked_kills,
            sa.and_(alive, ~ends),
        ),
        (overdue, seen.overdue, sa.and_(POD.c.state == _RUNNING, ~ends, POD.c.started_ns < (cutoff or 0))),
        (_any(seen, lambda k: k.again == _SECOND_LATER), seen.throttled, later),
    ]
    for needed, found, condition in tasks:
        if not needed:
            continue
        query = sa.select(POD.c.instance_id).where(POD.c.job_id == job.job_id, condition)
        found += conn.execute(query.order_by(POD.c.instance_id).limit(room + 1)).scalars()
        if len(found) > room:
            found.pop()
            seen.more = True
        room -= len(found)
    if overdue and job.gang_size > 1:
        seen.more = True  # the others of a gang end with those that are overdue, in the next settle
    seen.gang = find_gang_work(conn, job, max(room, 1))
    if seen.gang is not None:
        seen.more |= seen.gang.more
        seen.due = [instance for instance in seen.due if instance not in set(seen.gang.ending)]


def _any(seen: Look, holds: Any) -> bool:
    return any(holds(kind) for kind in seen.kinds)


# -- writing -------------------------------------------------------------------------------------------------------


def _must_write(seen: Look, now_ns: int) -> bool:
    return seen.has_work or _rolled_up(seen, now_ns) != seen.job


def apply(conn: sa.Connection, seen: Look, now_ns: int) -> JobRecord | None:
    """Write what the look called for, and the job; None when the job changed since. Corrects ``seen.kinds``."""
    row = lock_job(conn, seen.job.job_id)
    if row is None or row.revision != seen.job.revision:
        return None
    if seen.gang is not None:
        apply_gang_work(conn, seen.job.job_id, seen.gang, now_ns)
    for ids, values in _changes(seen, now_ns):
        scope = among(conn, seen.job.job_id, ids)
        change_pods(conn, scope, sa.true(), values, now_ns)
    if seen.unmarked_kills:
        kill_pods(conn, among(conn, seen.job.job_id, seen.unmarked_kills), POD.c.goal != KILLED, now_ns, STOP_MESSAGE)
    if seen.overdue:
        why = Termination(TerminationReason.DEADLINE_TIMEOUT_EXCEEDED)
        scope = among(conn, seen.job.job_id, seen.overdue)
        kill_pods(conn, scope, POD.c.state == _RUNNING, now_ns, deadline.DEADLINE_REASON, why, deadline.DEADLINE_REASON)
    if seen.has_work:
        _recount(conn, seen, now_ns)
    job = _rolled_up(seen, now_ns)
    if job == seen.job:
        return job
    job = replace(job, revision=job.revision + 1, updated_ns=now_ns)
    _write_job(conn, job)
    return job


def _changes(seen: Look, now_ns: int) -> Iterator[tuple[list[int], dict[str, Any]]]:
    if seen.due:
        message = sa.case({int(n): n.message for n in NextRun}, value=POD.c.next_run, else_="")
        # A run that failed loses its place in the queue; one that was sent away keeps it.
        place = sa.case((POD.c.next_run == int(NextRun.RETRY), 0), else_=POD.c.queue_seq)
        yield seen.due, {**new_run(message), "queue_seq": place}
    if seen.unqueued_kills:
        yield seen.unqueued_kills, killed_values(now_ns)
    if seen.throttled:
        yield seen.throttled, {"message": THROTTLED_MESSAGE}


def _recount(conn: sa.Connection, seen: Look, now_ns: int) -> None:
    fresh = _count(conn, seen.job, now_ns)
    seen.kinds = fresh.kinds
    seen.oldest_start_ns = fresh.oldest_start_ns
    seen.first_start_ns = _earlier(seen.first_start_ns, fresh.first_start_ns)
    seen.last_end_ns = max(seen.last_end_ns, fresh.last_end_ns)
    seen.next_due_ns = fresh.next_due_ns
    seen.run_seconds = fresh.run_seconds
    seen.first_run = fresh.first_run
    if seen.job.has_controller:
        seen.controller = _controller(conn, seen.job.job_id)


def _rolled_up(seen: Look, now_ns: int) -> JobRecord:
    job = seen.job
    counts: Counter[PodState] = Counter()
    resting: Counter[PodState] = Counter()
    gang_failed = job.goal is not JobState.KILLED and _any(seen, _is_failed_member)
    for kind, count in seen.kinds.items():
        counts[kind.state] += count
        if gang_failed and kind.in_gang and kind.state is PodState.KILLED:
            resting[PodState.FAILED] += count  # it was killed for the sake of a member that failed
        else:
            resting[PodState.INITIALIZED if kind.again else kind.state] += count
    state = roll_up(job, resting, seen.controller)
    unmarked = job.goal is JobState.KILLED and _any(seen, lambda k: k.state not in TERMINAL and not k.killed)
    started_ns = job.started_ns
    if not started_ns and has_started(counts):
        started_ns = seen.first_start_ns or now_ns
    return replace(
        job,
        state=state,
        pod_counts=dict(counts),
        state_version=job.state_version if unmarked else job.desired_state_version,
        started_ns=started_ns,
        completed_ns=(seen.last_end_ns or now_ns) if state in JOB_TERMINAL else 0,
        run_seconds=seen.run_seconds,
        gang_requeue_count=0 if _runs_whole(seen) else job.gang_requeue_count,
    )


def _is_failed_member(kind: Kind) -> bool:
    return kind.in_gang and failed_for_good(kind.state, bool(kind.again))


def _runs_whole(seen: Look) -> bool:
    members = [kind for kind in seen.kinds if kind.in_gang]
    return bool(members) and all(k.state in (PodState.RUNNING, PodState.SUCCEEDED) and not k.newer for k in members)


def _write_job(conn: sa.Connection, job: JobRecord) -> None:
    conn.execute(
        sa.update(JOB)
        .where(JOB.c.job_id == job.job_id)
        .values(
            state=JOB_STATE_NUMBERS[job.state],
            pod_counts=counts_to_text(job.pod_counts),
            state_version=job.state_version,
            started_ns=job.started_ns,
            completed_ns=job.completed_ns,
            updated_ns=job.updated_ns,
            run_seconds=job.run_seconds,
            gang_requeue_count=job.gang_requeue_count,
            revision=job.revision,
        )
    )


# -- reporting -----------------------------------------------------------------------------------------------------


def progress(seen: Look, job: JobRecord, now_ns: int) -> JobProgress:
    counts = {state.value: count for state, count in job.pod_counts.items()}
    if job.state in JOB_TERMINAL:
        return JobProgress(job.state, counts)
    return JobProgress(
        state=job.state,
        counts=counts,
        missing_count=max(0, job.instance_count - sum(counts.values())),
        admit_count=admit_count(job, job.pod_counts, *_waiting(seen)),
        ready_count=sum(
            n for k, n in seen.kinds.items() if k.state is PodState.READY and not k.killed and not k.in_gang
        ),
        kill_count=sum(n for k, n in seen.kinds.items() if _must_end(k)),
        settle_again=seen.more,
        deadline_s=_wait_s(seen, now_ns),
        gang_run=seen.first_run if _any(seen, _is_on_its_way) else 0,
    )


def _is_on_its_way(kind: Kind) -> bool:
    """Between admission and running."""
    is_launched = kind.state in (PodState.LAUNCHED, PodState.STARTING) and not kind.newer
    return kind.in_gang and not kind.killed and (kind.state is PodState.READY or is_launched)


def _waiting(seen: Look) -> tuple[int, int]:
    """INITIALIZED pods that are to run, and how many of them are members of the gang."""
    ready = {k: n for k, n in seen.kinds.items() if k.state is PodState.INITIALIZED and not k.killed}
    return sum(ready.values()), sum(n for k, n in ready.items() if k.in_gang)


def _must_end(kind: Kind) -> bool:
    """Still to be told: not yet queued pods end in settle itself, KILLING ones have been told."""
    if kind.state in TERMINAL or kind.state in (PodState.INITIALIZED, PodState.KILLING):
        return False
    return kind.killed or (kind.newer and kind.state in ON_HOST)


def _wait_s(seen: Look, now_ns: int) -> float:
    waits = [deadline.wait_s(seen.job, seen.oldest_start_ns, now_ns)]
    if seen.next_due_ns:
        waits.append(max((seen.next_due_ns - now_ns) / _NS, 0.001))
    return min((wait for wait in waits if wait > 0), default=0.0)
