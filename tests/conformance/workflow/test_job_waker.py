"""The waker of job workflows, against a real server."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from peloton.errors import Unavailable
from peloton.model.ids import JobId, job_workflow_id, new_job_id
from peloton.model.job import JobRecord
from services import temporal
from services.temporal import SEARCH_ATTRIBUTES, TASK_QUEUE, JobWaker, connect, register_search_attributes
from tests.workflow.fakes import FakeRecords
from tests.workflow.server import TEMPORAL, histories_of, server_story, wait_until
from workflows.policies import Policies


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporal, "RETRY_S", 0.1)


async def test_changes_are_coalesced(client: Client) -> None:
    """However many changes are noted, by whatever thread, a job is signalled once per interval."""
    async with server_story(client, hosts=0) as story:
        job = await story.submit(1)
        await wait_until(lambda: story.cluster.calls["place"] >= 1, "placement")
        waker = JobWaker(client, FakeRecords(story.cluster).job, Policies(), interval_s=0.2)
        loop = asyncio.get_running_loop()
        begin_s = loop.time()

        def note() -> None:
            for _ in range(200):
                waker.jobs_changed([job])

        for _ in range(5):
            threads = [threading.Thread(target=note) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        took_s = loop.time() - begin_s
        settled = story.cluster.calls["settle"]
        waker.jobs_changed([job])
        await wait_until(lambda: story.cluster.calls["settle"] > settled, "the last change is looked at")
        await waker.close()
        (history,) = await histories_of(client, job_workflow_id(job))
        story.cluster.add_hosts(1)
        await story.result(job)

    signals = sum(e.HasField("workflow_execution_signaled_event_attributes") for e in history.events)
    assert 1 <= signals <= 4 + took_s / 0.2


async def test_stored_job_without_workflow_is_started(client: Client) -> None:
    """A job that was stored while Temporal was away gets its workflow with the first wake-up."""
    async with server_story(client, task_queue=TASK_QUEUE) as story:
        record = story.add_job(3)
        story.started.append(job_workflow_id(record.job_id))
        story.cluster.tell(record.job_id)
        await wait_until(lambda: story.cluster.calls["create_pods"] > 0, "workflow started")

        assert ("SUCCEEDED", {"SUCCEEDED": 3}) == await story.result(record.job_id)


async def test_ended_and_unknown_jobs_are_left_alone(client: Client) -> None:
    """A wake-up of a job that ended starts no second workflow; one of a job that is not stored starts none."""
    async with server_story(client) as story:
        job, unknown = await story.submit(1), new_job_id()
        await story.result(job)
        run_before = (await story.handle(job).describe()).run_id
        asked: list[JobId] = []

        def find(job_id: JobId) -> JobRecord | None:
            asked.append(job_id)
            return FakeRecords(story.cluster).job(job_id)

        waker = JobWaker(client, find, Policies(), interval_s=0.01)
        waker.jobs_changed([job, unknown])
        await wait_until(lambda: {job, unknown} == set(asked), "both jobs looked up")
        await waker.close()

        described = await story.handle(job).describe()
        assert (run_before, WorkflowExecutionStatus.COMPLETED) == (described.run_id, described.status)
        with pytest.raises(RPCError) as raised:
            await story.handle(unknown).describe()
        assert RPCStatusCode.NOT_FOUND is raised.value.status


@pytest.mark.parametrize("error", [Unavailable("database away"), OSError("connection reset"), ValueError("unforeseen")])
async def test_storage_error_does_not_end_the_waker(client: Client, error: Exception) -> None:
    """When the job cannot be looked up, the wake-up is tried again, and so are later ones."""
    async with server_story(client, task_queue=TASK_QUEUE) as story:
        record = story.add_job(1)
        story.started.append(job_workflow_id(record.job_id))
        errors = [error]

        def find(job_id: JobId) -> JobRecord | None:
            if errors:
                raise errors.pop()
            return FakeRecords(story.cluster).job(job_id)

        waker = JobWaker(client, find, story.policies, interval_s=0.01)
        waker.jobs_changed([record.job_id])
        await wait_until(lambda: story.cluster.calls["create_pods"] > 0, "workflow started")
        await story.result(record.job_id)
        await waker.close()


async def test_temporal_comes_later(caplog: pytest.LogCaptureFixture) -> None:
    """Wake-ups that were noted while Temporal was away are delivered when it comes; it learns our attributes then."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    client = await connect(f"127.0.0.1:{port}", "default")
    record_of: dict[JobId, JobRecord] = {}
    waker = JobWaker(client, record_of.get, Policies(), interval_s=0.01)
    with caplog.at_level(logging.WARNING, logger=temporal.__name__):
        waker.jobs_changed([new_job_id()])
        await wait_until(lambda: len(caplog.records) >= 2, "two attempts failed")
    async with (
        await WorkflowEnvironment.start_local(
            port=port, dev_server_existing_path=str(TEMPORAL), dev_server_log_level="error"
        ) as environment,
        server_story(environment.client, task_queue=TASK_QUEUE) as story,
    ):
        await register_search_attributes(client)
        await register_search_attributes(client)
        known = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace="default"))
        record = story.add_job(2)
        story.started.append(job_workflow_id(record.job_id))
        record_of[record.job_id] = record
        waker.jobs_changed([record.job_id])
        await wait_until(lambda: story.cluster.calls["create_pods"] > 0, "workflow started")

        assert ("SUCCEEDED", {"SUCCEEDED": 2}) == await story.result(record.job_id)
        assert {a.name for a in SEARCH_ATTRIBUTES} <= set(known.custom_attributes)
        await waker.close()


def test_changes_after_the_end_are_dropped(temporal_address: str) -> None:
    """A thread that notes a change after the waker's loop has ended gets no error."""

    async def make() -> JobWaker:
        waker = JobWaker(await connect(temporal_address, "default"), lambda _: None, Policies())
        await waker.close()
        return waker

    asyncio.run(make()).jobs_changed([new_job_id()])
