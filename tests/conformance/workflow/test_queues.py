"""Task queues and fairness, on a real server: a crowd of one kind or one pool does not hold up the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from peloton.model.ids import Hostname, JobId, RespoolId, job_workflow_id, maintenance_workflow_id, new_job_id
from peloton.model.job import JobType
from services.temporal import BATCH_QUEUE, MAINTENANCE_QUEUE, SERVICE_QUEUE, TASK_QUEUES, start_job, wake_maintenance
from services.worker.worker import build_workers
from tests.workflow.cluster import Cluster
from tests.workflow.server import RealClock, ServerStory, server_story
from tests.workflow.stories import ports_on
from workflows.policies import Policies

CROWD = 80
SLOTS = 16
"""Of a worker: as many jobs of the crowd may have been taken before it came to know of another pool."""


async def started_at(story: ServerStory, job_id: JobId) -> datetime:
    """When a worker took its first task."""
    history = await story.handle(job_id).fetch_history()
    return next(
        e.event_time.ToDatetime() for e in history.events if e.HasField("workflow_task_started_event_attributes")
    )


async def test_a_pool_does_not_wait_behind_the_crowd_of_another(client: Client) -> None:
    """80 jobs of one pool wait for a worker, then one job of another pool comes: it is not the last that is taken."""
    async with server_story(client) as story:
        await story.stop_worker()
        crowd = [replace(story.add_job(1), respool_id=RespoolId("crowd")) for _ in range(CROWD)]
        for record in crowd:
            await story.start(record)
        late = replace(story.add_job(1), respool_id=RespoolId("quiet"))
        await story.start(late)
        await story.start_worker()
        for record in (*crowd, late):
            await story.result(record.job_id)
        late_at = await started_at(story, late.job_id)
        before = sum([await started_at(story, record.job_id) < late_at for record in crowd])

    assert before <= 2 * SLOTS


async def test_each_kind_of_work_has_a_queue(client: Client) -> None:
    """Batch jobs, services and maintenances start on queues of their own, with their pool or cluster as the key of
    fairness."""
    cluster = Cluster(RealClock())
    batch, service = cluster.submit(new_job_id(), 1), cluster.submit(new_job_id(), 1)
    service = replace(service, type=JobType.SERVICE)
    for record in (batch, service):
        await start_job(client, record, Policies())
    await wake_maintenance(client, "east", Hostname("queue1"), Policies())
    ids = [job_workflow_id(batch.job_id), job_workflow_id(service.job_id), maintenance_workflow_id("east", "queue1")]
    found = []
    for workflow_id in ids:
        handle = client.get_workflow_handle(workflow_id)
        described = await handle.describe()
        key = described.raw_description.workflow_execution_info.priority.fairness_key
        found.append((described.task_queue, key))
        await handle.terminate()

    assert [
        (BATCH_QUEUE, batch.respool_id),
        (SERVICE_QUEUE, service.respool_id),
        (MAINTENANCE_QUEUE, "east"),
    ] == found


@pytest.mark.parametrize("queue", TASK_QUEUES)
async def test_workers_serve_each_queue(client: Client, queue: str) -> None:
    """A service, too, that an earlier version started on the queue of batch jobs."""
    async with server_story(client, task_queue=queue) as story:
        await story.stop_worker()
        workers = build_workers(client, ports_on(story.cluster))
        running = [asyncio.create_task(worker.run()) for worker in workers]
        job = await story.submit(1)
        assert ("SUCCEEDED", {"SUCCEEDED": 1}) == await story.result(job)
        request = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue))
        pollers = (await client.workflow_service.describe_task_queue(request)).pollers
        await asyncio.gather(*(worker.shutdown() for worker in workers))
        await asyncio.gather(*running)

    assert pollers
