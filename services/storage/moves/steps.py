"""Steps of migrations: each reads, decides (``lifecycle.migration``) and takes pods down in one transaction.

The transaction locks the job. The job's own workflow then ends, queues, places and starts the pods like any others.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from peloton.api.convert import JOB_TYPE_NUMBERS
from peloton.lifecycle.migration import (
    ServicePods,
    batch_of,
    binding_of,
    may_be_in,
    next_service_step,
    service_waits,
)
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobRecord, JobType
from peloton.model.migration import Migration, MigrationState, ServiceState
from peloton.model.pod import TerminationReason
from peloton.model.update_text import sla_text
from services.storage.admission.evictions import evict_staying
from services.storage.jobs.rows import hold_job
from services.storage.moves.rows import read_migration, read_moved, write_service
from services.storage.moves.subtrees import as_of
from services.storage.pods.scope import ON_HOST_NUMBERS
from services.storage.pods.sql import GOAL_ALIVE, RUN_SUPERSEDED
from services.storage.tables import IS_ACTIVE, JOB, POD
from services.storage.updates import instances
from services.storage.updates.disruptions import take_down
from services.storage.updates.rows import read_update

EVICTED_PODS_MAX = 1_000
"""Maximum number of batch pods evicted in one step, not counting the rest of their gangs."""
_STEPPING = (MigrationState.MIGRATING, MigrationState.ROLLING_BACK)


def step_service(conn: sa.Connection, migration_id: str, job_id: JobId, now_ns: int) -> bool:
    """Take down the next pods of a service; returns whether any of its pods are ending."""
    job, migration = hold_job(conn, job_id), read_migration(conn, migration_id)
    if migration is None or migration.state not in _STEPPING:
        return False
    moved = read_moved(conn, migration_id, job_id)
    if job is None or job.state in JOB_TERMINAL:
        write_service(conn, migration_id, job_id, ServiceState.DONE, moved)
        return False
    pods = _pods_of(conn, job, moved)
    batch = batch_of(migration.spec, job.instance_count)
    step = next_service_step(pods, as_of(conn, migration, job), batch)
    update = read_update(conn, job.update_id) if job.update_id else None
    if update is not None and update.is_active and step.ask:
        waits = f"update {update.update_id} to end ({update.state})"
        write_service(
            conn, migration_id, job_id, ServiceState.MOVING, moved=moved, left_count=step.left_count, waiting_for=waits
        )
        return bool(pods.leaving)
    where_to, refusal, granted = _direction(migration), "", tuple[int, ...]()
    if step.ask:
        why = TerminationReason.KILLED_HOST_MAINTENANCE
        grant = take_down(
            conn, job, frozenset(step.ask), why, message=f"migration {where_to}", checks_sla=True, now_ns=now_ns
        )
        refusal, granted = sla_text(grant.refusal) if grant.refusal else "", grant.granted
    waits = service_waits(step, refusal, len(granted), where_to.removeprefix("to "))
    state = ServiceState.DONE if step.is_done else ServiceState.MOVING
    left = step.left_count - len(granted)
    write_service(
        conn, migration_id, job_id, state, moved=moved | frozenset(granted), left_count=left, waiting_for=waits
    )
    return bool(granted or pods.leaving)


def _direction(migration: Migration) -> str:
    target = migration.spec.target
    return f"to cluster {target}" if migration.state is MigrationState.MIGRATING else f"back from cluster {target}"


def _pods_of(conn: sa.Connection, job: JobRecord, moved: frozenset[int]) -> ServicePods:
    on_hosts = sa.and_(POD.c.job_id == job.job_id, POD.c.state.in_(ON_HOST_NUMBERS), GOAL_ALIVE)
    query = sa.select(POD.c.instance_id, POD.c.cluster, RUN_SUPERSEDED.label("is_leaving")).where(on_hosts)
    rows = conn.execute(query).all()
    missing = instances.missing_of(conn, job.job_id)
    leaving = frozenset(row.instance_id for row in rows if row.is_leaving)
    return ServicePods({row.instance_id: row.cluster for row in rows}, leaving, missing, moved)


# -- batch -----------------------------------------------------------------------------------------------------------


def batch_jobs_to_leave(conn: sa.Connection, bindings: Mapping[str, str], is_pool: bool) -> list[tuple[str, int]]:
    """Return batch jobs with pods in clusters that they have to leave, and the numbers of these pods.

    ``bindings`` is keyed by the id of the job or the pools. The query scans the pods of active jobs, since no index
    covers the cluster of a pod.
    """
    mine = JOB.c.respool_id if is_pool else JOB.c.job_id
    query = (
        sa.select(POD.c.job_id, mine, POD.c.cluster, sa.func.count())
        .join(JOB, JOB.c.job_id == POD.c.job_id)
        .where(
            mine.in_(list(bindings)),
            IS_ACTIVE,
            JOB.c.type == JOB_TYPE_NUMBERS[JobType.BATCH],
        )
        .where(POD.c.state.in_(ON_HOST_NUMBERS), GOAL_ALIVE)
        .group_by(POD.c.job_id, mine, POD.c.cluster)
        .order_by(POD.c.job_id)
    )
    found: dict[str, int] = {}
    for job_id, object_id, cluster, count in conn.execute(query):
        if not may_be_in(cluster, bindings[object_id]):
            found[job_id] = found.get(job_id, 0) + count
    return list(found.items())


def evict_batch(conn: sa.Connection, migration_id: str, job_id: JobId, now_ns: int) -> bool:
    """Evict misplaced pods of a batch job and queue them again without a failure. Gangs leave as a whole."""
    job, migration = hold_job(conn, job_id), read_migration(conn, migration_id)
    if job is None or job.type is not JobType.BATCH or migration is None or migration.state not in _STEPPING:
        return False
    binding = binding_of(as_of(conn, migration, job))
    cluster = binding.removeprefix("!")
    misplaced = POD.c.cluster == cluster if binding.startswith("!") else POD.c.cluster != cluster
    evict_staying(conn, job, misplaced, f"migration {_direction(migration)}", now_ns, EVICTED_PODS_MAX)
    return True
