"""A real ZooKeeper for tests, from the jars of the compose stories: started on demand, ended with the tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compose.images import CannotFetch, jars_and_postgres
from tests.ports import free_ports

SERVER = "org.apache.zookeeper.server.ZooKeeperServerMain"
TICK_MS = 200
"""Sessions last two to twenty ticks."""


@contextmanager
def running_zookeeper(folder: Path, tick_ms: int = TICK_MS) -> Iterator[str]:
    """Run a ZooKeeper; yield its address. Skips the test where there is none."""
    try:
        jars = jars_and_postgres() / "jars"
    except (CannotFetch, subprocess.CalledProcessError) as error:
        pytest.skip(f"ZooKeeper cannot be had: {error}")
    [port] = free_ports(1)
    options = ["-Xmx128m", "-Dzookeeper.admin.enableServer=false", "-cp", f"{jars}/*"]
    with (folder / "log").open("w") as log:
        argv = ["java", *options, SERVER, str(port), str(folder / "data"), str(tick_ms)]
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as address:
        yield address
