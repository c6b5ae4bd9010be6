"""Shutdown of the workers of a process."""

from __future__ import annotations

import asyncio
from typing import Any

from services.worker.worker import SHUTDOWN_GRACE, run_workers
from tests.unit.virtual_time import in_virtual_time, now_s


class Busy:
    """A worker whose activities use up their grace."""

    def __init__(self) -> None:
        self.is_up = False
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Busy:
        self.is_up = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def shutdown(self) -> None:
        self._stopping = self._stopping or asyncio.create_task(self._stop())
        await self._stopping

    async def _stop(self) -> None:
        await asyncio.sleep(SHUTDOWN_GRACE.total_seconds())
        self.is_up = False


@in_virtual_time
async def test_all_workers_of_a_process_stop_within_the_grace_of_one() -> None:
    """Six workers, one after the other, would need a minute, and be killed in the middle of it."""
    workers: list[Any] = [Busy() for _ in range(6)]
    async with run_workers(workers):
        assert all(worker.is_up for worker in workers)
        told_s = now_s()

    assert not any(worker.is_up for worker in workers)
    assert SHUTDOWN_GRACE.total_seconds() + 1.0 > now_s() - told_s
