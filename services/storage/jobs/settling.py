"""Settling: move ended pods to their next run or to rest, roll up the job, and count the remaining work.

A settle is one read of one snapshot, one decision (``lifecycle.settle``) and one write. The write is refused when the
job's row changed since the read, and the settle starts over. It writes the job and its pods and reads its update, so it
belongs to the jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS
from peloton.errors import NotFound, Reason
from peloton.lifecycle.settle import plan_settle
from peloton.lifecycle.wake import Wake, shown_by_ns
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobEnd, JobProgress, JobRecord, RolledUp
from peloton.model.times import NS_PER_S
from services.storage.codec import counts_to_text, job_record
from services.storage.engine import Database, lock_job
from services.storage.jobs.rows import read_job
from services.storage.jobs.settle_view import PendingSettle, plan_for, read_view
from services.storage.jobs.wakes import mark_seen, read_wake, read_wakes
from services.storage.pods.scope import Chosen
from services.storage.pods.writes import fire
from services.storage.tables import JOB
from services.storage.updates.rolling import advance
from services.storage.watch_log import note_job
from services.telemetry.metrics import histogram

SMALL_PODS = 100
"""Maximum size of jobs that are counted before their workflow is woken; larger ones are counted by the workflow alone.
"""
_WRITTEN = (
    "state",
    "pod_counts",
    "state_version",
    "started_ns",
    "completed_ns",
    "updated_ns",
    "run_seconds",
    "gang_requeue_count",
    "revision",
)
_WRITING = (
    sa.update(JOB)
    .where(JOB.c.job_id == sa.bindparam("of_job"))
    .values({name: sa.bindparam(f"new_{name}") for name in _WRITTEN})
)
_DURATIONS = histogram("peloton.job.duration")
_COUNTED = [number for kind, number in JOB_TYPE_NUMBERS.items() if kind.runs_to_end]
_READING_SMALL = (
    sa.select(JOB)
    .where(
        JOB.c.job_id.in_(sa.bindparam("of_jobs", expanding=True)),
        JOB.c.type.in_(_COUNTED),
        JOB.c.instance_count <= sa.bindparam("small_pods", type_=sa.Integer),
    )
    .order_by(JOB.c.job_id)
)


def read_pending(
    conn: sa.Connection, job_id: str, now_ns: int, created_max: int = 0
) -> tuple[PendingSettle | JobProgress, Wake | None]:
    job = read_job(conn, job_id)
    if job is None:
        raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
    wake = read_wake(conn, job_id)
    return plan_for(conn, job, now_ns, wake, created_max), wake


def roll_up_part(db: Database, wanted: Sequence[JobId], now_ns: int) -> RolledUp:
    named = {"of_jobs": wanted, "small_pods": SMALL_PODS}

    def read(conn: sa.Connection) -> list[PendingSettle]:
        jobs = [job_record(row) for row in conn.execute(_READING_SMALL, named)]
        wakes = read_wakes(conn, [job.job_id for job in jobs])
        pending = (plan_for(conn, job, now_ns, wakes.get(job.job_id)) for job in jobs)
        return [one for one in pending if isinstance(one, PendingSettle)]

    found = [one for one in db.read(read) if _is_all_counted(one)]
    changes = [one for one in found if one.must_write]
    seen = [one for one in found if not one.must_write and one.wake is not None and one.wake.is_unseen]
    lost: set[JobId] = set()
    if changes or seen:

        def write(conn: sa.Connection) -> list[JobProgress | None]:
            done = [apply(conn, one, now_ns, is_shown=False) for one in changes]
            for one in seen:  # last, since writers lock jobs before wakes; an earlier count may not be shown yet
                take_back(conn, one, now_ns, is_shown=False)
            return done

        written = db.write(write)
        lost = {one.view.job.job_id for one, done in zip(changes, written, strict=True) if done is None}
    written_jobs = {one.view.job.job_id: one.plan for one in changes if one.view.job.job_id not in lost}
    quiet = {one.view.job.job_id for one in found} - lost
    ended = {
        key: JobEnd(plan.job.state, plan.progress.counts, plan.job.revision + 1)
        for key, plan in written_jobs.items()
        if plan.has_ended
    }
    return RolledUp(
        needs_work=[job_id for job_id in wanted if job_id not in quiet],
        display_only=sorted(written_jobs.keys() - ended.keys()),
        ended=ended,
    )


def _is_all_counted(found: PendingSettle) -> bool:
    """Return whether nothing remains to be done, now or at a time that the workflow has to wait for."""
    progress = found.plan.progress
    return not found.work.changes and not found.work.more and progress == JobProgress(progress.state, progress.counts)


def create_and_apply(conn: sa.Connection, found: PendingSettle, now_ns: int) -> JobProgress | None:
    """Take the step of the update that creates the service, and settle the result, in one transaction."""
    job_id = found.view.job.job_id
    advance(conn, job_id, now_ns)
    after, _ = read_pending(conn, job_id, now_ns, found.created_max)
    return apply(conn, after, now_ns) if isinstance(after, PendingSettle) else after


def apply(conn: sa.Connection, found: PendingSettle, now_ns: int, is_shown: bool = True) -> JobProgress | None:
    """Write the changes of the settle and the job; None when the job changed since.

    ``is_shown``: the workflow that requested the settle shows the counts.
    """
    view, plan = found.view, found.plan
    row = lock_job(conn, view.job.job_id)
    if row is None or row.revision != view.job.revision:
        return None
    for change in found.work.changes:
        fire(conn, Chosen(view.job.job_id, change.instances), change.event, now_ns, **change.given)
    if found.work.changes:
        fresh = read_view(conn, view.job, now_ns, found.created_max)
        plan = plan_settle(replace(fresh, pods=fresh.pods.with_times_of(view.pods)), now_ns)
    revision = view.job.revision + found.must_write
    if found.must_write:
        # The revision rises even when only pods changed: it refuses the write of a settle that read before this one.
        _write_job(conn, replace(plan.job, revision=revision, updated_ns=now_ns))
        if plan.job.state in JOB_TERMINAL and view.job.state not in JOB_TERMINAL and view.job.created_ns:
            labels = {"type": plan.job.type.name, "end": plan.job.state.name}
            _DURATIONS.record(max(now_ns - view.job.created_ns, 0) / NS_PER_S, labels)
    take_back(conn, replace(found, plan=plan), now_ns, is_shown)
    return replace(plan.progress, settle_again=found.work.more, revision=revision)


def take_back(conn: sa.Connection, found: PendingSettle, now_ns: int, is_shown: bool = True) -> None:
    """Clear the wake of the changes that this settle has counted, unless another settle follows at once.

    The wake of a job whose workflow has not shown its counts yet is kept a while longer.
    """
    due_ns = found.new_due_ns(now_ns) if is_shown else shown_by_ns(found.wake, now_ns)
    if found.wake is not None and due_ns is not None:
        mark_seen(conn, found.view.job.job_id, found.wake, due_ns)


def _write_job(conn: sa.Connection, job: JobRecord) -> None:
    values = {f"new_{name}": getattr(job, name) for name in _WRITTEN}
    values |= {"new_state": JOB_STATE_NUMBERS[job.state], "new_pod_counts": counts_to_text(job.pod_counts)}
    conn.execute(_WRITING, {"of_job": job.job_id, **values})
    note_job(conn, job)
