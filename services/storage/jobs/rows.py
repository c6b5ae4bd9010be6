"""Rows of jobs: creation and growth."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from peloton.api import convert
from peloton.api.convert import JOB_STATE_NUMBERS
from peloton.api.v0.job import job_pb2
from peloton.lifecycle.job_machine import JobEvent, next_job
from peloton.model.job import JobRecord, JobType
from services.storage.codec import job_record, job_values
from services.storage.engine import lock_job, read_job_row
from services.storage.jobs.configs import OverrideRows, insert_config, search_text, without_instances
from services.storage.jobs.wakes import note_wakes
from services.storage.tables import JOB, JOB_CONFIG, JOB_STREAM, OVERRIDE
from services.storage.volumes.rows import reclaim_volumes

_INSERTING = JOB.insert()
_FORGETTING_STREAM = [
    sa.delete(table).where(table.c.job_id == sa.bindparam("of_job")) for table in (OVERRIDE, JOB_STREAM)
]


def read_job(conn: sa.Connection, job_id: str) -> JobRecord | None:
    row = read_job_row(conn, job_id)
    return None if row is None else job_record(row)


def hold_job(conn: sa.Connection, job_id: str) -> JobRecord | None:
    """Read a job and lock it: no other transaction writes the job or its pods until the commit."""
    row = lock_job(conn, job_id)
    return None if row is None else job_record(row)


def insert_job(conn: sa.Connection, job: JobRecord, config: job_pb2.JobConfig) -> None:
    """Insert a job. Raises InvalidArgument for a service that cannot reuse the volumes of a former one of its id."""
    conn.execute(_INSERTING, {**job_values(job), "search": search_text(config)})
    note_wakes(conn, [job.job_id], job.created_ns)
    if job.type is JobType.SERVICE:
        reclaim_volumes(conn, job, config)


def insert_alone(conn: sa.Connection, job: JobRecord, config: job_pb2.JobConfig) -> None:
    """Insert a job and delete a stream that creates a job of this id (ADR 29).

    The writer of a job's first rows holds its key in ``job_stream``, so a stream and a call do not mix.
    """
    named = {"job_id": job.job_id, "token": "", "touched_ns": job.created_ns}
    conn.execute(_take_key(conn.dialect.name), named)
    insert_job(conn, job, config)
    for statement in _FORGETTING_STREAM:
        conn.execute(statement, {"of_job": job.job_id})


@cache
def _take_key(dialect: str) -> Any:
    insert: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return insert(JOB_STREAM).on_conflict_do_update(index_elements=[JOB_STREAM.c.job_id], set_={"token": ""})


def grown_config(config: job_pb2.JobConfig, new_count: int) -> job_pb2.JobConfig:
    bare = without_instances(config)
    bare.instanceCount = new_count
    return bare


def store_growth(
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
            **asdict(convert.sla_spec(bare)),
        )
    )
    note_wakes(conn, [job.job_id], now_ns)
