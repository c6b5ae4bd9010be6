"""Workflows that are terminated while the objects they manage live on, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError

from peloton.lifecycle import rollout, workflow_restarts
from peloton.lifecycle.backoff import Backoff
from peloton.model.host import HostState
from peloton.model.ids import (
    Hostname,
    daemon_workflow_id,
    gang_workflow_id,
    maintenance_workflow_id,
    new_job_id,
    update_workflow_id,
)
from peloton.model.job import SlaSpec
from peloton.model.maintenance import HostMaintenance
from peloton.model.migration import MigrationAct
from peloton.model.rebalance import RebalanceAct
from services.temporal.task_queues import BATCH_QUEUE, MAINTENANCE_QUEUE, SERVICE_QUEUE
from services.temporal.workflow_labels import maintenance_labels
from services.wakers.job_waker import JobWaker
from services.wakers.lifecycles import MAINTENANCE, start
from services.wakers.missing_workflows import MissingWorkflows
from services.wakers.wakers import Wakers
from services.wakers.workflow_restarter import WorkflowRestarter
from tests.conformance.workflow.conftest import RESTARTED
from tests.present import require
from tests.workflow.fakes import FakeRecords
from tests.workflow.migration_stories import migration_story
from tests.workflow.rebalance_stories import rebalance_story
from tests.workflow.server import TIMEOUT_S, ServerStory, job_storage, server_story, story_storage, wait_until
from workflows.daemon import DaemonResult
from workflows.policies import Policies
from workflows.rebalance import RebalanceResult

QUIET = Policies(look_again_s=600.0, retry_s=600.0, retry_max_s=600.0, count_s=600.0)
"""Policies whose workflows do not poll by themselves while a test runs."""


@pytest.fixture
async def client(temporal_address: str) -> Client:
    """Connect to a namespace of these tests: workflows are counted there to find out whether some are missing."""
    return await Client.connect(temporal_address, namespace=RESTARTED)


@asynccontextmanager
async def restarting(
    client: Client,
    task_queue: str = BATCH_QUEUE,
    finds_missing: bool = False,
    rows: Mapping[str, object] = MappingProxyType({}),
    **cluster: Any,
) -> AsyncIterator[ServerStory]:
    async with server_story(client, task_queue=task_queue, **cluster) as story:
        wakers = Wakers(client, story_storage(story, **rows), QUIET, interval_s=0.05)
        expected = (lambda: len(story.cluster.jobs)) if finds_missing else (lambda: 0)
        missing = MissingWorkflows(client, expected, lambda: list(story.cluster.jobs))
        looking = WorkflowRestarter(client, wakers, period_s=0.2, missing=missing)
        try:
            yield story
        finally:
            await looking.close()
            await wakers.close()


async def wait_for_restart(handle: WorkflowHandle[Any, Any], run_id: str | None) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with suppress(RPCError):  # it is gone
                now = await handle.describe()
                if now.run_id != run_id and now.status is WorkflowExecutionStatus.RUNNING:
                    return
            await asyncio.sleep(0.05)


async def terminate(handle: WorkflowHandle[Any, Any]) -> str | None:
    run_id = (await handle.describe()).run_id
    await handle.terminate("by a person")
    return run_id


async def test_a_terminated_job_carries_on(client: Client) -> None:
    """Pods of a job with a terminated workflow run on, although nothing of the job changes, and no other ones are
    started."""
    async with restarting(client, run_s=600.0) as story:
        job = await story.submit(3, policies=QUIET)
        await story.pods(job, "RUNNING", 3)
        await wait_for_restart(story.handle(job), await terminate(story.handle(job)))
        story.cluster.kill(job)

        assert ("KILLED", {"KILLED": 3}) == await story.result(job)
        assert 3 == len(story.cluster.launched)


async def test_a_job_that_temporal_has_lost_carries_on(client: Client) -> None:
    """A job whose workflow is gone without a trace, as with Temporal's store, is found though nothing of the job
    changes."""
    async with restarting(client, finds_missing=True, run_s=600.0) as story:
        job = await story.submit(3, policies=QUIET)
        await story.pods(job, "RUNNING", 3)
        execution = WorkflowExecution(workflow_id=story.handle(job).id)
        request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
        run_id = (await story.handle(job).describe()).run_id
        await client.workflow_service.delete_workflow_execution(request)
        await wait_for_restart(story.handle(job), run_id)
        story.cluster.kill(job)

        assert ("KILLED", {"KILLED": 3}) == await story.result(job)
        assert 3 == len(story.cluster.launched)


async def test_a_job_whose_workflow_fails_is_started_again_later_each_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose workflow fails is started later each time, though it is woken constantly and nothing else of it
    changes."""
    waits = Backoff(initial_s=1, max_s=4)
    monkeypatch.setattr(workflow_restarts, "RESTARTS", waits)
    async with restarting(client, finds_missing=True) as story:
        story.cluster.refusals.update(enqueue=9)  # each run: with the settle, within its workflow task, in an activity
        job = await story.submit(1, policies=QUIET)
        waker = JobWaker(client, job_storage(FakeRecords(story.cluster).get), QUIET, interval_s=0.05)

        def wake_until_it_succeeds() -> bool:
            waker.jobs_changed([job])
            return story.cluster.refusals["enqueue"] == 0

        await wait_until(wake_until_it_succeeds, "three runs that failed")
        await waker.close()
        await wait_until(lambda: story.cluster.counts(job) == {"SUCCEEDED": 1}, "a run that succeeds")
        listed = f"WorkflowId = '{story.handle(job).id}' AND ExecutionStatus = 'Failed'"
        async with asyncio.timeout(TIMEOUT_S):
            while len(failed := [run async for run in client.list_workflows(listed)]) < 3:
                await asyncio.sleep(0.05)
        assert ("SUCCEEDED", {"SUCCEEDED": 1}) == await story.result(job)
        last = await story.handle(job).describe()

    runs = sorted([*failed, last], key=lambda run: run.start_time)
    paused = [(after.start_time - require(before.close_time)).total_seconds() for before, after in pairwise(runs)]
    assert [True] * 3 == [pause_s >= least for pause_s, least in zip(paused, (1, 2, 4), strict=True)]


async def test_a_terminated_update_carries_on(client: Client) -> None:
    """An update whose workflow is terminated continues without a signal of its job."""
    async with restarting(client, run_s=600.0) as story:
        job = await story.submit(1, policies=QUIET)
        service = story.service(job, 4)
        service.roll_out(1, start_paused=True)
        update = client.get_workflow_handle(update_workflow_id(job))
        await wait_until(lambda: len(service.reads_ns) >= 1, "a look at the paused update")
        story.cluster.jobs[job].record = replace(story.cluster.jobs[job].record, update_id="update1")
        await wait_for_restart(update, await terminate(update))
        service.steer(rollout.resume)
        await story.rolled_out(job, "update1")
        story.cluster.kill(job)
        await story.result(job)

    assert [2] * 4 == service.versions


async def test_a_terminated_launch_is_begun_again(client: Client) -> None:
    """A terminated launch is started again by the job, which is signalled though nothing of it has changed."""
    async with restarting(client, hosts=0) as story:
        job = await story.submit(4, sla=SlaSpec(minimum_running_instances=4), policies=QUIET)
        await wait_until(lambda: story.cluster.calls["ready_gang"] >= 1, "a placement without hosts")
        gang = client.get_workflow_handle(gang_workflow_id(job, 1))
        await wait_for_restart(gang, await terminate(gang))
        story.cluster.add_hosts(1)

        assert ("SUCCEEDED", {"SUCCEEDED": 4}) == await story.result(job)


async def test_a_terminated_daemon_carries_on(client: Client) -> None:
    """A daemon with a terminated workflow continues without changes of hosts and without a signal of its job."""
    async with restarting(client, task_queue=SERVICE_QUEUE, hosts=2, run_s=600.0) as story:
        job = new_job_id()
        story.daemon_hosts.submit(job)
        story.daemon_hosts.notify(job)
        handle = client.get_workflow_handle(daemon_workflow_id(job))
        await story.pods(job, "RUNNING", 2)
        await wait_for_restart(handle, await terminate(handle))
        story.cluster.kill(job)
        story.daemon_hosts.notify(job)
        assert DaemonResult() == DaemonResult(**await handle.result())


async def test_a_terminated_maintenance_carries_on(client: Client) -> None:
    """The workflow of a terminated maintenance is started again, and reads the host's progress."""
    host = HostMaintenance("local", Hostname("revived"), HostState.UP, HostState.DOWN)
    async with restarting(client, rows={"maintenance": SimpleNamespace(get=lambda *_: host)}):
        await start(client, MAINTENANCE, "local/revived", host, maintenance_labels(host), QUIET)
        handle = client.get_workflow_handle(maintenance_workflow_id("local", "revived"))
        await wait_for_restart(handle, await terminate(handle))
        await handle.terminate()


async def test_a_terminated_migration_carries_on(client: Client) -> None:
    """The workflow of a terminated migration is started again, and continues from its rows."""
    async with (
        migration_story(client, task_queue=MAINTENANCE_QUEUE) as story,
        restarting(client, rows={"migrations": SimpleNamespace(get=lambda _: story.pool.row)}),
    ):
        await story.half()
        story.pool.act(MigrationAct.PAUSE)
        await wait_until(lambda: story.pool.row is not None and story.pool.row.state == "PAUSED", "a pause")
        await wait_for_restart(story.handle, await terminate(story.handle))
        story.pool.act(MigrationAct.RESUME)

        assert "SUCCEEDED" == (await story.result()).state


async def test_terminated_rebalancing_carries_on(client: Client) -> None:
    """The workflow of terminated rebalancing is started again, and reads how many pods were moved."""
    async with (
        rebalance_story(client, task_queue=MAINTENANCE_QUEUE) as story,
        restarting(client, rows={"rebalances": story.cluster}),
    ):
        await story.moved(2)
        await wait_for_restart(story.handle, await terminate(story.handle))
        story.cluster.act(RebalanceAct.STOP)

        assert RebalanceResult(2) == await story.result()
