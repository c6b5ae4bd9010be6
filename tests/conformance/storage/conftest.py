"""Databases of the tests: every test runs on SQLite and on a real PostgreSQL, and tests marked ``everywhere`` also on
storage in memory. ``postgres_cover`` chooses the ones whose run on PostgreSQL is nightly."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from services.storage import migrate
from services.storage.storage import Storage
from tests import sqlite_engines
from tests.conformance.storage import postgres_cover
from tests.conformance.storage.builders import DATABASES, MEMORY, Clock
from tests.doubles.storage.storage import MemoryStorage
from tests.nightly import NIGHTLY
from tests.postgres import Postgres, postgres
from tests.reused_postgres import ReusedPostgres

sqlite_engines.reuse()

__all__ = ["postgres"]  # a fixture
FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what needs PostgreSQL in one worker, which starts one server."""
    repeats = postgres_cover.load()
    for item in items:
        if item.path.parent == FOLDER and postgres_cover.is_on_postgres(item):
            item.add_marker(pytest.mark.xdist_group("storage on postgres"))
            if postgres_cover.name_of(item) in repeats:
                item.add_marker(NIGHTLY)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty database file."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    migrate.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def reused_postgres(postgres: Postgres) -> Iterator[ReusedPostgres]:
    database = ReusedPostgres(postgres, migrate.upgrade)
    with database.reusing_engines():
        yield database


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated, empty database, which no other test uses at the same time."""
    if request.param == MEMORY:
        yield MEMORY
        return
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "storage.db")
        yield f"sqlite:///{tmp_path / 'storage.db'}"
        return
    database: ReusedPostgres = request.getfixturevalue("reused_postgres")
    if "new_tables" in request.fixturenames:
        database.restore(large_bytes=0)
    else:
        database.restore()
    yield database.url


@pytest.fixture
def new_tables() -> None:
    """Mark a test of plans, which depend on what tables held before."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_storage(url: str, clock: Clock) -> Iterator[Callable[[], Storage]]:
    """Open further storages to the same database."""
    opened: list[Storage] = []

    def open_one() -> Storage:
        if url == MEMORY:
            return cast(Storage, MemoryStorage(clock))
        opened.append(Storage(url, clock))
        return opened[-1]

    yield open_one
    for storage in opened:
        storage.close()


@pytest.fixture
def storage(open_storage: Callable[[], Storage]) -> Storage:
    return open_storage()
