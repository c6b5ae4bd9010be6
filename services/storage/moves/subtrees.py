"""Pools of a migration: the requested pool and its subtree."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from peloton.lifecycle.migration import binding_of
from peloton.model.job import JobRecord
from peloton.model.migration import Migration
from peloton.model.respool import pool_paths
from services.storage.moves.bindings import bind, read_bindings
from services.storage.pools import read_pools
from services.storage.tables import MIGRATION_POOL


def subtree(conn: sa.Connection, pool_id: str, path: str) -> dict[str, str]:
    """Return pool id -> path of the pool and its subtree, in order of path."""
    prefix = f"{path.rstrip('/')}/"
    below = {own_id: own for own_id, own in pool_paths(read_pools(conn)).items() if own.startswith(prefix)}
    return {pool_id: path} | dict(sorted(below.items(), key=lambda row: row[1]))


def insert_pools(conn: sa.Connection, migration: Migration) -> None:
    """Store the pools of a migration with their current bindings."""
    pools = subtree(conn, migration.object_id, migration.name)
    before = read_bindings(conn, *pools)
    rows = [
        {"migration_id": migration.migration_id, "pool_id": pool_id, "bound_before": before.get(pool_id, "")}
        for pool_id in pools
    ]
    conn.execute(MIGRATION_POOL.insert(), rows)


def bindings_of(conn: sa.Connection, migration: Migration) -> dict[str, str]:
    """Return the binding of the migration's job or of each of its pools, in the migration's current state.

    A rollback restores the former binding of each pool; a pool created since is bound like the requested pool.
    """
    if not migration.is_pool:
        return {migration.object_id: binding_of(migration)}
    before = _before(conn, migration)
    return {
        pool_id: binding_of(replace(migration, bound_before=before.get(pool_id, migration.bound_before)))
        for pool_id in subtree(conn, migration.object_id, migration.name)
    }


def as_of(conn: sa.Connection, migration: Migration, job: JobRecord) -> Migration:
    """Return the migration with the former binding of the job's own pool."""
    if not migration.is_pool:
        return migration
    return replace(migration, bound_before=_before(conn, migration).get(job.respool_id, migration.bound_before))


def _before(conn: sa.Connection, migration: Migration) -> dict[str, str]:
    mine = MIGRATION_POOL.c.migration_id == migration.migration_id
    query = sa.select(MIGRATION_POOL.c.pool_id, MIGRATION_POOL.c.bound_before).where(mine)
    return {row.pool_id: row.bound_before for row in conn.execute(query)}


def bind_all(conn: sa.Connection, migration: Migration) -> None:
    for object_id, binding in bindings_of(conn, migration).items():
        bind(conn, object_id, binding)
