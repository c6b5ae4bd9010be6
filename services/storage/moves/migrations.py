"""Migrations of jobs and pools to another cluster, and the bindings that they change.

Requests take the counter of migrations first, which serialises them, so that each sees the others.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import JOB_TYPE_NUMBERS
from peloton.errors import Aborted, InvalidArgument, NotFound
from peloton.lifecycle.migration import (
    after_act,
    progress_of,
    refusal_of,
    services_to_step,
)
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobType
from peloton.model.migration import (
    Migration,
    MigrationAct,
    MigrationLoad,
    MigrationProgress,
    MigrationSpec,
    MigrationState,
    ServiceProgress,
)
from services.storage.engine import Database, Repository, reading, take_numbers, writing
from services.storage.jobs.rows import read_job
from services.storage.moves.bindings import bind, binding_of_job, bound_elsewhere, read_bindings
from services.storage.moves.loads import load_of
from services.storage.moves.rows import (
    insert_migration,
    read_active,
    read_latest,
    read_migration,
    read_services,
    turn_back,
    write_progress,
    write_state,
)
from services.storage.moves.steps import batch_jobs_to_leave, evict_batch, step_service
from services.storage.moves.subtrees import bind_all, bindings_of, insert_pools, subtree
from services.storage.tables import IS_ACTIVE, JOB

SEQ = "migration"
SERVICES_MAX = 1_000
"""Maximum number of services in one migration."""
BATCH_JOBS_PER_STEP = 20
BOUND_PER_QUERY = 500


class Migrations(Repository):
    # -- operator requests

    def request(self, job: JobRecord | None, pool: tuple[RespoolId, str] | None, spec: MigrationSpec) -> Migration:
        """Bind a job, or a pool (id and path) with its subtree, to the target and start moving it.

        A repeated request returns the migration under way. Raises Aborted, InvalidArgument.
        """
        object_id, name = (job.job_id, job.name or job.job_id) if job is not None else pool or ("", "")
        now_ns = self._db.clock_ns()
        asked = Migration(str(uuid.uuid4()), object_id, job is None, name, spec, created_ns=now_ns, updated_ns=now_ns)

        def work(conn: sa.Connection) -> Migration:
            seq = take_numbers(conn, SEQ, 1)
            for other in read_active(conn):
                if other.object_id == object_id and other.spec == spec and other.state is MigrationState.MIGRATING:
                    return other
                if _concerns(conn, other, asked, job):
                    under_way = (
                        f"{_kind(other)} {other.name} to cluster {other.spec.target} is under way ({other.state})"
                    )
                    raise Aborted(f"{under_way}: wait for its end, or roll it back")
            services = _services_of(conn, asked, job)
            migration = replace(asked, bound_before=read_bindings(conn, object_id).get(object_id, ""))
            insert_migration(conn, migration, services, seq)
            if migration.is_pool:
                insert_pools(conn, migration)
            bind_all(conn, migration)
            return migration

        return self._db.write(work)

    @writing
    def steer(self, conn: sa.Connection, migration_id: str, act: MigrationAct) -> Migration:
        """Pause, resume or roll back a migration. Raises NotFound, Aborted."""
        now_ns = self._db.clock_ns()
        take_numbers(conn, SEQ, 0)
        migration = read_migration(conn, migration_id)
        if migration is None:
            raise NotFound(f"migration {migration_id} not found")
        if refusal := refusal_of(act, migration):
            raise Aborted(refusal)
        after = replace(migration, state=after_act(migration, act), updated_ns=now_ns)
        if after.state is migration.state:
            return migration
        write_state(conn, migration_id, after.state, now_ns)
        if after.state is MigrationState.ROLLING_BACK:
            turn_back(conn, migration_id)
            bind_all(conn, after)
        return after

    @writing
    def release(self, conn: sa.Connection, job: JobRecord | None, pool: tuple[RespoolId, str] | None) -> str:
        """Remove the binding of a job, or of a pool (id and path); returns the old binding, "" for none.

        Equal bindings of pools below it are removed with it. Raises Aborted.
        """
        object_id, name = (job.job_id, job.name or job.job_id) if job is not None else pool or ("", "")
        take_numbers(conn, SEQ, 0)
        concerned = {object_id: name} if job is not None else subtree(conn, object_id, name)
        for other in read_active(conn):
            if not set(bindings_of(conn, other)).isdisjoint(concerned):
                where_to = f"to cluster {other.spec.target}"
                raise Aborted(f"the migration of {other.name} {where_to} is under way ({other.state}): roll it back")
        found = read_bindings(conn, *concerned)
        before = found.get(object_id, "")
        for one in concerned:
            if found.get(one, "") == before:
                bind(conn, one, "")
        return before

    @reading
    def load(
        self, conn: sa.Connection, job: JobRecord | None, pool: tuple[RespoolId, str] | None, spec: MigrationSpec
    ) -> MigrationLoad:
        """Compute the load of migrating a job, or a pool (id and path); scans the pods of active jobs."""
        if job is not None:
            objects, column = [str(job.job_id)], JOB.c.job_id
        else:
            objects, column = list(subtree(conn, *pool)) if pool else [], JOB.c.respool_id
        alive = sa.and_(
            column.in_(objects),
            IS_ACTIVE,
            JOB.c.type == JOB_TYPE_NUMBERS[JobType.SERVICE],
        )
        services = conn.execute(sa.select(JOB.c.job_id).where(alive).order_by(JOB.c.job_id)).scalars().all()
        batch = batch_jobs_to_leave(conn, dict.fromkeys(objects, spec.target), job is None)
        return load_of(conn, services, batch, spec)

    # -- reading

    def get(self, migration_id: str) -> Migration | None:
        return self._db.read(partial(read_migration, migration_id=migration_id))

    def latest(self, limit: int, object_id: str = "") -> list[Migration]:
        """Return the newest migrations, of one object or of all."""
        return self._db.read(partial(read_latest, limit=limit, object_id=object_id))

    def active(self) -> list[Migration]:
        """Return unfinished migrations in the order of the requests."""
        return self._db.read(read_active)

    def services(self, migration_id: str) -> list[ServiceProgress]:
        """Return the progress of the services of a migration, by name."""
        return self._db.read(partial(read_services, migration_id=migration_id))

    def binding(self, job: JobRecord) -> str:
        """Return the binding of the job, or else of its pool; "" without one."""
        return self._db.read(partial(binding_of_job, job=job))

    # -- steps

    def advance(self, migration_id: str) -> MigrationProgress:
        """Take one step of a migration, as a chain of transactions that can be interrupted anywhere and repeated."""
        db = self._db
        migration = self.get(migration_id)
        if migration is None:
            return MigrationProgress(MigrationState.ROLLED_BACK)
        to_wake: list[str] = []
        batch_left = 0
        if migration.is_active and migration.state is not MigrationState.PAUSED:
            for one in services_to_step(self.services(migration_id), migration.spec.services_at_once):
                step = partial(step_service, migration_id=migration_id, job_id=JobId(one.job_id), now_ns=db.clock_ns())
                if db.write(step):
                    to_wake.append(one.job_id)
            if migration.spec.evicts_batch:
                batch_left = self._evict_batch(migration, to_wake)
        return db.write(partial(_note, migration_id=migration_id, batch_left=batch_left, to_wake=to_wake, db=db))

    def _evict_batch(self, migration: Migration, to_wake: list[str]) -> int:
        """Evict batch pods from clusters that they have to leave; returns the number of misplaced batch pods."""
        leaving = self._db.read(lambda conn: batch_jobs_to_leave(conn, bindings_of(conn, migration), migration.is_pool))
        for job_id, _ in leaving[:BATCH_JOBS_PER_STEP]:
            evict = partial(
                evict_batch, migration_id=migration.migration_id, job_id=JobId(job_id), now_ns=self._db.clock_ns()
            )
            if self._db.write(evict):
                to_wake.append(job_id)
        return sum(count for _, count in leaving)


def _note(
    conn: sa.Connection, migration_id: str, batch_left: int, to_wake: Sequence[str], db: Database
) -> MigrationProgress:
    """Record the progress of a migration, and its end; reads its state again, since operators may have changed it."""
    take_numbers(conn, SEQ, 0)
    migration = read_migration(conn, migration_id)
    assert migration is not None, f"migration {migration_id} is forgotten while it is under way"
    progress = progress_of(migration, read_services(conn, migration_id), batch_left, to_wake)
    now_ns = db.clock_ns()
    if progress.state is not migration.state:
        write_state(conn, migration_id, progress.state, now_ns)
        bind_all(conn, replace(migration, state=progress.state))
    if migration.is_active:
        write_progress(conn, migration_id, progress, now_ns)
    return progress


def _kind(migration: Migration) -> str:
    return "the migration of pool" if migration.is_pool else "the migration of job"


def _concerns(conn: sa.Connection, other: Migration, asked: Migration, job: JobRecord | None) -> bool:
    """Return whether both migrations would move the same pods."""
    if other.object_id == asked.object_id:
        return True
    theirs = set(bindings_of(conn, other)) if other.is_pool else set()
    if job is not None:
        return job.respool_id in theirs
    mine = subtree(conn, asked.object_id, asked.name)
    if other.is_pool:
        return not theirs.isdisjoint(mine)
    there = read_job(conn, other.object_id)
    return there is not None and there.respool_id in mine


def _services_of(conn: sa.Connection, asked: Migration, job: JobRecord | None) -> list[tuple[str, str]]:
    """Return ``(job id, name)`` of the services that move. Raises Aborted, InvalidArgument."""
    if job is not None:
        return [(job.job_id, job.name or job.job_id)] if job.type is JobType.SERVICE else []
    pools = subtree(conn, asked.object_id, asked.name)
    alive = sa.and_(JOB.c.respool_id.in_(list(pools)), IS_ACTIVE)
    elsewhere = [object_id for object_id in bound_elsewhere(conn, asked.spec.target) if object_id not in pools]
    for start in range(0, len(elsewhere), BOUND_PER_QUERY):
        some = JOB.c.job_id.in_(elsewhere[start : start + BOUND_PER_QUERY])
        for other in conn.execute(sa.select(JOB.c.job_id, JOB.c.name).where(alive, some).limit(1)):
            raise Aborted(
                f"job {other.name or other.job_id} of pool {asked.name} is bound to another cluster by a migration of "
                f"its own: release it first (peloton migration release {other.job_id})"
            )
    query = sa.select(JOB.c.job_id, JOB.c.name, JOB.c.respool_id)
    query = query.where(alive, JOB.c.type == JOB_TYPE_NUMBERS[JobType.SERVICE]).limit(SERVICES_MAX + 1)
    within = {pool_id: _relative_prefix(path, asked.name) for pool_id, path in pools.items()}
    found = [(row.job_id, within[row.respool_id] + (row.name or row.job_id)) for row in conn.execute(query)]
    if len(found) > SERVICES_MAX:
        raise InvalidArgument(f"pool {asked.name} has more than {SERVICES_MAX} services, the most of one migration")
    return sorted(found, key=lambda row: row[::-1])


def _relative_prefix(path: str, above: str) -> str:
    """Return a path prefix for the names of services in lower pools, so that services move pool by pool."""
    return f"{path.removeprefix(above.rstrip('/')).removeprefix('/')}/" if path != above else ""
