"""Settle: bring what ended to its next run or to rest, roll up the job, and count what is left to do.

One look (a read of one moment: a count over the job's pods, and the few that need a hand), one decision in
``peloton.lifecycle``, one write. The write is refused when the job's row changed since the look, and the look repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS
from peloton.lifecycle import deadline
from peloton.lifecycle.gang import failed_for_good
from peloton.lifecycle.job import admit_count, has_started, is_ending, roll_up
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import (
    ENDS,
    INITIALIZED,
    MISSED,
    NEWER,
    ON_REQUEST,
    QUEUED,
    READY,
    RESTS,
    STALE,
    STAYS,
    UNWANTED,
    state,
)
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobProgress, JobRecord, JobState, JobType, RolledUp
from peloton.model.pod import PodState
from services.storage.codec import counts_to_text, job_record
from services.storage.engine import lock_job
from services.storage.gangs import apply_gang_work
from services.storage.goals import STOP_MESSAGE
from services.storage.looking import (
    Kind,
    Look,
    controller_state,
    count_pods,
    earlier,
    look,
    look_at,
    look_at_update,
)
from services.storage.pod_writes import Chosen, fire
from services.storage.store import Store
from services.storage.tables import JOB
from services.storage.watch import note_job

SMALL_PODS = 100
"""Of jobs that are counted before their workflow is told: larger ones are counted by it alone."""
ROLLED_UP_JOBS_MAX = 500
"""Jobs that one transaction counts: while a waker could not reach Temporal, 100,000 may have changed."""
LOOKS_MAX = 5
"""Looks before a settle gives up for now."""
_NS = 1_000_000_000
_BATCH = JOB_TYPE_NUMBERS[JobType.BATCH]
_WAITS = INITIALIZED & STAYS  # for its place in a queue
_ON_ITS_WAY = STAYS & (READY | (state(PodState.LAUNCHED, PodState.STARTING) & ~NEWER))  # from admission to running
_SERVES = state(PodState.RUNNING, PodState.SUCCEEDED) & ~NEWER
_LEAVES_QUEUE = QUEUED & (ENDS | STALE)


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

    def roll_up(self, job_ids: Sequence[JobId], now_ns: int) -> RolledUp:
        """The part of settling that many small batch jobs have in common: those of which there is nothing to do but to
        count are counted and written together, ROLLED_UP_JOBS_MAX of them at a time."""
        wanted = sorted(set(job_ids))
        parts = [wanted[at : at + ROLLED_UP_JOBS_MAX] for at in range(0, len(wanted), ROLLED_UP_JOBS_MAX)]
        done = [self._roll_up(part, now_ns) for part in parts]
        return RolledUp([job for one in done for job in one.told], [job for one in done for job in one.shown])

    def _roll_up(self, wanted: Sequence[JobId], now_ns: int) -> RolledUp:
        small = sa.and_(JOB.c.job_id.in_(wanted), JOB.c.type == _BATCH, JOB.c.instance_count <= SMALL_PODS)

        def read(conn: sa.Connection) -> list[Look]:
            jobs = [job_record(row) for row in conn.execute(sa.select(JOB).where(small).order_by(JOB.c.job_id))]
            return [seen for job in jobs if isinstance(seen := look_at(conn, job, now_ns), Look)]

        looks = [seen for seen in self.db.read(read) if _is_quiet(seen, now_ns)]
        changes = [seen for seen in looks if _rolled_up(seen, now_ns) != seen.job]
        lost: set[JobId] = set()
        if changes:
            written = self.db.write(lambda conn: [apply(conn, seen, now_ns) for seen in changes])
            lost = {seen.job.job_id for seen, job in zip(changes, written, strict=True) if job is None}
        quiet = {seen.job.job_id for seen in looks} - lost
        return RolledUp(
            told=[job_id for job_id in wanted if job_id not in quiet],
            shown=sorted(seen.job.job_id for seen in changes if seen.job.job_id in quiet),
        )


# -- writing -------------------------------------------------------------------------------------------------------


def _is_quiet(seen: Look, now_ns: int) -> bool:
    """Nothing is to be done, neither now nor at a time that the workflow has to know."""
    if seen.has_work:
        return False
    job = _rolled_up(seen, now_ns)
    return progress(seen, job, now_ns) == JobProgress(job.state, {s.value: n for s, n in job.pod_counts.items()}) and (
        job.state not in JOB_TERMINAL
    )


def _must_write(seen: Look, now_ns: int) -> bool:
    return seen.has_work or _rolled_up(seen, now_ns) != seen.job


def apply(conn: sa.Connection, seen: Look, now_ns: int) -> JobRecord | None:
    """Write what the look called for, and the job; None when the job changed since. Corrects ``seen.kinds``."""
    row = lock_job(conn, seen.job.job_id)
    if row is None or row.revision != seen.job.revision:
        return None
    if seen.gang is not None:
        apply_gang_work(conn, seen.job.job_id, seen.gang, now_ns)
    for event, instances, given in (
        (Event.BEGIN_NEXT_RUN, seen.due, {}),
        (Event.END_UNQUEUED, seen.unqueued_kills, {}),
        (Event.THROTTLE, seen.throttled, {}),
        (Event.FORGET, seen.gone, {}),
        (Event.STOP, seen.unmarked_kills, {"message": STOP_MESSAGE, "reason": "", "why": ON_REQUEST}),
        (Event.EXCEED_DEADLINE, seen.overdue, {}),
    ):
        if instances:
            fire(conn, Chosen(seen.job.job_id, instances), event, now_ns, **given)
    if seen.has_work:
        _recount(conn, seen, now_ns)
    job = _rolled_up(seen, now_ns)
    if job == seen.job and not seen.has_work:
        return job
    # Whoever looked before this is to look again, also when the pods changed and the job's row tells nothing of it.
    job = replace(job, revision=job.revision + 1, updated_ns=now_ns)
    _write_job(conn, job)
    return job


def _recount(conn: sa.Connection, seen: Look, now_ns: int) -> None:
    fresh = count_pods(conn, seen.job, now_ns)
    seen.kinds = fresh.kinds
    seen.oldest_start_ns = fresh.oldest_start_ns
    seen.first_start_ns = earlier(seen.first_start_ns, fresh.first_start_ns)
    seen.last_end_ns = max(seen.last_end_ns, fresh.last_end_ns)
    seen.next_due_ns = fresh.next_due_ns
    seen.run_seconds = fresh.run_seconds
    seen.first_run = fresh.first_run
    seen.update = look_at_update(conn, seen.job, now_ns)
    if seen.job.has_controller:
        seen.controller = controller_state(conn, seen.job.job_id)


def _rolled_up(seen: Look, now_ns: int) -> JobRecord:
    job = seen.job
    counts: Counter[PodState] = Counter()
    resting: Counter[PodState] = Counter()
    gang_failed = job.goal is not JobState.KILLED and any(map(_is_failed_member, seen.kinds))
    for kind, count in seen.kinds.items():
        counts[kind.state] += count
        if gang_failed and kind.in_gang and kind.state is PodState.KILLED:
            resting[PodState.FAILED] += count  # it was killed for the sake of a member that failed
        else:
            resting[kind.state if kind.meets(RESTS) else PodState.INITIALIZED] += count
    state = roll_up(job, resting, seen.controller)
    unmarked = is_ending(job) and seen.has(MISSED)
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
    return kind.in_gang and failed_for_good(kind.state, not kind.meets(RESTS))


def _runs_whole(seen: Look) -> bool:
    members = [kind for kind in seen.kinds if kind.in_gang]
    return bool(members) and all(kind.meets(_SERVES) for kind in members)


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
    note_job(conn, job)


# -- reporting -----------------------------------------------------------------------------------------------------


def progress(seen: Look, job: JobRecord, now_ns: int) -> JobProgress:
    counts = {state.value: count for state, count in job.pod_counts.items()}
    if job.state in JOB_TERMINAL:
        is_unwanted = job.goal is JobState.DELETED
        ended = JobProgress(job.state, counts, is_unwanted=is_unwanted, settle_again=seen.more)
        return seen.update.told(ended)
    answer = JobProgress(
        state=job.state,
        counts=counts,
        missing_count=0 if job.update_id else max(0, job.instance_count - sum(counts.values())),
        admit_count=admit_count(job, job.pod_counts, seen.count(_WAITS), seen.count(_WAITS, in_gang=True)),
        ready_count=seen.count(READY & STAYS, in_gang=False),
        kill_count=seen.count(_LEAVES_QUEUE | UNWANTED),
        queued_kill_count=seen.count(_LEAVES_QUEUE),
        settle_again=seen.more,
        deadline_s=_wait_s(seen, now_ns),
        gang_run=seen.first_run if seen.count(_ON_ITS_WAY, in_gang=True) else 0,
    )
    return seen.update.told(answer)


def _wait_s(seen: Look, now_ns: int) -> float:
    waits = [deadline.wait_s(seen.job, seen.oldest_start_ns, now_ns)]
    if seen.next_due_ns:
        waits.append(max((seen.next_due_ns - now_ns) / _NS, 0.001))
    return min((wait for wait in waits if wait > 0), default=0.0)
