"""Workflows that failed are started again, each type by its starter, and once for each failure."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from peloton.model.ids import JobId
from services.revival import FAILURES_MAX, Revival
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
    """Return the workflows that four polls started."""
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
    """A gang is started by its job. Later polls see the same failure, and start no workflow."""
    assert {
        "jobs": ["a", "b"],
        "updates": ["c"],
        "daemons": ["d"],
        "maintenance": ["maintenance/west/h1"],
        "migrations": ["m"],
        "rebalances": ["west"],
    } == await revived(ago_s=40)


async def test_workflows_that_wait_are_left_alone() -> None:
    """A first backoff is half a minute."""
    found = await revived(ago_s=-60)

    assert {kind: [] for kind in found} == found


class Refusing(FakeTemporal):
    """Terminated workflows of the maintenance of some hosts cannot be started."""

    def __init__(self, hosts: int, refused: range) -> None:
        super().__init__(ago_s=40)
        self.ids, self.failed = [f"maintenance/west/h{number}" for number in range(hosts)], []
        self.refused = {self.ids[number] for number in refused}
        self.attempts: Counter[str] = Counter()

    async def list_workflows(self, query: str, **options: Any) -> AsyncIterator[Any]:
        async for run in super().list_workflows(query, **options):
            yield run
        if "'Terminated'" in query and not self.started:
            for one in self.ids:
                yield SimpleNamespace(id=one)

    async def start_workflow(self, *arguments: Any, id: str, **options: Any) -> None:
        self.attempts[id] += 1
        if id in self.refused:
            raise OSError(f"{id}: no")
        await super().start_workflow(*arguments, id=id, **options)


async def looked(client: Refusing, until: Callable[[], bool]) -> None:
    looking = Revival(client, FakeWaker(), Policies(), 0.001)  # type: ignore[arg-type]
    async with asyncio.timeout(120):
        while not until():
            await asyncio.sleep(0.001)
    await looking.close()


async def test_one_workflow_that_cannot_be_started_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    """The others are started in the same poll, and the failed start is repeated with the next one, also when no list
    has it.
    """
    client = Refusing(5, range(1, 2))
    await looked(client, lambda: client.attempts["maintenance/west/h1"] >= 3)

    assert ["maintenance/west/h0", *(f"maintenance/west/h{number}" for number in (2, 3, 4))] == client.started
    assert "workflow maintenance/west/h1 could not be started: maintenance/west/h1: no" in caplog.text


async def test_a_look_ends_when_nothing_can_be_started() -> None:
    """A poll ends when Temporal does not respond. The next one begins with the same workflows."""
    client = Refusing(1_000, range(1_000))
    await looked(client, lambda: client.attempts["maintenance/west/h0"] >= 2)

    assert {f"maintenance/west/h{number}" for number in range(FAILURES_MAX)} == set(client.attempts)
