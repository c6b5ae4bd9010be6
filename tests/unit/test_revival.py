"""Workflows that failed are started again, each type by what starts it, and once for each failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from peloton.model.ids import JobId
from services.revival import Revival
from workflows.policies import Policies

IDS = ("job/a", "gang/b/1", "update/c", "daemon/d", "maintenance/west/h1", "migration/m", "rebalance/west")


class FakeTemporal:
    """Client with workflows that failed so many seconds ago."""

    def __init__(self, ago_s: float) -> None:
        self.started: list[str] = []
        ended = datetime.fromtimestamp(datetime.now(UTC).timestamp() - ago_s, UTC)
        self.failed = [SimpleNamespace(id=one, close_time=ended) for one in IDS]
        self.looks = 0

    async def list_workflows(self, query: str, **options: Any) -> AsyncIterator[Any]:
        if "'Failed'" in query:
            self.looks += 1
            for run in self.failed:
                yield run

    async def start_workflow(self, *arguments: Any, id: str, **options: Any) -> None:
        self.started.append(id)


class FakeWaker:
    def __init__(self) -> None:
        self.swept: list[str] = []
        self.updates: list[str] = []

    def jobs_swept(self, job_ids: Iterable[JobId], cause: str) -> None:
        self.swept += job_ids

    async def start_update(self, job_id: JobId) -> None:
        self.updates.append(job_id)


async def revived(ago_s: float) -> dict[str, list[str]]:
    """Return what was started by four looks."""
    client, waker, woken = FakeTemporal(ago_s), FakeWaker(), dict[str, list[str]]()

    def wake(kind: str) -> Callable[[Iterable[str]], None]:
        return woken.setdefault(kind, []).extend

    looking: Any = Revival(
        client, waker, Policies(), 0.001, wake("migrations"), wake("rebalances"), wake("daemons")  # type: ignore[arg-type]
    )  # fmt: skip
    async with asyncio.timeout(120):
        while client.looks < 4:
            await asyncio.sleep(0.001)
    await looking.close()
    return {**woken, "jobs": waker.swept, "updates": waker.updates, "maintenance": client.started}


async def test_each_type_of_workflow_is_started_again_once_for_a_failure() -> None:
    """A gang is started by its job. Later looks see the same failure, and do nothing."""
    assert {
        "jobs": ["a", "b"],
        "updates": ["c"],
        "daemons": ["d"],
        "maintenance": ["maintenance/west/h1"],
        "migrations": ["m"],
        "rebalances": ["west"],
    } == await revived(ago_s=40)


async def test_workflows_that_wait_are_left_alone() -> None:
    """The first wait is half a minute."""
    found = await revived(ago_s=-60)

    assert {kind: [] for kind in found} == found
