"""Deletion of old records in bounded transactions, each of which checks again what it deletes and moves the cursor.

Deletions may be interrupted anywhere and repeated: a transaction that was committed has moved the cursor, and one that
was not has changed nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_STATES, JOB_TYPE_NUMBERS, JOB_TYPES
from peloton.api.convert_time import rfc3339_seconds
from peloton.lifecycle.job_machine import JobEvent, next_job
from peloton.lifecycle.retention import JOBS, POD_EVENTS, PODS, ROWS_MAX, RUNS, Batch, Cursor, EndedJob, Part
from peloton.model.ids import JobId
from peloton.model.job import JobState, JobType
from peloton.model.update import UPDATE_TERMINAL
from services.storage.codec import job_record
from services.storage.engine import Repository, lock_jobs, reading, take_numbers, writing
from services.storage.jobs.deletion import forget_instances, forget_jobs
from services.storage.jobs.steering import write_steering
from services.storage.retention.lines import Line, lines_of, lines_of_events
from services.storage.tables import (
    ARCHIVE_OBJECT,
    EXTERNAL_POD,
    IS_ACTIVE,
    JOB,
    JOB_NAME,
    POD,
    POD_CONTAINERS,
    POD_EVENT,
    PRUNED_JOB,
    RETENTION_PROGRESS,
    UPDATE,
    VOLUME,
)

ARCHIVE_SEQ = "archive objects"
RUNS_MAX = 100
"""Number of runs of a pod whose events are kept, however young they are."""
START = Cursor()
RUN_PODS = 500
"""Number of instances whose earlier runs one query looks for."""
_P = RETENTION_PROGRESS.c
_DELETED = JOB_STATE_NUMBERS[JobState.DELETED]
_RUNS_TO_END = [JOB_TYPE_NUMBERS[kind] for kind in JobType if kind.runs_to_end]
_TABLES = {POD_EVENTS: (POD_EVENT, POD_CONTAINERS), PODS: (POD,)}
_IS_REFERRED = sa.or_(
    sa.exists().where(UPDATE.c.job_id == JOB.c.job_id, UPDATE.c.state.not_in(UPDATE_TERMINAL)),
    sa.exists().where(VOLUME.c.job_id == JOB.c.job_id, VOLUME.c.host != ""),
    sa.exists().where(EXTERNAL_POD.c.job_id == JOB.c.job_id),
)
_ENDED_JOBS = sa.select(
    JOB.c.job_id, JOB.c.type, JOB.c.state, JOB.c.completed_ns, JOB.c.instance_count, _IS_REFERRED.label("is_referred")
).where(JOB.c.completed_ns > 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a class; ``ran_ns`` is the end of the last round, 0 before the first."""

    cursor: Cursor = START
    deleted_count: int = 0
    archived_bytes: int = 0
    ran_ns: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """Object that was written to the archive before the deletion."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class PrunedJob:
    """Job that was deleted; ``archived_in`` is the name of its object, empty without an archive."""

    pruned_ns: int
    archived_in: str

    def describe(self) -> str:
        deleted = f"deleted by age at {rfc3339_seconds(self.pruned_ns)}"
        return f"{deleted}, archived in {self.archived_in}" if self.archived_in else f"{deleted}, not archived"


@dataclass(frozen=True, slots=True)
class OldRuns:
    """Events of earlier runs of one job, by instance and revision, and the time of the first one; ``after`` is the
    place to continue from."""

    job_id: JobId
    keys: tuple[tuple[int, int], ...]
    first_ns: int
    after: tuple[str, int]


class RetentionRecords(Repository):
    # -- reading

    @reading
    def progress(self, conn: sa.Connection) -> dict[str, Progress]:
        return {
            row.name: Progress(
                Cursor(row.ended_ns, row.job_id, row.instance_id),
                row.deleted_count,
                row.archived_bytes,
                ran_ns=row.ran_ns,
                note=row.note,
            )
            for row in conn.execute(sa.select(RETENTION_PROGRESS))
        }

    @reading
    def list_ended(self, conn: sa.Connection, after: Cursor, before_ns: int, limit: int) -> list[EndedJob]:
        """Return jobs that run to an end and have ended before a time, in the order of their ends, from the cursor
        on."""
        return _read_ended(conn, _of_ends(after, before_ns), limit)

    @reading
    def count_ended(self, conn: sa.Connection, after: Cursor, before_ns: int, limit: int) -> int:
        """Count the jobs of ``list_ended``, up to ``limit``."""
        return _count(conn, sa.select(JOB.c.job_id).where(_of_ends(after, before_ns)).limit(limit))

    @reading
    def count_pruned(self, conn: sa.Connection, before_ns: int, limit: int) -> int:
        return _count(conn, sa.select(PRUNED_JOB.c.job_id).where(PRUNED_JOB.c.pruned_ns < before_ns).limit(limit))

    def lines(self, step: str, parts: Sequence[Part]) -> Iterator[Line]:
        """Yield the records of a batch for the archive, read at one moment."""
        with self._db.reading() as conn:
            yield from lines_of(conn, step, parts)

    @reading
    def find_pruned(self, conn: sa.Connection, job_id: JobId) -> PrunedJob | None:
        """Return the job if retention has deleted it and still knows about it."""
        query = sa.select(PRUNED_JOB.c.pruned_ns, ARCHIVE_OBJECT.c.name).where(PRUNED_JOB.c.job_id == job_id)
        joined = PRUNED_JOB.outerjoin(ARCHIVE_OBJECT, ARCHIVE_OBJECT.c.object_id == PRUNED_JOB.c.object_id)
        row = conn.execute(query.select_from(joined)).one_or_none()
        return None if row is None else PrunedJob(row.pruned_ns, row.name or "")

    @reading
    def half_deleted(self, conn: sa.Connection, limit: int) -> list[JobId]:
        """Return jobs whose deletion by retention was interrupted or is under way."""
        mine = sa.select(JOB.c.job_id).join(PRUNED_JOB, PRUNED_JOB.c.job_id == JOB.c.job_id)
        found = conn.execute(mine.where(JOB.c.state == _DELETED).order_by(JOB.c.job_id).limit(limit))
        return [JobId(job_id) for job_id in found.scalars()]

    # -- deletion of ended jobs

    def delete(self, step: str, batch: Batch, written: Written | None, now_ns: int) -> tuple[int, list[JobId]]:
        """Delete the records of a batch and move the cursor.

        Returns the number of rows, and the jobs of more instances than one transaction may delete, which are marked as
        deleted: the caller deletes them in chunks. A job that has changed since it was read is left alone.
        """
        return self._db.write(partial(_delete, step=step, batch=batch, written=written, now_ns=now_ns))

    # -- earlier runs of jobs that live

    @reading
    def old_runs(self, conn: sa.Connection, after: tuple[str, int], before_ns: int, limit: int) -> OldRuns | None:
        """Return events of earlier runs of the next RUN_PODS instances from a job and instance on; None at the end.

        Those of the run before the current one are kept.
        """
        jobs = sa.select(JOB.c.job_id).where(IS_ACTIVE)
        if after[0]:
            jobs = jobs.where(JOB.c.job_id >= after[0])
        for job_id in conn.execute(jobs.order_by(JOB.c.job_id).limit(2)).scalars().all():
            start = after[1] if job_id == after[0] else 0
            last = sa.select(sa.func.max(POD_EVENT.c.instance_id)).where(POD_EVENT.c.job_id == job_id)
            if start and start > (conn.execute(last).scalar() or 0):
                continue
            found = _old_runs(conn, job_id, start, before_ns, limit)
            keys = tuple((instance, revision) for instance, revision, _ in found)
            following = keys[-1][0] if len(keys) == limit else start + RUN_PODS
            return OldRuns(JobId(job_id), keys, found[0][2] if found else 0, (job_id, following))
        return None

    def lines_of_runs(self, runs: OldRuns) -> Iterator[Line]:
        with self._db.reading() as conn:
            yield from lines_of_events(conn, runs.job_id, runs.keys)

    @writing
    def delete_runs(self, conn: sa.Connection, runs: OldRuns, written: Written | None) -> None:
        key = sa.tuple_(POD_EVENT.c.instance_id, POD_EVENT.c.revision)
        mine = sa.and_(POD_EVENT.c.job_id == runs.job_id, key.in_(runs.keys))
        deleted = conn.execute(sa.delete(POD_EVENT).where(mine)).rowcount
        _advance(conn, RUNS, _sums(deleted, written))

    # -- what is left of deleted jobs

    @writing
    def forget_pruned(self, conn: sa.Connection, before_ns: int, limit: int) -> int:
        """Forget jobs that were deleted before a time, and objects of the archive that none of them needs."""
        old = sa.select(PRUNED_JOB.c.job_id).where(PRUNED_JOB.c.pruned_ns < before_ns).limit(limit)
        count = conn.execute(sa.delete(PRUNED_JOB).where(PRUNED_JOB.c.job_id.in_(old))).rowcount
        if count < limit:  # all jobs of an object are deleted at the time at which it is noted
            objects = sa.select(ARCHIVE_OBJECT.c.object_id).where(ARCHIVE_OBJECT.c.written_ns < before_ns).limit(limit)
            conn.execute(sa.delete(ARCHIVE_OBJECT).where(ARCHIVE_OBJECT.c.object_id.in_(objects)))
        return count

    @writing
    def forget_names(self, conn: sa.Connection, before_ns: int, limit: int) -> int:
        """Forget names of services that do not exist any more and have not been used since a time."""
        has_job = sa.exists().where(JOB.c.job_id == JOB_NAME.c.job_id)
        old = sa.select(JOB_NAME.c.name, JOB_NAME.c.job_id).where(JOB_NAME.c.updated_ns < before_ns, ~has_job)
        key = sa.tuple_(JOB_NAME.c.name, JOB_NAME.c.job_id)
        return conn.execute(sa.delete(JOB_NAME).where(key.in_(old.limit(limit)))).rowcount

    # -- progress

    @writing
    def add(self, conn: sa.Connection, name: str, deleted: int, written: Written | None) -> None:
        """Add to the sums of a class that has no cursor."""
        _advance(conn, name, _sums(deleted, written))

    @writing
    def note(self, conn: sa.Connection, name: str, ran_ns: int, note: str) -> None:
        """End a round of a class; ``note`` says why it ended early."""
        _advance(conn, name, {"ran_ns": ran_ns, "note": note})


def _of_ends(after: Cursor, before_ns: int) -> sa.ColumnElement[bool]:
    ended, job_id = JOB.c.completed_ns, JOB.c.job_id
    mine = [ended > 0, ended < before_ns, ended >= after.ended_ns, JOB.c.type.in_(_RUNS_TO_END)]
    if after.job_id:
        is_rest = sa.and_(job_id == after.job_id, JOB.c.instance_count > after.instance)
        mine.append(sa.or_(ended > after.ended_ns, job_id > after.job_id, is_rest))
    return sa.and_(*mine)


def _count(conn: sa.Connection, some: sa.Select[Any]) -> int:
    return int(conn.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar_one())


def _read_ended(conn: sa.Connection, chosen: sa.ColumnElement[bool], limit: int) -> list[EndedJob]:
    query = _ENDED_JOBS.where(chosen).order_by(JOB.c.completed_ns, JOB.c.job_id).limit(limit)
    return [
        EndedJob(
            JobId(row.job_id),
            JOB_TYPES[row.type],
            JOB_STATES[row.state],
            row.completed_ns,
            instance_count=row.instance_count,
            is_referred=bool(row.is_referred),
        )
        for row in conn.execute(query)
    ]


def _delete(
    conn: sa.Connection, step: str, batch: Batch, written: Written | None, now_ns: int
) -> tuple[int, list[JobId]]:
    ids = [part.job.job_id for part in batch.parts]
    rows = {row.job_id: row for row in lock_jobs(conn, ids)}
    now = {job.job_id: job for job in _read_ended(conn, JOB.c.job_id.in_(ids), len(ids))}
    parts = [part for part in batch.parts if now.get(part.job.job_id) == part.job]
    large = [part.job.job_id for part in parts if step == JOBS and part.count > ROWS_MAX]
    small = [part for part in parts if part.job.job_id not in large]
    deleted = len(large)
    if step == JOBS:
        _note_pruned(conn, [part.job.job_id for part in parts], written, now_ns)
        for job_id in large:
            write_steering(conn, next_job(job_record(rows[job_id]), JobEvent.FORGET, now_ns))
        if small:
            these = [part.job.job_id for part in small]
            deleted += forget_instances(conn, these, 0, max(part.count for part in small))
            deleted += forget_jobs(conn, these)
    else:
        deleted += _delete_parts(conn, step, small)
    _advance(conn, step, {**_cursor_values(batch.after), **_sums(deleted, written)})
    return deleted, large


def _delete_parts(conn: sa.Connection, step: str, parts: Collection[Part]) -> int:
    deleted = 0
    whole = [part.job.job_id for part in parts if not part.start and part.is_last]
    for table in _TABLES[step]:
        if whole:
            deleted += conn.execute(sa.delete(table).where(table.c.job_id.in_(whole))).rowcount
        for part in parts:
            if part.start or not part.is_last:
                mine = table.c.instance_id.between(part.start, part.start + part.count - 1)
                deleted += conn.execute(sa.delete(table).where(table.c.job_id == part.job.job_id, mine)).rowcount
    return deleted


def _note_pruned(conn: sa.Connection, job_ids: Sequence[str], written: Written | None, now_ns: int) -> None:
    if not job_ids:
        return
    conn.execute(sa.delete(PRUNED_JOB).where(PRUNED_JOB.c.job_id.in_(job_ids)))  # an id may be used again
    object_id = 0
    if written is not None:
        object_id = take_numbers(conn, ARCHIVE_SEQ, 1)
        conn.execute(ARCHIVE_OBJECT.insert().values(object_id=object_id, name=written.name, written_ns=now_ns))
    rows = [{"job_id": job_id, "object_id": object_id, "pruned_ns": now_ns} for job_id in job_ids]
    conn.execute(PRUNED_JOB.insert(), rows)


def _cursor_values(cursor: Cursor) -> dict[str, Any]:
    return {"ended_ns": cursor.ended_ns, "job_id": cursor.job_id, "instance_id": cursor.instance}


def _sums(deleted: int, written: Written | None) -> dict[str, Any]:
    size = written.size if written is not None else 0
    return {"deleted_count": _P.deleted_count + deleted, "archived_bytes": _P.archived_bytes + size}


def _advance(conn: sa.Connection, name: str, values: dict[str, Any]) -> None:
    """Change the row of a class, which is created by its first change."""
    mine = sa.update(RETENTION_PROGRESS).where(_P.name == name).values(**values)
    if conn.execute(mine).rowcount:
        return
    nothing = {"deleted_count": 0, "archived_bytes": 0, "ran_ns": 0, "note": "", **_cursor_values(Cursor())}
    conn.execute(RETENTION_PROGRESS.insert().values(name=name, **nothing))
    conn.execute(mine)


def _old_runs(conn: sa.Connection, job_id: str, start: int, before_ns: int, limit: int) -> list[tuple[int, int, int]]:
    """Return instance, revision and time of events of runs before the previous one, and of instances that a service
    has no more."""
    event = POD_EVENT.c
    same = sa.and_(POD.c.job_id == event.job_id, POD.c.instance_id == event.instance_id)
    is_earlier = sa.and_(event.run_id < POD.c.run_id, event.run_id != POD.c.prev_run_id)
    is_beyond = sa.and_(is_earlier, event.run_id <= POD.c.run_id - RUNS_MAX)
    is_old = sa.and_(event.time_ns < before_ns, sa.or_(POD.c.run_id.is_(None), is_earlier))
    query = (
        sa.select(event.instance_id, event.revision, event.time_ns)
        .select_from(POD_EVENT.outerjoin(POD, same))
        .where(event.job_id == job_id, event.instance_id.between(start, start + RUN_PODS - 1))
        .where(sa.or_(is_beyond, is_old))
        .order_by(event.instance_id, event.revision)
        .limit(limit)
    )
    return [tuple(row) for row in conn.execute(query)]
