"""Jobs: creation, reading, growth, deletion, and the creation of their pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from peloton.api import convert
from peloton.api.convert import JOB_STATE_NUMBERS
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound
from peloton.lifecycle.job_machine import JobEvent, next_job
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobRecord, JobState
from peloton.model.update import UPDATE_TERMINAL
from services.storage.codec import job_record, job_values, sla_values
from services.storage.engine import lock_job
from services.storage.jobs.configs import (
    OverrideRows,
    insert_config,
    read_config,
    search_text,
    without_instances,
)
from services.storage.jobs.goals import write_steering
from services.storage.pods.creation import insert_batch_pods
from services.storage.repository import CHUNK_PODS, Store
from services.storage.tables import (
    DISRUPTION,
    FINISHED_STATES,
    JOB,
    JOB_CONFIG,
    JOB_STREAM,
    OVERRIDE,
    POD,
    POD_EVENT,
    UPDATE,
    UPDATE_EVENT,
)

_IDS_PER_QUERY = 1_000
_DELETED = JOB_STATE_NUMBERS[JobState.DELETED]
_ADDED_INSTANCES_VERSION = "operation aborted due to unexpected version"


class Jobs(Store):
    def job(self, job_id: JobId) -> JobRecord | None:
        """None for a job that does not exist or is being deleted."""
        return next(iter(self.jobs([job_id])), None)

    def jobs(self, job_ids: Iterable[JobId]) -> list[JobRecord]:
        """Those that exist, by id."""
        wanted = sorted(set(job_ids))

        def work(conn: sa.Connection) -> list[JobRecord]:
            rows: list[sa.Row[Any]] = []
            for begin in range(0, len(wanted), _IDS_PER_QUERY):
                query = sa.select(JOB).where(JOB.c.job_id.in_(wanted[begin : begin + _IDS_PER_QUERY]))
                rows += conn.execute(query.where(JOB.c.state != _DELETED).order_by(JOB.c.job_id))
            return [job_record(row) for row in rows]

        return self.db.read(work)

    def active_job_ids(self) -> list[JobId]:
        """Jobs that have not ended, and services with an update to roll out."""
        updating = sa.select(UPDATE.c.job_id).where(UPDATE.c.state.not_in(UPDATE_TERMINAL))
        active = sa.or_(JOB.c.state.not_in(FINISHED_STATES), JOB.c.job_id.in_(updating))
        query = sa.select(JOB.c.job_id).where(active, JOB.c.state != _DELETED).order_by(JOB.c.job_id)
        return self.db.read(lambda conn: [JobId(job_id) for job_id in conn.execute(query).scalars()])

    def create_job(self, job: JobRecord, config: job_pb2.JobConfig, now_ns: int) -> None:
        """Store a new job with version 1 of its configuration. Raises AlreadyExists."""
        job = replace(job, created_ns=job.created_ns or now_ns, updated_ns=job.updated_ns or now_ns)
        rows = OverrideRows(job.job_id, job.config_version, config).of(config.instanceConfig)

        def work(conn: sa.Connection) -> None:
            insert_alone(conn, job, config)
            insert_config(conn, job.job_id, job.config_version, config, rows, now_ns)

        try:
            self.db.write(work)
        except IntegrityError as error:
            raise AlreadyExists(f"job {job.job_id} already exists") from error

    def add_instances(
        self, job_id: JobId, config: job_pb2.JobConfig, new_count: int, expected_version: int, now_ns: int
    ) -> int:
        """Grow a job to ``new_count`` instances under a new configuration version, which is returned.

        Overrides in ``config`` of instances that exist already do not count. Raises NotFound, InvalidArgument for a
        job that has ended or would shrink, Aborted when the version is no longer ``expected_version``.
        """

        def work(conn: sa.Connection) -> int:
            row = lock_job(conn, job_id)
            if row is None:
                raise NotFound(f"job {job_id} not found")
            job = job_record(row)
            if job.state in JOB_TERMINAL:
                raise InvalidArgument(f"Job is in a terminal state:{job.state}")
            if job.config_version == expected_version + 1 and job.instance_count == new_count:
                stored = read_config(conn, job_id, job.config_version)
                if stored == _grown(config, new_count):
                    return job.config_version  # an earlier call did it
            if job.config_version != expected_version:
                raise Aborted(_ADDED_INSTANCES_VERSION)
            if new_count < job.instance_count:
                raise InvalidArgument(f"new instance count can't be less: {new_count} < {job.instance_count}")
            _store_growth(conn, job, _grown(config, new_count), config, now_ns)
            return expected_version + 1

        return self.db.write(work)

    def create_pods(self, job_id: JobId, on_chunk: Callable[[int], None]) -> int:
        """Create the pods that are missing of ``0 .. instance_count-1``, in chunks; returns how many exist.

        ``on_chunk`` hears the count after each chunk. Pods of a job whose goal is KILLED are created KILLED.
        """
        while True:
            before, count, wanted = self.db.write(lambda conn: _create_chunk(conn, job_id, self.clock_ns()))
            if count > before:
                on_chunk(count)
            if count >= wanted or count == before:
                return count

    def delete_job(self, job_id: JobId) -> None:
        """Forget an ended job and all that belongs to it. Raises InvalidArgument when it has not ended."""

        def mark(conn: sa.Connection) -> int:
            row = lock_job(conn, job_id)
            if row is None:
                return 0
            if row.state not in FINISHED_STATES:
                raise Aborted(f"Job is not in a terminal state: {convert.JOB_STATES[row.state]}")
            write_steering(conn, next_job(job_record(row), JobEvent.FORGET, self.clock_ns()))
            last = sa.select(sa.func.max(POD_EVENT.c.instance_id)).where(POD_EVENT.c.job_id == job_id)
            return max(int(row.instance_count), (conn.execute(last).scalar() or 0) + 1)  # a service may have shrunk

        def forget_chunk(conn: sa.Connection, start: int) -> bool:
            is_there = _hold_deleted(conn, job_id)
            for table in (POD_EVENT, OVERRIDE, POD) if is_there else ():
                chunk = table.c.instance_id.between(start, start + CHUNK_PODS - 1)
                conn.execute(sa.delete(table).where(table.c.job_id == job_id, chunk))
            return is_there

        instance_count = self.db.write(mark)
        for start in range(0, instance_count, CHUNK_PODS):
            if not self.db.write(partial(forget_chunk, start=start)):
                return

        def forget(conn: sa.Connection) -> None:
            if not _hold_deleted(conn, job_id):
                return
            updates = sa.select(UPDATE.c.update_id).where(UPDATE.c.job_id == job_id)
            conn.execute(sa.delete(UPDATE_EVENT).where(UPDATE_EVENT.c.update_id.in_(updates)))
            for table in (UPDATE, DISRUPTION, JOB_CONFIG, JOB):
                conn.execute(sa.delete(table).where(table.c.job_id == job_id))

        self.db.write(forget)

    def broken_deletions(self) -> list[JobId]:
        """Jobs of which something is left, and that nobody sees any more: who deletes them does, or has died."""
        query = sa.select(JOB.c.job_id).where(JOB.c.state == _DELETED).order_by(JOB.c.job_id)
        return self.db.read(lambda conn: [JobId(job_id) for job_id in conn.execute(query).scalars()])


def _hold_deleted(conn: sa.Connection, job_id: str) -> bool:
    """False when somebody else has deleted the job: its id may be that of another one by now."""
    row = lock_job(conn, job_id)
    return row is not None and row.state == _DELETED


def insert_job(conn: sa.Connection, job: JobRecord, config: job_pb2.JobConfig) -> None:
    conn.execute(JOB.insert().values(**job_values(job), search=search_text(config)))


def insert_alone(conn: sa.Connection, job: JobRecord, config: job_pb2.JobConfig) -> None:
    """The same, and nothing of a stream that creates a job of this id (ADR 29) is left.

    Whoever writes a job's first rows holds its key in ``job_stream``, so a stream and a call do not mix.
    """
    insert = sqlite.insert if conn.dialect.name == "sqlite" else postgresql.insert
    taken = insert(JOB_STREAM).values(job_id=job.job_id, token="", touched_ns=job.created_ns)
    conn.execute(taken.on_conflict_do_update(index_elements=[JOB_STREAM.c.job_id], set_={"token": ""}))
    insert_job(conn, job, config)
    for table in (OVERRIDE, JOB_STREAM):
        conn.execute(sa.delete(table).where(table.c.job_id == job.job_id))


def _grown(config: job_pb2.JobConfig, new_count: int) -> job_pb2.JobConfig:
    bare = without_instances(config)
    bare.instanceCount = new_count
    return bare


def _store_growth(
    conn: sa.Connection, job: JobRecord, bare: job_pb2.JobConfig, config: job_pb2.JobConfig, now_ns: int
) -> None:
    grown = next_job(job, JobEvent.GROW, now_ns, instance_count=bare.instanceCount)
    added = [i for i in config.instanceConfig if job.instance_count <= i < bare.instanceCount]
    rows = OverrideRows(job.job_id, job.config_version + 1, config).of(added)
    oldest = conn.execute(
        sa.select(JOB_CONFIG.c.overrides_from).where(
            JOB_CONFIG.c.job_id == job.job_id, JOB_CONFIG.c.version == job.config_version
        )
    ).scalar_one()
    insert_config(conn, job.job_id, job.config_version + 1, bare, rows, now_ns, overrides_from=oldest)
    conn.execute(
        sa.update(JOB)
        .where(JOB.c.job_id == job.job_id)
        .values(
            instance_count=grown.instance_count,
            config_version=grown.config_version,
            state=JOB_STATE_NUMBERS[grown.state],
            search=search_text(bare),
            revision=JOB.c.revision + 1,
            updated_ns=now_ns,
            **sla_values(convert.sla_spec(bare)),
        )
    )


# -- pods ----------------------------------------------------------------------------------------------------------


def _create_chunk(conn: sa.Connection, job_id: str, now_ns: int) -> tuple[int, int, int]:
    """Create the next pods; returns how many existed, how many exist, and how many there are to be."""
    row = lock_job(conn, job_id)
    if row is None:
        raise NotFound(f"job {job_id} not found")
    job = job_record(row)
    last = conn.execute(sa.select(sa.func.max(POD.c.instance_id)).where(POD.c.job_id == job_id)).scalar()
    start = 0 if last is None else last + 1  # chunks are created in order, each whole or not at all
    count = min(CHUNK_PODS, job.instance_count - start)
    if count <= 0 or job.state in JOB_TERMINAL:
        return start, start, job.instance_count
    insert_batch_pods(conn, job, start, count, now_ns)
    return start, start + count, job.instance_count
