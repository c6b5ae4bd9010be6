"""Rows of migrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from peloton.model.migration import (
    MIGRATION_TERMINAL,
    Migration,
    MigrationProgress,
    MigrationSpec,
    MigrationState,
    ServiceProgress,
    ServiceState,
)
from services.storage.mapper import Mapper, json_form, strip_nul, to_json
from services.storage.tables import MIGRATION, MIGRATION_POOL, MIGRATION_SERVICE
from services.storage.updates import instances

MIGRATIONS_KEPT = 1_000
"""Number of ended migrations kept."""
_ENDED = MIGRATION.c.state.in_(sorted(MIGRATION_TERMINAL))


_MIGRATIONS = Mapper(
    Migration, MIGRATION, spec=json_form(MigrationSpec), progress=json_form(MigrationProgress, empty=None)
)
migration_record = _MIGRATIONS.record


def read_migration(conn: sa.Connection, migration_id: str) -> Migration | None:
    row = conn.execute(sa.select(MIGRATION).where(MIGRATION.c.migration_id == migration_id)).one_or_none()
    return None if row is None else migration_record(row)


def read_active(conn: sa.Connection) -> list[Migration]:
    """Read unfinished migrations in the order of the requests."""
    query = sa.select(MIGRATION).where(~_ENDED).order_by(MIGRATION.c.seq)
    return [migration_record(row) for row in conn.execute(query)]


def read_latest(conn: sa.Connection, limit: int, object_id: str = "") -> list[Migration]:
    """Read the newest migrations, of one object or of all."""
    query = sa.select(MIGRATION).order_by(MIGRATION.c.seq.desc()).limit(limit)
    if object_id:
        query = query.where(MIGRATION.c.object_id == object_id)
    return [migration_record(row) for row in conn.execute(query)]


def insert_migration(conn: sa.Connection, one: Migration, services: Sequence[tuple[str, str]], seq: int) -> None:
    """Insert a migration with its services, ``(job id, name)``, and delete the oldest ended ones."""
    conn.execute(MIGRATION.insert().values(**_MIGRATIONS.values(one), seq=seq))
    rows = [
        {
            "migration_id": one.migration_id,
            "job_id": job_id,
            "name": name,
            "state": ServiceState.WAITING,
            "moved": "",
            "left_count": 0,
            "waiting_for": "",
        }
        for job_id, name in services
    ]
    if rows:
        conn.execute(MIGRATION_SERVICE.insert(), rows)
    kept = sa.select(MIGRATION.c.migration_id).where(_ENDED).order_by(MIGRATION.c.seq.desc()).offset(MIGRATIONS_KEPT)
    for gone in conn.execute(kept.limit(MIGRATIONS_KEPT)).scalars().all():
        for table in (MIGRATION_SERVICE, MIGRATION_POOL, MIGRATION):
            conn.execute(sa.delete(table).where(table.c.migration_id == gone))


def write_state(conn: sa.Connection, migration_id: str, state: MigrationState, now_ns: int) -> None:
    values: dict[str, Any] = {"state": state, "updated_ns": now_ns}
    if state in MIGRATION_TERMINAL:
        values["completed_ns"] = now_ns
    conn.execute(sa.update(MIGRATION).where(MIGRATION.c.migration_id == migration_id).values(**values))


def write_progress(conn: sa.Connection, migration_id: str, progress: MigrationProgress, now_ns: int) -> None:
    text = to_json(progress)
    mine = sa.and_(MIGRATION.c.migration_id == migration_id, MIGRATION.c.progress != text)
    conn.execute(sa.update(MIGRATION).where(mine).values(progress=text, updated_ns=now_ns))


# -- services --------------------------------------------------------------------------------------------------------


def read_services(conn: sa.Connection, migration_id: str) -> list[ServiceProgress]:
    """Read the progress of services, by name."""
    query = sa.select(MIGRATION_SERVICE).where(MIGRATION_SERVICE.c.migration_id == migration_id)
    rows = conn.execute(query.order_by(MIGRATION_SERVICE.c.name, MIGRATION_SERVICE.c.job_id))
    return [
        ServiceProgress(
            row.job_id,
            row.name,
            ServiceState(row.state),
            len(instances.from_text(row.moved)),
            row.left_count,
            row.waiting_for,
        )
        for row in rows
    ]


def read_moved(conn: sa.Connection, migration_id: str, job_id: str) -> frozenset[int]:
    query = sa.select(MIGRATION_SERVICE.c.moved).where(_service(migration_id, job_id))
    return instances.from_text(conn.execute(query).scalar() or "")


def write_service(
    conn: sa.Connection,
    migration_id: str,
    job_id: str,
    state: ServiceState,
    moved: frozenset[int],
    left_count: int = 0,
    waiting_for: str = "",
) -> None:
    values = {
        "state": state,
        "moved": instances.to_text(moved),
        "left_count": left_count,
        "waiting_for": strip_nul(waiting_for),
    }
    conn.execute(sa.update(MIGRATION_SERVICE).where(_service(migration_id, job_id)).values(**values))


def turn_back(conn: sa.Connection, migration_id: str) -> None:
    """Set services with moved instances back to MOVING, and the others to DONE."""
    mine = MIGRATION_SERVICE.c.migration_id == migration_id
    for has_moved, state in ((True, ServiceState.MOVING), (False, ServiceState.DONE)):
        which = MIGRATION_SERVICE.c.moved != "" if has_moved else MIGRATION_SERVICE.c.moved == ""
        values = {"state": state, "left_count": 0, "waiting_for": ""}
        conn.execute(sa.update(MIGRATION_SERVICE).where(mine, which).values(**values))


def _service(migration_id: str, job_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(MIGRATION_SERVICE.c.migration_id == migration_id, MIGRATION_SERVICE.c.job_id == job_id)
