"""Deletion of the rows of ended jobs, within a transaction that holds the jobs."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from services.storage.tables import (
    CLUSTER_BINDING,
    DAEMON_HOST,
    DISRUPTION,
    JOB,
    JOB_CONFIG,
    JOB_SECRET,
    JOB_WAKE,
    OVERRIDE,
    POD,
    POD_CONTAINERS,
    POD_EVENT,
    UPDATE,
    UPDATE_EVENT,
    VOLUME,
)

BY_INSTANCE = (POD_EVENT, POD_CONTAINERS, OVERRIDE, DAEMON_HOST, POD)
"""Tables with rows for each instance, in the order of deletion."""


def forget_instances(conn: sa.Connection, job_ids: Sequence[str], start: int, count: int) -> int:
    """Delete all rows of these instances; returns their number."""
    span = (start, start + count - 1)
    deleted = 0
    for table in BY_INSTANCE:
        mine = sa.and_(table.c.job_id.in_(job_ids), table.c.instance_id.between(*span))
        deleted += conn.execute(sa.delete(table).where(mine)).rowcount
    return deleted


def forget_jobs(conn: sa.Connection, job_ids: Sequence[str]) -> int:
    """Delete jobs whose instances are deleted, with all that belongs to them; returns the number of rows."""
    updates = sa.select(UPDATE.c.update_id).where(UPDATE.c.job_id.in_(job_ids))
    statements = [sa.delete(UPDATE_EVENT).where(UPDATE_EVENT.c.update_id.in_(updates))]
    statements += [
        sa.delete(table).where(table.c.job_id.in_(job_ids))
        for table in (UPDATE, DISRUPTION, JOB_CONFIG, JOB_SECRET, JOB_WAKE, JOB)
    ]
    statements.append(sa.delete(CLUSTER_BINDING).where(CLUSTER_BINDING.c.object_id.in_(job_ids)))
    statements.append(sa.delete(VOLUME).where(VOLUME.c.job_id.in_(job_ids), VOLUME.c.host == ""))  # no data
    return sum(conn.execute(statement).rowcount for statement in statements)
