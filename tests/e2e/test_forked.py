"""Forked roles behave as started ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.storage import migrate
from tests.e2e.forked import SERVE, ForkedPart, Nursery


@pytest.fixture
def nursery(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nursery]:
    """One of its own, which may be killed."""
    found = Nursery()
    monkeypatch.setattr("tests.e2e.forked.nursery", lambda: found)
    yield found
    found.kill()


@asynccontextmanager
async def running(folder: Path, said: asyncio.Queue[str], *words: str, **environment: str) -> AsyncIterator[ForkedPart]:
    part = ForkedPart("role", [*SERVE, *words], environment, folder / "log", lambda _, line: said.put_nowait(line))
    await part.start()
    yield part
    await part.stop(now=True)


async def wait_for_word(word: str, said: asyncio.Queue[str]) -> None:
    async with asyncio.timeout(120):
        while word not in await said.get():
            pass


async def test_its_output_and_its_exit_code_are_reported(tmp_path: Path) -> None:
    """Output and exit code are reported as for a process that its supervisor started, with the environment that it was
    given."""
    said: asyncio.Queue[str] = asyncio.Queue()
    async with running(tmp_path, said, "serve", "api", PELOTON_DATABASE="") as part:
        await wait_for_word("PELOTON_DATABASE", said)
        await wait_for_word("ended with exit code 2", said)

        assert part.starts >= 1


async def test_it_dies_by_kill_9_and_with_its_nursery(nursery: Nursery, tmp_path: Path) -> None:
    """The signal that ended it is known; when a test process is killed nothing of it is left."""
    said: asyncio.Queue[str] = asyncio.Queue()
    database = f"sqlite:///{tmp_path / 'peloton.db'}"
    migrate.upgrade(database)
    async with running(
        tmp_path, said, "serve", "resmgr", PELOTON_DATABASE=database, PELOTON_TEMPORAL="127.0.0.1:1"
    ) as part:
        await wait_for_word("resmgr: became leader", said)
        part.kill()
        await wait_for_word("killed by SIGKILL", said)
        await wait_for_word("resmgr", said)
        assert part.process is not None
        left = Path(f"/proc/{part.process.pid}")
        assert left.exists()

        part.is_wanted = False  # no supervisor forks it again
        nursery.kill()

        async with asyncio.timeout(120):
            while left.exists():
                await asyncio.sleep(0.05)
