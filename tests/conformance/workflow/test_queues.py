"""Task queues and fairness, on a real server: a crowd of one kind or one pool does not hold up the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from peloton.model.host import HostState, LaunchResult, Placement
from peloton.model.ids import Hostname, JobId, RespoolId, job_workflow_id, maintenance_workflow_id, new_job_id
from peloton.model.job import JobType
from peloton.model.maintenance import HostMaintenance
from services.temporal.task_queues import BATCH_QUEUE, MAINTENANCE_QUEUE, SERVICE_QUEUE, TASK_QUEUES
from services.temporal.workflow_labels import job_labels, maintenance_labels
from services.wakers.lifecycles import JOB, MAINTENANCE, start
from services.worker.worker import LONG_SLOTS, build_workers, run_workers
from tests.nightly import nightly
from tests.workflow.cluster import Cluster
from tests.workflow.fakes import FakeHostManager, FakeRecords
from tests.workflow.server import RealClock, ServerStory, server_story, wait_until
from tests.workflow.stories import ports_on
from workflows.policies import Policies

SLOTS = 4
"""Task slots of a worker: the fewer, the smaller is a crowd."""
CROWD = 6 * SLOTS
BIG = 101
"""Pods of a job whose steps are activities: one more than fit into a workflow task."""


async def read_start(story: ServerStory, job_id: JobId) -> datetime:
    """The time at which a worker took the first task of the job."""
    history = await story.handle(job_id).fetch_history()
    return next(
        e.event_time.ToDatetime() for e in history.events if e.HasField("workflow_task_started_event_attributes")
    )


async def test_a_pool_does_not_wait_behind_the_crowd_of_another(client: Client) -> None:
    """Many jobs of one pool wait for a worker, then one job of another pool comes: it is not the last that is taken."""
    async with server_story(client, worker_slots=SLOTS, hosts=CROWD + 1) as story:
        await story.stop_worker()
        crowd = [replace(story.add_job(1), respool_id=RespoolId("crowd")) for _ in range(CROWD)]
        for record in crowd:
            await story.start(record)
        late = replace(story.add_job(1), respool_id=RespoolId("quiet"))
        await story.start(late)
        await story.start_worker()
        for record in (*crowd, late):
            await story.result(record.job_id)
        late_at = await read_start(story, late.job_id)
        before = sum([await read_start(story, record.job_id) < late_at for record in crowd])
        story.replays_only(late.job_id)  # all histories are alike

    assert before <= 2 * SLOTS


async def test_each_kind_of_work_has_a_queue(client: Client) -> None:
    """Batch jobs, services and maintenances start on queues of their own, with their pool or cluster as the key of
    fairness."""
    cluster = Cluster(RealClock())
    batch, service = cluster.submit(new_job_id(), 1), cluster.submit(new_job_id(), 1)
    service = replace(service, type=JobType.SERVICE)
    for record in (batch, service):
        await start(client, JOB, record.job_id, record, job_labels(record, "/pool"), Policies())
    host = HostMaintenance("east", Hostname("queue1"), HostState.UP, HostState.DOWN)
    await start(client, MAINTENANCE, "east/queue1", host, maintenance_labels(host), Policies())
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
        async with run_workers(build_workers(client, ports_on(story.cluster))):
            job = await story.submit(1)
            assert ("SUCCEEDED", {"SUCCEEDED": 1}) == await story.result(job)
            request = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue))
            pollers = (await client.workflow_service.describe_task_queue(request)).pollers

    assert pollers


class Gate:
    """Blocks the calls for big jobs until it opens, and counts the blocked ones."""

    def __init__(self) -> None:
        self.held_count = 0
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def pass_through(self) -> None:
        self.held_count += 1
        self._opened.wait()


class HeldRecords(FakeRecords):
    def __init__(self, cluster: Cluster, gate: Gate) -> None:
        super().__init__(cluster)
        self._gate = gate

    def create(self, job_id: JobId, on_chunk: Callable[[int], None]) -> int:
        if self.cluster.jobs[job_id].record.instance_count >= BIG:
            self._gate.pass_through()
        return super().create(job_id, on_chunk)


class HeldHosts(FakeHostManager):
    def __init__(self, cluster: Cluster, gate: Gate) -> None:
        super().__init__(cluster)
        self._gate = gate

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        if self.cluster.jobs[job_id].record.instance_count >= BIG:
            self._gate.pass_through()
        return super().launch(job_id, lease_id, placements)


@pytest.mark.parametrize(("held", "held_max"), [nightly("creation of pods", LONG_SLOTS), ("launches", SLOTS)])
async def test_big_jobs_hold_up_no_small_one(client: Client, held: str, held_max: int) -> None:
    """A job of one pod runs to its end while as many calls for big jobs are blocked as a worker makes."""
    gate = Gate()
    # A launch that is blocked keeps the lease of its host.
    async with server_story(client, worker_slots=SLOTS, hosts=held_max + 1, slots=2 * BIG) as story:
        await story.stop_worker()
        ports = ports_on(story.cluster)
        if held == "launches":
            ports = replace(ports, hosts=HeldHosts(story.cluster, gate))
        else:
            ports = replace(ports, pods=HeldRecords(story.cluster, gate))
        await story.start_worker(ports)
        try:
            big = [await story.submit(BIG) for _ in range(held_max)]
            await wait_until(lambda: gate.held_count >= held_max, f"{held_max} calls held up")
            small = await story.result(await story.submit(1))
            held_count = gate.held_count
        finally:
            gate.open()
        results = [await story.result(job) for job in big]
        story.replays_only(big[0])  # all histories are alike

    assert ("SUCCEEDED", {"SUCCEEDED": 1}) == small
    assert held_max == held_count
    assert [("SUCCEEDED", {"SUCCEEDED": BIG})] * held_max == results
