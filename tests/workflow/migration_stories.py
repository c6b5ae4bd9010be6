"""Stories of migrations on a real Temporal server; they are also the recipes of their recorded histories."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from peloton.model.ids import job_workflow_id, migration_workflow_id, new_job_id
from peloton.model.migration import MigrationAct
from services.wakers.lifecycles import MIGRATION
from services.wakers.wake_line import Rank
from services.wakers.waker import Waker
from services.worker.worker import build_workers, run_workers
from tests.workflow.cluster import Cluster
from tests.workflow.migrated import TARGET, MigratedPool
from tests.workflow.server import POLL_PERIOD_S, SLOTS, TIMEOUT_S, RealClock, histories_of, replay, wait_until
from tests.workflow.stories import ports_on
from workflows.migration import MigrationResult, MigrationWorkflow
from workflows.policies import Policies

QUICK = Policies(retry_s=0.2, retry_max_s=1.0, look_again_s=POLL_PERIOD_S)


@workflow.defn(name="Job")
class SignalledJob:
    """Stands for the workflow of a job: counts its signals."""

    def __init__(self) -> None:
        self.signal_count = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def changed(self) -> None:
        self.signal_count += 1

    @workflow.query
    def signals(self) -> int:
        return self.signal_count


@dataclass
class ServerStory:
    client: Client
    pool: MigratedPool
    workflow_id: str

    @property
    def handle(self) -> WorkflowHandle[MigrationWorkflow, MigrationResult]:
        return self.client.get_workflow_handle_for(MigrationWorkflow.run, self.workflow_id)

    async def half(self) -> None:
        await wait_until(lambda: self.pool.clusters[TARGET] >= 2, "a service half way")

    async def result(self) -> MigrationResult:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.handle.result()


@asynccontextmanager
async def migration_story(
    client: Client, policies: Policies = QUICK, task_queue: str = ""
) -> AsyncIterator[ServerStory]:
    """A pool of two services, the workflow of its migration on a server, workers and a waker; at the end its histories
    are replayed."""
    clock = RealClock()
    pool = MigratedPool(clock, away_s=0.1, jobs=[new_job_id() for _ in range(2)])
    migration = replace(pool.row, migration_id=str(uuid.uuid4())) if pool.row else None
    assert migration is not None
    pool.row = migration
    jobs = f"jobs-{uuid.uuid4()}"
    queue = task_queue or f"test-{uuid.uuid4()}"
    stored: Any = SimpleNamespace(migrations=SimpleNamespace(get=lambda _: pool.row))
    waker = Waker(MIGRATION, client, stored, policies, rank=Rank.PEOPLE, interval_s=0.05, task_queue=queue)
    pool.notify = lambda: waker.wake([migration.migration_id])
    story = ServerStory(client, pool, migration_workflow_id(migration.migration_id))
    ports = replace(ports_on(Cluster(clock)), migrations=pool)
    handles = [
        await client.start_workflow(SignalledJob.run, id=job_workflow_id(one.job_id), task_queue=jobs)
        for one in pool.services
    ]

    async def pass_on() -> None:
        """Pass the signals to the jobs on to the pool."""
        told = dict.fromkeys((one.job_id for one in pool.services), 0)
        while True:
            for one, handle in zip(pool.services, handles, strict=True):
                if (count := await handle.query(SignalledJob.signals)) > told[one.job_id]:
                    told[one.job_id] = count
                    pool.end_leaving(one.job_id)
            await asyncio.sleep(0.05)

    passing: asyncio.Task[None] | None = None
    try:
        async with (
            Worker(client, task_queue=jobs, workflows=[SignalledJob], workflow_runner=UnsandboxedWorkflowRunner()),
            run_workers(build_workers(client, ports, {queue: SLOTS})),
        ):
            passing = asyncio.create_task(pass_on())
            pool.notify()
            await wait_until(lambda: pool.calls["advance"] > 0, "its first step")
            yield story
            passing.cancel()
            for handle in handles:
                await handle.terminate()
        for history in await histories_of(client, story.workflow_id):
            await replay(history)
    finally:
        if passing is not None:
            passing.cancel()
        await waker.close()


async def migration_succeeded(client: Client) -> str:
    """Two services move, one after the other; several runs by continue-as-new."""
    async with migration_story(client, replace(QUICK, history_events_max=50)) as story:
        assert await story.result() == MigrationResult("SUCCEEDED", 2, 8)
        assert (2, {TARGET: 8}) == (story.pool.away_most, story.pool.clusters)
    return story.workflow_id


async def migration_paused_and_rolled_back(client: Client) -> str:
    """A migration is paused, resumed and rolled back half way, with a call that fails."""
    async with migration_story(client) as story:
        story.pool.outages.update(advance=1)
        await story.half()
        story.pool.act(MigrationAct.PAUSE)
        await wait_until(lambda: story.pool.row is not None and story.pool.row.state == "PAUSED", "a pause")
        story.pool.act(MigrationAct.RESUME)
        story.pool.act(MigrationAct.ROLL_BACK)
        assert "ROLLED_BACK" == (await story.result()).state
        assert {"a": 8} == story.pool.clusters
    return story.workflow_id


async def migration_cancelled(client: Client) -> str:
    """The workflow is cancelled, as in the Web UI: everything goes back."""
    async with migration_story(client) as story:
        await story.half()
        await story.handle.cancel()
        assert "ROLLED_BACK" == (await story.result()).state
    return story.workflow_id


RECIPES: tuple[Callable[[Client], Awaitable[str]], ...] = (
    migration_succeeded,
    migration_paused_and_rolled_back,
    migration_cancelled,
)
