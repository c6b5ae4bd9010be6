from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc.aio
import pytest

from peloton.api.v0.short_names import respool_pb2_grpc
from services.resmgr.server import ResmgrServer, serve
from services.storage.storage import Storage
from tests import sqlite_engines
from tests.unit.resmgr.world import FAST, World, open_storage

sqlite_engines.reuse()


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database file with the schema and nothing else; tests copy it."""
    folder = tmp_path_factory.mktemp("store")
    open_storage(folder).close()
    return folder / "store.db"


@pytest.fixture
def storage(empty_store: Path, tmp_path: Path) -> Iterator[Storage]:
    shutil.copy(empty_store, tmp_path / "store.db")
    found = Storage(f"sqlite:///{tmp_path / 'store.db'}")
    yield found
    found.close()


@pytest.fixture
def world(storage: Storage) -> World:
    return World(storage)


@pytest.fixture
async def server(world: World) -> AsyncIterator[ResmgrServer]:
    found = await serve(world.storage, world.lifecycles, world.hosts, "127.0.0.1:0", FAST)
    yield found
    await found.stop()


@pytest.fixture
async def manager(server: ResmgrServer) -> AsyncIterator[respool_pb2_grpc.ResourceManagerAsyncStub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield respool_pb2_grpc.ResourceManagerStub(channel)
