"""Unusable SQLite files have errors that name the file and the fault."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from peloton.errors import Unavailable
from services.storage import migrate, schema_version, sqlite_files
from services.storage.engine import Database

PAGE = 4_096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create a valid file with some rows."""
    path = tmp_path / "temporal.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x TEXT)")
        connection.execute("CREATE INDEX i ON t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [(f"{number:0200}",) for number in range(2_000)])
        connection.commit()
    return path


def damage(path: Path, at: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xa5" * size)


def test_a_whole_file_and_one_that_is_not_there_pass(path: Path) -> None:
    """Valid, missing and empty files are accepted; an empty one becomes a database."""
    (path.parent / "empty.db").touch()

    for each in (path, path.parent / "none.db", path.parent / "empty.db"):
        sqlite_files.check(each)


@pytest.mark.parametrize(("at", "size"), [(0, 100), (40 * PAGE, 60 * PAGE)], ids=["the head", "the middle"])
def test_a_damaged_file_is_named_before_it_is_used(path: Path, at: int, size: int) -> None:
    """The error has a remedy."""
    damage(path, at, size)

    with pytest.raises(Unavailable) as refused:
        sqlite_files.check(path)

    assert refused.value.message.startswith(f"{path} is damaged: ")
    assert "move it away to begin with an empty one" in refused.value.message


def test_a_file_that_is_no_database_is_named_by_storage(tmp_path: Path) -> None:
    """The error of a role that starts has the name of the file."""
    path = tmp_path / "peloton.db"
    path.write_text("something else" * 100)

    for act in (migrate.upgrade, schema_version.check):
        with pytest.raises(Unavailable, match=r"storage file .*peloton\.db is damaged: file is not a database"):
            act(f"sqlite:///{path}")


def test_a_full_disk_is_named_by_storage(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The write is rolled back, and may be repeated once the disk has free space."""
    database = Database(f"sqlite:///{tmp_path / 'peloton.db'}")
    database.write(lambda conn: conn.execute(sa.text("CREATE TABLE t (x TEXT)")))

    def limit(connection: Any, _: object) -> None:
        connection.execute("PRAGMA max_page_count=3")

    database.engine.dispose()
    sa.event.listen(database.engine, "connect", limit)
    request.addfinalizer(lambda: sa.event.remove(database.engine, "connect", limit))  # later tests share the engine

    with pytest.raises(Unavailable, match=r"storage file .*peloton\.db cannot be written: database or disk is full"):
        database.write(lambda conn: conn.execute(sa.text("INSERT INTO t VALUES (zeroblob(100000))")))
    assert 0 == database.read(lambda conn: conn.execute(sa.text("SELECT count(*) FROM t")).scalar_one())
    database.close()
