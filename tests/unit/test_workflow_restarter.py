"""Workflows that failed or were terminated are started again, each kind by its row, and once for each failure; runs of
other versions are signalled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.maintenance import HostMaintenance
from services.wakers.wakers import Wakers
from services.wakers.workflow_restarter import WorkflowRestarter
from tests.unit.virtual_time import in_virtual_time
from workflows.policies import Policies

IDS = ("job/a", "gang/b/1", "update/c", "daemon/d", "maintenance/west/h1", "migration/m", "rebalance/west")
ENDED_RUN, RUN = "scheduled-job/gone-2026-11-26T05:00:00Z", "scheduled-job/report-2026-11-26T05:00:00Z"
POLLS = 4


@dataclass
class FakeTemporal:
    """Client of a server that lists workflows, which have all ended unless they are in ``running``."""

    failed: tuple[str, ...] = ()
    ended_ago_s: InitVar[float] = 40
    terminated: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()
    started: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    attempts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self, ended_ago_s: float) -> None:
        self.ended = datetime.now(UTC) - timedelta(seconds=ended_ago_s)

    async def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Any]:
        lists = {"'Failed'": self.failed, "'Terminated'": self.terminated, "'Running'": self.outdated}
        for workflow_id in next(ids for status, ids in lists.items() if status in query):
            if "WorkflowId" not in query or f"'{workflow_id}'" in query:
                yield SimpleNamespace(id=workflow_id, close_time=self.ended)

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def signal(name: str, **_: Any) -> None:
            if workflow_id not in (*self.running, *self.started):
                raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
            self.signals.append(workflow_id)

        return SimpleNamespace(signal=signal)

    async def start_workflow(self, *arguments: Any, id: str, **options: Any) -> None:
        self.attempts[id] += 1
        if id in self.refused:
            raise OSError(f"{id}: no")
        self.started.append(id)


def job(job_id: str) -> JobRecord:
    kind = JobType.DAEMON if job_id == "d" else JobType.BATCH
    return JobRecord(
        JobId(job_id), "", kind, "", RespoolId("p"), 1, SlaSpec(), JobState.RUNNING, JobState.SUCCEEDED, update_id="u"
    )


def moves(**ids: Any) -> Any:
    """Migrations or rebalancing that are all active."""
    spec = SimpleNamespace(
        target="east", batch_size=0, services_at_once=1, evicts_batch=False, goals=(), moves_per_hour=1
    )
    active = SimpleNamespace(name="", is_active=True, is_pool=False, object_id="", state=JobState.RUNNING, spec=spec)
    vars(active).update(ids)
    return SimpleNamespace(get=lambda _: active, active=lambda: [active], all=lambda: [active])


def storage() -> Any:
    return SimpleNamespace(
        jobs=SimpleNamespace(get=job, roll_up=None),
        pools=SimpleNamespace(specs=list),
        maintenance=SimpleNamespace(
            get=lambda cluster, host: HostMaintenance(cluster, Hostname(host), HostState.UP, HostState.DOWN)
        ),
        migrations=moves(migration_id="m"),
        rebalances=moves(cluster="west"),
    )


@asynccontextmanager
async def reviving(client: FakeTemporal, **options: Any) -> AsyncIterator[None]:
    temporal: Any = client
    wakers = Wakers(temporal, storage(), Policies())
    restarter = WorkflowRestarter(temporal, wakers, period_s=1.0, **options)
    yield
    await restarter.close()
    await wakers.close()


@in_virtual_time
async def test_each_kind_of_workflow_is_started_again_once_for_a_failure() -> None:
    """A gang is started by its job. Later polls see the same failure, and start no workflow."""
    client = FakeTemporal(failed=IDS)
    async with reviving(client):
        await asyncio.sleep(POLLS)

    assert sorted((*IDS, "job/b")) == sorted([*client.started, "gang/b/1"])
    assert [] == client.signals


@in_virtual_time
async def test_workflows_that_wait_are_left_alone() -> None:
    """A first backoff is half a minute."""
    client = FakeTemporal(failed=IDS, ended_ago_s=-60)
    async with reviving(client):
        await asyncio.sleep(POLLS)

    assert ([], []) == (client.started, client.signals)


@in_virtual_time
async def test_one_workflow_that_cannot_be_started_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    """The others are started in the same poll, and the failed start is repeated, also when no list has it."""
    ids = tuple(f"maintenance/west/h{number}" for number in range(5))
    client = FakeTemporal(terminated=ids, refused=frozenset(ids[1:2]))
    async with reviving(client):
        await asyncio.sleep(1.5)
        client.terminated = ()
        await asyncio.sleep(10)

    assert [ids[0], *ids[2:]] == client.started
    assert client.attempts[ids[1]] >= 3
    assert f"the last one to {ids[1]}: {ids[1]}: no" in caplog.text


@in_virtual_time
async def test_runs_of_schedules_and_launches_of_gangs_continue_on_the_current_version() -> None:
    """A run on another version is signalled: a job passes no wake-up on to its gang, and launches that wait for hosts
    would fill each list of outdated runs. A run that has ended meanwhile does not block others, and a terminated one is
    not started again; a launch is, by its job."""
    outdated = (ENDED_RUN, RUN, "gang/a/1", "job/a")
    client = FakeTemporal(outdated=outdated, running=outdated[1:], terminated=(ENDED_RUN, "gang/b/1"))
    async with reviving(client, current_version=lambda: "peloton:v2"):
        await asyncio.sleep(POLLS)

    assert {RUN, "gang/a/1", "job/a"} <= set(client.signals) <= {RUN, "gang/a/1", "job/a", "job/b"}
    assert ["job/b"] == client.started


@in_virtual_time
async def test_migrations_and_rebalancing_are_woken_once_a_period() -> None:
    """A server that lost its store lists none of their workflows. No poll wakes them before the period is over."""
    client, later = FakeTemporal(), FakeTemporal()
    async with reviving(client, others_period_s=0.0), reviving(later, others_period_s=3600.0):
        await asyncio.sleep(POLLS)

    assert ["migration/m", "rebalance/west"] == client.started
    assert len(client.signals) >= 2
    assert [] == later.started


@in_virtual_time
async def test_they_are_woken_at_once_when_jobs_have_lost_their_workflows() -> None:
    """The store that has lost those of jobs has lost theirs as well."""

    class Lost:
        async def find(self, failed: Collection[str]) -> list[JobId]:
            return [JobId("a")]

    client, lost = FakeTemporal(), Lost()
    async with reviving(client, others_period_s=3600.0, missing=lost):
        await asyncio.sleep(POLLS)

    assert {"job/a", "migration/m", "rebalance/west"} == {*client.started}
