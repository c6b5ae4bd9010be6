"""Settle: bring what ended to its next run or to rest, roll up the job, and count what is left to do.

One look (a read of one moment), one decision (``lifecycle.settle``), one write. The write is refused when the job's row
changed since the look, and the look repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS
from peloton.errors import NotFound
from peloton.lifecycle.settle import plan_settle
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobProgress, JobRecord, JobType, RolledUp
from services.storage.codec import counts_to_text, job_record
from services.storage.engine import lock_job
from services.storage.jobs.settle_view import Look, look_at, read_view
from services.storage.pods.writes import Chosen, fire
from services.storage.repository import Store
from services.storage.tables import JOB
from services.storage.watch_log import note_job

SMALL_PODS = 100
"""Of jobs that are counted before their workflow is told: larger ones are counted by it alone."""
ROLLED_UP_JOBS_MAX = 500
"""Jobs that one transaction counts: while a waker could not reach Temporal, 100,000 may have changed."""
LOOKS_MAX = 5
"""Looks before a settle gives up for now."""
_BATCH = JOB_TYPE_NUMBERS[JobType.BATCH]


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
            if not seen.must_write:
                return replace(seen.plan.progress, settle_again=seen.work.more)
            settled = self.db.write(partial(apply, seen=seen, now_ns=now_ns))
            if settled is not None:
                return settled
            if attempt == LOOKS_MAX:
                return replace(seen.plan.progress, settle_again=True)
        raise AssertionError("unreachable")

    def roll_up(self, job_ids: Sequence[JobId], now_ns: int) -> RolledUp:
        """The part of settling that many small batch jobs have in common: those of which there is nothing to do but to
        count are counted and written together, ROLLED_UP_JOBS_MAX of them at a time."""
        wanted = sorted(set(job_ids))
        parts = [wanted[at : at + ROLLED_UP_JOBS_MAX] for at in range(0, len(wanted), ROLLED_UP_JOBS_MAX)]
        done = [self._roll_up(part, now_ns) for part in parts]
        return RolledUp(
            [job for one in done for job in one.needs_work], [job for one in done for job in one.display_only]
        )

    def _roll_up(self, wanted: Sequence[JobId], now_ns: int) -> RolledUp:
        small = sa.and_(JOB.c.job_id.in_(wanted), JOB.c.type == _BATCH, JOB.c.instance_count <= SMALL_PODS)

        def read(conn: sa.Connection) -> list[Look]:
            jobs = [job_record(row) for row in conn.execute(sa.select(JOB).where(small).order_by(JOB.c.job_id))]
            return [seen for job in jobs if isinstance(seen := look_at(conn, job, now_ns), Look)]

        looks = [seen for seen in self.db.read(read) if _is_quiet(seen)]
        changes = [seen for seen in looks if seen.must_write]
        lost: set[JobId] = set()
        if changes:
            written = self.db.write(lambda conn: [apply(conn, seen, now_ns) for seen in changes])
            lost = {seen.view.job.job_id for seen, done in zip(changes, written, strict=True) if done is None}
        quiet = {seen.view.job.job_id for seen in looks} - lost
        return RolledUp(
            needs_work=[job_id for job_id in wanted if job_id not in quiet],
            display_only=sorted(seen.view.job.job_id for seen in changes if seen.view.job.job_id in quiet),
        )


def look(conn: sa.Connection, job_id: str, now_ns: int) -> Look | JobProgress:
    row = conn.execute(sa.select(JOB).where(JOB.c.job_id == job_id)).one_or_none()
    if row is None:
        raise NotFound(f"job {job_id} not found")
    return look_at(conn, job_record(row), now_ns)


def _is_quiet(seen: Look) -> bool:
    """Nothing is to be done, neither now nor at a time that the workflow has to know."""
    job, progress = seen.plan.job, seen.plan.progress
    only_counts = JobProgress(job.state, progress.counts)
    return not seen.work.changes and progress == only_counts and job.state not in JOB_TERMINAL


def apply(conn: sa.Connection, seen: Look, now_ns: int) -> JobProgress | None:
    """Write what the look called for, and the job; None when the job changed since."""
    view, plan = seen.view, seen.plan
    row = lock_job(conn, view.job.job_id)
    if row is None or row.revision != view.job.revision:
        return None
    for change in seen.work.changes:
        fire(conn, Chosen(view.job.job_id, change.instances), change.event, now_ns, **change.given)
    if seen.work.changes:
        fresh = read_view(conn, view.job, now_ns)
        plan = plan_settle(replace(fresh, pods=fresh.pods.with_times_of(view.pods)), now_ns)
    if seen.must_write:
        # Whoever looked before this is to look again, also when the pods changed and the job's row tells nothing of it.
        _write_job(conn, replace(plan.job, revision=view.job.revision + 1, updated_ns=now_ns))
    return replace(plan.progress, settle_again=seen.work.more)


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
