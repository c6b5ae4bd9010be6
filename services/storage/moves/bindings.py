"""Bindings of jobs and pools to clusters."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.model.job import JobRecord, JobType
from services.storage.tables import CLUSTER_BINDING

_ID_LENGTH = 36
"""Length of the ids of jobs, and of pools other than the root."""

_READING = sa.select(CLUSTER_BINDING).where(CLUSTER_BINDING.c.object_id.in_(sa.bindparam("of_objects", expanding=True)))


def binding_of_job(conn: sa.Connection, job: JobRecord) -> str:
    """Return the binding of a job, or else of its pool; "" without one.

    External pods stay in the cluster where they were created, and daemons run everywhere.
    """
    if job.type in (JobType.EXTERNAL, JobType.DAEMON):
        return ""
    found = read_bindings(conn, job.job_id, job.respool_id)
    return found.get(job.job_id) or found.get(job.respool_id, "")


def read_bindings(conn: sa.Connection, *object_ids: str) -> dict[str, str]:
    return {row.object_id: row.binding for row in conn.execute(_READING, {"of_objects": object_ids})}


def bound_elsewhere(conn: sa.Connection, cluster: str) -> list[str]:
    """Return ids of jobs that are bound to another cluster."""
    other = sa.and_(CLUSTER_BINDING.c.binding != cluster, sa.func.length(CLUSTER_BINDING.c.object_id) == _ID_LENGTH)
    query = sa.select(CLUSTER_BINDING.c.object_id).where(other).order_by(CLUSTER_BINDING.c.object_id)
    return list(conn.execute(query).scalars())


def bind(conn: sa.Connection, object_id: str, binding: str) -> None:
    """Bind a job or pool; an empty binding removes it."""
    conn.execute(sa.delete(CLUSTER_BINDING).where(CLUSTER_BINDING.c.object_id == object_id))
    if binding:
        conn.execute(CLUSTER_BINDING.insert().values(object_id=object_id, binding=binding))
