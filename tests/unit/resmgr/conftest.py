from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc.aio
import pytest

from peloton.api.v0.short_names import respool_pb2_grpc
from services.resmgr.server import ResmgrServer, serve
from services.storage.gateway import Gateway
from tests import sqlite_engines
from tests.unit.resmgr.world import FAST, World, open_gateway

sqlite_engines.reuse()


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


@pytest.fixture
async def server(world: World) -> AsyncIterator[ResmgrServer]:
    found = await serve(world.gateway, world.lifecycles, world.hosts, "127.0.0.1:0", FAST)
    yield found
    await found.stop()


@pytest.fixture
async def manager(server: ResmgrServer) -> AsyncIterator[respool_pb2_grpc.ResourceManagerAsyncStub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield respool_pb2_grpc.ResourceManagerStub(channel)  # type: ignore[misc]
