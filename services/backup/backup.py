"""Backups of both stores while Peloton runs, and their restoration while it is stopped.

The copies need not be of one moment. A host manager that finds a restored database launches nothing until it has
compared it with its cluster (``services/hostmgr/restored.py``); lost signals and workflows are repaired as after any
crash.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from temporalio.service import RPCError

from peloton.errors import Aborted, InvalidArgument, Unavailable
from services.backup import manifest, postgres_copy, schedules, sqlite_copy
from services.backup.manifest import Manifest
from services.settings import Settings
from services.storage import migrate, schema_version, sqlite_files
from services.storage.engine import Database
from services.storage.restored import note_restoration
from services.temporal import connection as temporal_connection

DATABASE, TEMPORAL = "peloton.db", "temporal.db"


class Part(StrEnum):
    DATABASE = "database"
    TEMPORAL = "temporal"
    SCHEDULES = "schedules"


@dataclass(frozen=True)
class Stores:
    """Addresses of the stores."""

    database: str
    temporal_file: Path | None
    """The file of an embedded Temporal; None: its server has a store of its own."""


def take(settings: Settings, stores: Stores, folder: Path, release: str, has_schedules: bool) -> Manifest:
    """Write a backup into a new folder. Raises InvalidArgument, Unavailable."""
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise InvalidArgument(f"{folder} exists: name a new folder") from None
    schema = schema_version.of(stores.database)
    if not schema:
        raise Unavailable(f"database {sa.make_url(stores.database).render_as_string()} has no schema")
    db = schema_version.open_database(stores.database)
    try:
        made = Manifest(release, schema, "sqlite" if db.is_sqlite else "postgresql", time.time())
        if db.is_sqlite:
            sqlite_copy.copy(_path_of(db), folder / DATABASE)
        else:
            made = replace(made, tables=postgres_copy.export(db, folder))
    finally:
        db.close()
    if stores.temporal_file is not None:
        sqlite_copy.copy(stores.temporal_file, folder / TEMPORAL)
        made = replace(made, has_temporal=True)
    if has_schedules:
        made = replace(made, schedule_count=asyncio.run(_export_schedules(settings, folder)))
    files = {path.name: manifest.checksum(path) for path in sorted(folder.iterdir())}
    made = replace(made, files=files)
    manifest.write(folder, made)
    return made


def restore(settings: Settings, stores: Stores, folder: Path, parts: Collection[Part], may_replace: bool) -> list[str]:
    """Restore parts of a backup; return a line for each. All roles must have stopped, and Temporal for its store.
    Raises InvalidArgument, Aborted, Unavailable.
    """
    made = manifest.read(folder)
    if Part.TEMPORAL in parts and not made.has_temporal:
        raise InvalidArgument(f"{folder} has no copy of Temporal's store")
    if Part.TEMPORAL in parts and stores.temporal_file is None:
        raise InvalidArgument("the file of Temporal's store is not named")
    if Part.SCHEDULES in parts and made.schedule_count is None:
        raise InvalidArgument(f"{folder} has no schedules")
    temporal = stores.temporal_file if Part.TEMPORAL in parts else None
    if temporal is not None and temporal.exists() and not may_replace:
        raise Aborted(f"{temporal} exists: stop Temporal, and allow to replace it")
    done = []
    if Part.DATABASE in parts:
        done.append(_restore_database(stores.database, folder, made, may_replace))
    if temporal is not None:
        done.append(_put_back(folder / TEMPORAL, temporal))
    if Part.SCHEDULES in parts:
        done.append(asyncio.run(_load_schedules(settings, folder)))
    return done


def _restore_database(url: str, folder: Path, made: Manifest, may_replace: bool) -> str:
    parsed = sa.make_url(url)
    if not made.dialect.startswith(parsed.get_backend_name()):  # postgres is postgresql
        raise InvalidArgument(
            f"{folder} is a backup of {made.dialect}, and cannot be restored into {parsed.render_as_string()}"
        )
    if made.schema != schema_version.newest():
        raise InvalidArgument(
            f"{folder} has schema {made.schema} of release {made.release}, and this release has "
            f"{schema_version.newest()}: restore with that release, then upgrade"
        )
    try:
        _check_replaceable(url, may_replace)
    except (Unavailable, DBAPIError) as error:
        if not (may_replace and sqlite_files.is_damage(error)):  # a damaged database may be replaced
            raise
    if made.dialect == "sqlite":
        done = _put_back(folder / DATABASE, Path(parsed.database or ""))
    else:
        migrate.upgrade(url)
        db = schema_version.open_database(url)
        try:
            postgres_copy.load(db, folder, made.tables)
        finally:
            db.close()
        done = f"{parsed.render_as_string()} restored"
    db = schema_version.open_database(url)
    try:
        note_restoration(db, time.time_ns())
    finally:
        db.close()
    return done


def _check_replaceable(url: str, may_replace: bool) -> None:
    """Raise Aborted while a role leads, or if there is something to lose."""
    if not schema_version.of(url):
        return
    leaders = sa.text("SELECT role FROM lease WHERE expires_s > :now ORDER BY role")
    counts = sa.text("SELECT count(*) FROM job")
    db = schema_version.open_database(url)
    try:
        with db.reading() as conn:
            leading = list(conn.execute(leaders, {"now": time.time()}).scalars())
            job_count = conn.execute(counts).scalar_one()
    finally:
        db.close()
    if leading:
        raise Aborted(f"{', '.join(leading)} is led: stop all roles first, and wait for the end of the lease")
    if job_count and not may_replace:
        raise Aborted(f"the database has {job_count} jobs: allow to replace them")


def _put_back(copied: Path, target: Path) -> str:
    replaced = sqlite_copy.put_back(copied, target)
    return f"{target} restored" + (f"; the previous file is {replaced.name}" if replaced else "")


async def _export_schedules(settings: Settings, folder: Path) -> int:
    config = temporal_connection.connect_config(settings.temporal, settings.temporal_namespace)
    try:
        client = await temporal_connection.connect(config, "backup", is_lazy=False)
        return await schedules.export(client, folder)
    except (RPCError, RuntimeError) as error:
        raise Unavailable(f"Temporal at {config['target_host']} does not list schedules: {error}") from error


async def _load_schedules(settings: Settings, folder: Path) -> str:
    config = temporal_connection.connect_config(settings.temporal, settings.temporal_namespace)
    try:
        client = await temporal_connection.connect(config, "restore", is_lazy=False)
        created, present = await schedules.load(client, folder)
    except (RPCError, RuntimeError) as error:
        raise Unavailable(f"Temporal at {config['target_host']} does not take schedules: {error}") from error
    return f"{created} schedules created, {present} existed already"


def _path_of(db: Database) -> Path:
    return Path(db.engine.url.database or "")
