"""Every fact is tested on SQLite and on a real PostgreSQL; those ``everywhere`` also on storage in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from services.storage import migrate
from services.storage.memory.storage import MemoryStorage
from services.storage.storage import Storage
from tests import sqlite_engines
from tests.conformance.storage.builders import DATABASES, MEMORY, Clock
from tests.postgres import Postgres, postgres

sqlite_engines.reuse()

__all__ = ["postgres"]  # a fixture


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty database file."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    migrate.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres: Postgres) -> str:
    """The name of a migrated, empty database."""
    url = postgres.create_database()
    migrate.upgrade(url)
    return postgres.name_of(url)


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated, empty database of its own."""
    if request.param == MEMORY:
        yield MEMORY
        return
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "storage.db")
        yield f"sqlite:///{tmp_path / 'storage.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    database = server.create_database(template=request.getfixturevalue("postgres_template"))
    yield database
    server.drop_database(database)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_storage(url: str, clock: Clock) -> Iterator[Callable[[], Storage]]:
    """Opens further storages to the same database."""
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
