"""Log of changes of services and their pods, in the order of commits, for watchers.

Batch jobs are left out, since they can have a hundred thousand pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_TYPE_NUMBERS
from peloton.model.ids import JobId
from peloton.model.job import JobRecord, JobType
from services.fence import Fence
from services.storage.engine import Repository, reading, take_numbers, writing
from services.storage.leases import check_epoch
from services.storage.tables import COUNTER, JOB, POD, WATCH_CANCEL, WATCH_LOG

WATCH_SEQ = "watch_log"
THE_JOB = -1
CANCELS_KEPT_NS = 60 * 10**9
PUBLISHED_SEQ = "published events"
_SERVICE = JOB_TYPE_NUMBERS[JobType.SERVICE]
_APPENDING = WATCH_LOG.insert()

Change = tuple[int, JobId, int]
"""Sequence number, job, instance (THE_JOB: the job itself)."""


class WatchLog(Repository):
    def after(self, after_seq: int, limit: int) -> list[Change]:
        query = sa.select(WATCH_LOG).where(WATCH_LOG.c.seq > after_seq).order_by(WATCH_LOG.c.seq).limit(limit)
        return self._db.read(
            lambda conn: [(row.seq, JobId(row.job_id), row.instance_id) for row in conn.execute(query)]
        )

    @reading
    def bounds(self, conn: sa.Connection) -> tuple[int, int]:
        """Return the oldest kept number and the newest one given out; an empty log returns the next number as the
        oldest."""
        newest = conn.execute(sa.select(COUNTER.c.value).where(COUNTER.c.name == WATCH_SEQ)).scalar_one()
        oldest = conn.execute(sa.select(sa.func.min(WATCH_LOG.c.seq))).scalar()
        return newest + 1 if oldest is None else oldest, newest

    def trim(self, kept: int, limit: int) -> int:
        """Delete up to ``limit`` of the changes before the last ``kept``; returns their number."""
        oldest, newest = self.bounds()
        return self.prune(min(newest - kept, oldest + limit - 1))

    def prune(self, upto_seq: int) -> int:
        return self._db.write(
            lambda conn: conn.execute(sa.delete(WATCH_LOG).where(WATCH_LOG.c.seq <= upto_seq)).rowcount
        )

    def read_published(self) -> int:
        """Return the number up to which changes have been published as events; 0: none."""
        query = sa.select(COUNTER.c.value).where(COUNTER.c.name == PUBLISHED_SEQ)
        return self._db.read(lambda conn: conn.execute(query).scalar()) or 0

    def with_fence(self, fence: Fence) -> WatchLog:
        """Return the same log for one who publishes under a lease."""
        return WatchLog(self._db.with_fence(partial(check_epoch, fence)))

    @writing
    def set_published(self, conn: sa.Connection, upto_seq: int) -> None:
        statement = self._db.upsert(COUNTER).values(name=PUBLISHED_SEQ, value=upto_seq)
        conn.execute(statement.on_conflict_do_update(index_elements=["name"], set_={"value": upto_seq}))

    @writing
    def ask_cancel(self, conn: sa.Connection, watch_id: str, now_ns: int) -> None:
        """Ask the api that serves the watch to cancel it; unread requests are deleted after CANCELS_KEPT_NS."""
        statement = self._db.upsert(WATCH_CANCEL).values(watch_id=watch_id, asked_ns=now_ns).on_conflict_do_nothing()
        conn.execute(sa.delete(WATCH_CANCEL).where(WATCH_CANCEL.c.asked_ns < now_ns - CANCELS_KEPT_NS))
        conn.execute(statement)

    def cancels(self) -> set[str]:
        return self._db.read(lambda conn: set(conn.execute(sa.select(WATCH_CANCEL.c.watch_id)).scalars()))

    def drop_cancel(self, watch_id: str) -> bool:
        """Delete a cancel request; returns whether it existed."""
        statement = sa.delete(WATCH_CANCEL).where(WATCH_CANCEL.c.watch_id == watch_id)
        return self._db.write(lambda conn: conn.execute(statement).rowcount > 0)


def note_job(conn: sa.Connection, job: JobRecord) -> None:
    if job.type is JobType.SERVICE:
        note_service(conn, job.job_id)


def note_service(conn: sa.Connection, job_id: str) -> None:
    """Log a change of the job itself, or of its update."""
    note_changes(conn, [(job_id, THE_JOB)])


def pods_of_services(scope: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select the keys of the pods of ``scope`` that belong to services."""
    joined = POD.join(JOB, sa.and_(JOB.c.job_id == POD.c.job_id, JOB.c.type == _SERVICE))
    return sa.select(POD.c.job_id, POD.c.instance_id).select_from(joined).where(scope)


def note_pods(conn: sa.Connection, found: sa.Select[Any], named: Mapping[str, Any]) -> None:
    note_changes(conn, [(row.job_id, row.instance_id) for row in conn.execute(found, named)])


def note_changes(conn: sa.Connection, changes: Sequence[tuple[str, int]]) -> None:
    if changes:
        first = take_numbers(conn, WATCH_SEQ, len(changes))
        rows = [{"seq": first + at, "job_id": job, "instance_id": i} for at, (job, i) in enumerate(changes)]
        conn.execute(_APPENDING, rows)
