"""Operations of people in the Temporal Web UI, on the whole system."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowExecutionStatus

from peloton.model.ids import job_workflow_id
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import SIMULATED, Lend

pytestmark = pytest.mark.xdist_group("simulated")
T = TypeVar("T")


def ask_temporal(cluster: Cluster, ask: Callable[[Client], Awaitable[T]]) -> T:
    async def connected() -> T:
        return await ask(await Client.connect(cluster.local.temporal))

    return asyncio.run(connected())


def test_a_job_is_found_terminated_and_cancelled(lend: Lend) -> None:
    """A job is found by its pool and name in the list; a termination costs its pods nothing, a cancellation stops
    them."""
    with lend(SIMULATED) as cluster:
        pool = cluster.pool("ui")
        config = shell("sleep 600")
        job = cluster.submit(pool, name="train", owningTeam="vision", instanceCount=3, defaultConfig=config)
        cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 3}, "three pods that run")

        async def find_workflows(client: Client) -> list[str]:
            query = "PelotonPool = '/ui' AND PelotonJobName = 'train' AND PelotonOwner = 'vision'"
            query += " AND PelotonState = 'RUNNING' AND ExecutionStatus = 'Running'"
            return [one.id async for one in client.list_workflows(query)]

        async def details(client: Client) -> str:
            handle = client.get_workflow_handle(job_workflow_id(job))
            reported = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
            return str(reported.current_details)

        async def run_id(client: Client) -> str | None:
            described = await client.get_workflow_handle(job_workflow_id(job)).describe()
            return described.run_id if described.status is WorkflowExecutionStatus.RUNNING else None

        cluster.wait(lambda: ask_temporal(cluster, find_workflows) == [job_workflow_id(job)], "the job in the list")
        assert "The job is **RUNNING** with 3 pods:\n\n- 3 running\n" in ask_temporal(cluster, details)
        first = ask_temporal(cluster, run_id)
        ask_temporal(cluster, lambda client: client.get_workflow_handle(job_workflow_id(job)).terminate())
        cluster.wait(lambda: ask_temporal(cluster, run_id) not in (None, first), "another workflow of the job")
        assert ({"RUNNING": 3}, {0: 1, 1: 1, 2: 1}) == (cluster.counts(job), cluster.run_ids(job))

        ask_temporal(cluster, lambda client: client.get_workflow_handle(job_workflow_id(job)).cancel())
        assert "KILLED" == cluster.finish(job)
        assert {"KILLED": 3} == cluster.counts(job)
