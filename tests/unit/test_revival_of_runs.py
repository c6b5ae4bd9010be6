"""Runs of schedules and launches of gangs that the leading resource manager finds in Temporal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from temporalio.service import RPCError, RPCStatusCode

from services.revival import Revival
from workflows.policies import Policies

LATER = "job/91b1b8e5-2ba8-11e7-bc23-0242ac11000d"


class Found(NamedTuple):
    id: str


@dataclass
class Temporal:
    """Lists of workflows, and the signals that they received; ``gone`` has ended since it was listed."""

    outdated: tuple[str, ...]
    terminated: tuple[str, ...]
    gone: str
    signals: list[str] = field(default_factory=list)

    async def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Found]:
        found = {"'Terminated'": self.terminated, "'Running'": self.outdated}
        for workflow_id in next((ids for status, ids in found.items() if status in query), ()):
            yield Found(workflow_id)

    def get_workflow_handle(self, workflow_id: str) -> Handle:
        return Handle(self, workflow_id)


@dataclass
class Handle:
    temporal: Temporal
    workflow_id: str

    async def signal(self, name: str, **_: Any) -> None:
        if self.workflow_id == self.temporal.gone:
            raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
        self.temporal.signals.append(f"{self.workflow_id} {name}")


class Swept:
    """Stands in for the waker of jobs."""

    def __init__(self) -> None:
        self.jobs = asyncio.Event()

    def jobs_swept(self, job_ids: list[str], cause: str) -> None:
        self.jobs.set()


async def test_runs_of_schedules_continue_on_the_current_version() -> None:
    """A run on another version is signalled, one that has ended meanwhile does not block others, and a terminated one
    is not started again.
    """
    outdated = ("scheduled-job/gone-2026-11-26T05:00:00Z", "scheduled-job/report-2026-11-26T05:00:00Z", LATER)
    temporal = Temporal(outdated, ("scheduled-job/ended-2026-11-26T05:00:00Z",), outdated[0])
    swept = Swept()

    client, waker = cast(Any, temporal), cast(Any, swept)
    revival = Revival(client, waker, Policies(), 0.01, current_version=lambda: "peloton:v2")
    async with asyncio.timeout(60):
        await swept.jobs.wait()
    await revival.close()

    assert {"scheduled-job/report-2026-11-26T05:00:00Z changed"} == set(temporal.signals)


async def test_launches_of_gangs_continue_on_the_current_version() -> None:
    """The workflows of gangs are signalled: a job passes no wake-up on to them, and launches that wait for hosts would
    fill each list of outdated runs. One that was terminated is started by its job."""
    launch = "gang/91b1b8e5-2ba8-11e7-bc23-0242ac11000d/1"
    temporal, swept = Temporal((launch,), ("gang/6d1d5f5e-7d2a-4c6c-9f4e-0a7d3c1b2e01/1",), ""), Swept()

    client, waker = cast(Any, temporal), cast(Any, swept)
    revival = Revival(client, waker, Policies(), 0.01, current_version=lambda: "peloton:v2")
    async with asyncio.timeout(60):
        await swept.jobs.wait()
        while not temporal.signals:
            await asyncio.sleep(0.001)
    await revival.close()

    assert {f"{launch} changed"} == set(temporal.signals)
