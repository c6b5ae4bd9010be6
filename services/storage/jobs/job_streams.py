"""Jobs whose configuration arrives in pieces, which are stored on arrival; the last step creates the job.

The pieces are rows of ``job_config_override`` already, so the commit moves no data: it only adds the job. Meanwhile a
row of ``job_stream`` names their owner by a token. Each write is conditional on that token. A call that takes a stream
over or ends it changes the token first, so a writer that was presumed dead adds nothing afterwards.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, AlreadyExists, Reason
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from services.storage.engine import Repository, writing
from services.storage.jobs.configs import OverrideRow, OverrideRows, insert_config, insert_overrides
from services.storage.jobs.rows import insert_job
from services.storage.ranges import CHUNK_PODS
from services.storage.tables import JOB, JOB_STREAM, OVERRIDE

FIRST_VERSION = 1


@dataclass(frozen=True, slots=True)
class JobStream:
    """Right to add pieces to a job that does not exist yet."""

    job_id: JobId
    token: str


class JobStreams(Repository):
    def begin(self, job_id: JobId) -> JobStream:
        """Take over a former stream of this job and delete its pieces. Raises AlreadyExists."""
        stream = JobStream(job_id, str(uuid.uuid4()))

        def take(conn: sa.Connection) -> None:
            values = {"token": stream.token, "touched_ns": self._db.clock_ns()}
            insert = self._db.upsert(JOB_STREAM).values(job_id=job_id, **values)
            conn.execute(insert.on_conflict_do_update(index_elements=[JOB_STREAM.c.job_id], set_=values))
            if conn.execute(sa.select(JOB.c.job_id).where(JOB.c.job_id == job_id)).first() is not None:
                raise AlreadyExists(f"job {job_id} already exists").because(Reason.JOB_EXISTS, job=job_id)

        self._db.write(take)
        self._clear(stream)
        return stream

    @writing
    def add(self, conn: sa.Connection, stream: JobStream, rows: Sequence[OverrideRow]) -> None:
        """Add rows of OverrideRows, version FIRST_VERSION. Raises Aborted when another call took over or ended the
        stream."""
        self._hold(conn, stream)
        insert_overrides(conn, rows)

    def commit(self, stream: JobStream, job: JobRecord, config: job_pb2.JobConfig, now_ns: int) -> None:
        """Create the job with all added pieces. Raises Aborted, AlreadyExists."""

        def commit(conn: sa.Connection) -> None:
            mine = _matches(stream)
            if not conn.execute(sa.delete(JOB_STREAM).where(mine)).rowcount:
                raise Aborted(_describe_lost(stream))
            insert_job(conn, job, config)
            insert_config(conn, job.job_id, FIRST_VERSION, config, (), now_ns)

        try:
            self._db.write(commit)
        except IntegrityError as error:
            raise AlreadyExists(f"job {job.job_id} already exists").because(
                Reason.JOB_EXISTS, job=job.job_id
            ) from error

    def discard(self, stream: JobStream) -> None:
        """Delete the stream and its pieces; does nothing if it has ended."""
        taken = JobStream(stream.job_id, str(uuid.uuid4()))
        if not self._db.write(partial(self._take_over, stream=stream, token=taken.token)):
            return
        with suppress(Aborted):  # another call has begun a new stream
            self._clear(taken)
        self._db.write(lambda conn: conn.execute(sa.delete(JOB_STREAM).where(_matches(taken))))

    def discard_older(self, before_ns: int) -> int:
        """Discard streams without an addition since ``before_ns``; returns their number."""
        query = sa.select(JOB_STREAM.c.job_id, JOB_STREAM.c.token).where(JOB_STREAM.c.touched_ns < before_ns)
        left = [
            JobStream(JobId(job_id), token) for job_id, token in self._db.read(lambda conn: conn.execute(query).all())
        ]
        for stream in left:
            self.discard(stream)
        return len(left)

    def _clear(self, stream: JobStream) -> None:
        """Delete the added pieces, in chunks."""

        def clear(conn: sa.Connection) -> bool:
            self._hold(conn, stream)
            mine = OVERRIDE.c.job_id == stream.job_id
            first = conn.execute(sa.select(sa.func.min(OVERRIDE.c.instance_id)).where(mine)).scalar()
            if first is None:
                return False
            conn.execute(sa.delete(OVERRIDE).where(mine, OVERRIDE.c.instance_id < first + CHUNK_PODS))
            return True

        while self._db.write(clear):
            pass

    def _hold(self, conn: sa.Connection, stream: JobStream) -> None:
        """Lock the stream until the commit. Raises Aborted if the token has changed."""
        if not self._take_over(conn, stream, stream.token):
            raise Aborted(_describe_lost(stream))

    def _take_over(self, conn: sa.Connection, stream: JobStream, token: str) -> bool:
        taken = sa.update(JOB_STREAM).where(_matches(stream)).values(token=token, touched_ns=self._db.clock_ns())
        return bool(conn.execute(taken).rowcount)


def stream_rows(job_id: JobId, config: job_pb2.JobConfig) -> OverrideRows:
    return OverrideRows(job_id, FIRST_VERSION, config)


def _matches(stream: JobStream) -> sa.ColumnElement[bool]:
    return sa.and_(JOB_STREAM.c.job_id == stream.job_id, JOB_STREAM.c.token == stream.token)


def _describe_lost(stream: JobStream) -> str:
    return f"job {stream.job_id} is being created by another call; nothing of this one is kept"
