from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.storage.gateway import Gateway
from tests.unit.resmgr.world import World, open_gateway


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with the schema and nothing else; tests copy it."""
    folder = tmp_path_factory.mktemp("store")
    open_gateway(folder).close()
    return folder / "store.db"


@pytest.fixture
def gateway(empty_store: Path, tmp_path: Path) -> Iterator[Gateway]:
    shutil.copy(empty_store, tmp_path / "store.db")
    found = Gateway(f"sqlite:///{tmp_path / 'store.db'}")
    yield found
    found.close()


@pytest.fixture
def world(gateway: Gateway) -> World:
    return World(gateway)
