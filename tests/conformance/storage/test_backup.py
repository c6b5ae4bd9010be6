"""Backups of both databases while others write, and their restoration."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from peloton.errors import Aborted, InvalidArgument, Unavailable
from services.backup import manifest
from services.backup.backup import Part, Stores, restore, take
from services.backup.manifest import Manifest
from services.backup.sqlite_copy import SIDE_FILES
from services.settings import Settings
from services.storage import migrate, schema_version
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, K

CLUSTER = "east"


def back_up(url: str, folder: Path) -> Manifest:
    return take(Settings(), Stores(url, None), folder, "0.2", has_schedules=False)


def bring_back(url: str, folder: Path, may_replace: bool = False) -> list[str]:
    return restore(Settings(), Stores(url, None), folder, [Part.DATABASE], may_replace)


def rows_of(storage: Storage) -> dict[str, list[Any]]:
    """Return all rows but the marks of a restoration and leases."""
    with storage.db.reading() as conn:
        tables = sorted(sa.inspect(conn).get_table_names())
        found = {one: sorted(map(repr, conn.execute(sa.text(f'SELECT * FROM "{one}"')).all())) for one in tables}
    found["counter"] = [row for row in found["counter"] if "restored" not in row]
    return {table: rows for table, rows in found.items() if table != "lease"}


def test_a_restored_database_is_the_one_of_the_backup(storage: Storage, url: str, tmp_path: Path) -> None:
    """Rows and counters are as they were; later ones are gone."""
    job_id = world.a_job(storage, 5)
    storage.pods.set_goals(job_id, [(0, 1)], K, NOW, "a\tb\\N")
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    before = rows_of(storage)
    made = back_up(url, tmp_path / "backup")
    world.a_job(storage, 3)
    storage.db.engine.dispose()

    bring_back(url, tmp_path / "backup", may_replace=True)

    assert before == rows_of(storage)
    assert ("0.2", storage.db.engine.dialect.name) == (made.release, made.dialect)


def test_a_backup_is_of_one_moment(
    storage: Storage, url: str, open_storage: Callable[[], Storage], tmp_path: Path
) -> None:
    """Jobs that are created meanwhile are in it with all of their pods, or with none yet."""
    other, stop = open_storage(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            world.a_job(other, 3)

    writer = threading.Thread(target=write)
    world.a_job(storage, 3)
    writer.start()
    try:
        back_up(url, tmp_path / "backup")
    finally:
        stop.set()
        writer.join()
    storage.db.engine.dispose()
    other.db.engine.dispose()

    bring_back(url, tmp_path / "backup", may_replace=True)

    jobs = storage.jobs.active_ids()
    assert jobs
    assert {0, 3} >= {len(storage.pods.page(job)) for job in jobs}


def test_nothing_is_replaced_by_mistake(storage: Storage, url: str, tmp_path: Path) -> None:
    """A database with jobs, or with a leader, is not replaced."""
    back_up(url, tmp_path / "backup")
    world.a_job(storage, 1)
    with pytest.raises(Aborted, match="the database has 1 jobs"):
        bring_back(url, tmp_path / "backup")
    storage.leases.acquire("resmgr", "me", "h:1", 3_600.0, 4e9)
    with pytest.raises(Aborted, match="resmgr is led: stop all roles first"):
        bring_back(url, tmp_path / "backup", may_replace=True)


def test_a_restored_database_is_compared_with_each_cluster(storage: Storage, url: str, tmp_path: Path) -> None:
    """The mark lasts until the host manager of the cluster has removed it; leases are free, under a higher epoch."""
    assert storage.restorations.is_compared(CLUSTER)
    storage.leases.acquire("resmgr", "me", "h:1", 1.0, 0.0)
    back_up(url, tmp_path / "backup")
    storage.db.engine.dispose()
    bring_back(url, tmp_path / "backup")

    assert not storage.restorations.is_compared(CLUSTER)
    storage.restorations.note_compared(CLUSTER, 2**62)
    assert [True, False] == [storage.restorations.is_compared(cluster) for cluster in (CLUSTER, "west")]
    assert storage.leases.acquire("resmgr", "other", "", 1.0, 0.0) > 2


def test_a_damaged_backup_is_refused(storage: Storage, url: str, tmp_path: Path) -> None:
    """A file that differs, a missing one, and a folder without a manifest end with an error that names them."""
    folder = tmp_path / "backup"
    made = back_up(url, folder)
    name = max(made.files)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + b"!")
    with pytest.raises(InvalidArgument, match=f"{name} is damaged"):
        bring_back(url, folder)
    (folder / name).unlink()
    with pytest.raises(InvalidArgument, match="SHA-256 of no file"):
        bring_back(url, folder)
    (folder / manifest.NAME).unlink()
    with pytest.raises(InvalidArgument, match="is no complete backup"):
        bring_back(url, folder)
    with pytest.raises(InvalidArgument, match="name a new folder"):
        back_up(url, folder)


def test_a_damaged_database_is_replaced(tmp_path: Path) -> None:
    """A file that cannot be read is what a backup is for: it is replaced where that is allowed, and kept aside."""
    file = tmp_path / "peloton.db"
    url, folder = f"sqlite:///{file}", tmp_path / "backup"
    migrate.upgrade(url)
    back_up(url, folder)
    for suffix in SIDE_FILES:
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    file.write_bytes(b"garbage" * 1_000)
    with pytest.raises(Unavailable, match="is damaged"):
        bring_back(url, folder)

    bring_back(url, folder, may_replace=True)

    assert schema_version.newest() == schema_version.of(url)
    assert b"garbage" == file.with_name("peloton.db.replaced").read_bytes()[:7]


def test_nothing_is_restored_when_a_part_may_not_be(tmp_path: Path) -> None:
    """A store of Temporal that may not be replaced is found before the database is."""
    file, temporal = tmp_path / "peloton.db", tmp_path / "temporal.db"
    stores = Stores(f"sqlite:///{file}", temporal)
    migrate.upgrade(stores.database)
    migrate.upgrade(f"sqlite:///{temporal}")  # any file of SQLite
    take(Settings(), stores, tmp_path / "backup", "0.2", has_schedules=False)

    with pytest.raises(Aborted, match=r"temporal\.db exists"):
        restore(Settings(), stores, tmp_path / "backup", [Part.DATABASE, Part.TEMPORAL], may_replace=False)

    assert not file.with_name("peloton.db.replaced").exists()


def test_each_replaced_file_is_kept(tmp_path: Path) -> None:
    """A second restoration, such as of the right backup, leaves what the first one replaced."""
    file = tmp_path / "peloton.db"
    url = f"sqlite:///{file}"
    migrate.upgrade(url)
    back_up(url, tmp_path / "backup")
    storage = Storage(url)
    job_id = world.a_job(storage, 1)
    storage.close()

    for name in ("replaced", "replaced-2"):
        assert [f"{file} restored; the previous file is peloton.db.{name}"] == bring_back(
            url, tmp_path / "backup", True
        )

    first = Storage(f"{url}.replaced")
    assert first.jobs.get(job_id)
    first.close()
