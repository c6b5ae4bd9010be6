"""The waker of job workflows, against a real server."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence

import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from peloton.errors import Unavailable
from peloton.model.ids import JobId, job_workflow_id, new_job_id
from peloton.model.job import JobRecord, RolledUp
from services.temporal.connection import connect, connect_config
from services.temporal.task_queues import BATCH_QUEUE, register_search_attributes
from services.wakers import job_waker
from services.wakers import waker as wakers
from services.wakers.job_rollup import JobRollUp
from services.wakers.job_waker import JobWaker
from tests.ports import free_ports
from tests.temporal_server import temporal_server
from tests.workflow.fakes import FakeRecords
from tests.workflow.server import histories_of, job_storage, server_story, wait_until
from workflows.attributes import SEARCH_ATTRIBUTES
from workflows.policies import Policies


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakers, "RETRY_S", 0.1)
    monkeypatch.setattr(wakers, "WARNINGS_EVERY_S", 0.0)


async def test_changes_are_coalesced(client: Client) -> None:
    """However many changes are noted, by whatever thread, a job is signalled once per interval."""
    async with server_story(client, hosts=0) as story:
        job = await story.submit(1)
        await wait_until(lambda: story.cluster.calls["ready_gangs"] >= 1, "placement")
        waker = JobWaker(client, job_storage(FakeRecords(story.cluster).get), Policies(), interval_s=0.2)
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
    """A job that was stored while Temporal was down has a workflow after the first wake-up."""
    async with server_story(client, task_queue=BATCH_QUEUE) as story:
        record = story.add_job(3)
        story.started.append(job_workflow_id(record.job_id))
        story.cluster.notify(record.job_id)
        await wait_until(lambda: story.cluster.calls["create"] > 0, "workflow started")

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
            return FakeRecords(story.cluster).get(job_id)

        waker = JobWaker(client, job_storage(find), Policies(), interval_s=0.01)
        waker.jobs_changed([job, unknown])
        await wait_until(lambda: {job, unknown} == set(asked), "both jobs looked up")
        await waker.close()

        described = await story.handle(job).describe()
        assert (run_before, WorkflowExecutionStatus.COMPLETED) == (described.run_id, described.status)
        with pytest.raises(RPCError) as raised:
            await story.handle(unknown).describe()
        assert RPCStatusCode.NOT_FOUND is raised.value.status


async def test_what_only_is_to_be_shown_waits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wake-ups about changed pods: a job with something to do is signalled at once, one that was only counted after a
    while, and one that is signalled meanwhile for another reason not a second time."""
    show_s = 2.0
    monkeypatch.setattr(job_waker, "SHOW_S", show_s)
    async with server_story(client, hosts=0) as story:
        busy, shown, both = [await story.submit(1) for _ in range(3)]
        jobs = (busy, shown, both)
        await wait_until(lambda: story.cluster.calls["ready_gangs"] >= 3, "placements")
        reported: list[JobId] = []

        class Waker(JobWaker):
            async def _signal(self, key: str) -> None:
                reported.append(JobId(key))
                if key == busy:
                    self.jobs_changed([both])

        def roll_up(job_ids: Sequence[JobId], now_ns: int) -> RolledUp:
            return RolledUp([job for job in job_ids if job == busy], [job for job in job_ids if job != busy])

        stored = job_storage(FakeRecords(story.cluster).get)
        waker = Waker(client, stored, Policies(), interval_s=0.01)
        rollup = JobRollUp(roll_up, waker, interval_s=0.01)
        begin_s = asyncio.get_running_loop().time()
        rollup.pods_changed(jobs)
        await wait_until(lambda: shown in reported, "who has something to show")
        took_s = asyncio.get_running_loop().time() - begin_s
        await rollup.close()
        await waker.close()
        story.cluster.add_hosts(1)
        for job in jobs:
            await story.result(job)

    assert [busy, both, shown] == reported
    assert took_s >= show_s


async def test_jobs_that_cannot_be_counted_are_reported(client: Client) -> None:
    """An outage of storage ends no waker and loses no wake-up."""
    reported: list[str] = []

    class Waker(JobWaker):
        async def _signal(self, key: str) -> None:
            reported.append(key)

    def roll_up(job_ids: Sequence[JobId], now_ns: int) -> RolledUp:
        raise Unavailable("database away")

    waker = Waker(client, job_storage(lambda _: None), Policies(), interval_s=0.01)
    rollup = JobRollUp(roll_up, waker, interval_s=0.01)
    job = new_job_id()
    rollup.pods_changed([job])
    await wait_until(lambda: [job] == reported, "the signal")
    await rollup.close()
    await waker.close()


@pytest.mark.parametrize("error", [Unavailable("database away"), OSError("connection reset"), ValueError("unforeseen")])
async def test_storage_error_does_not_end_the_waker(client: Client, error: Exception) -> None:
    """The wake-up of a job that cannot be read is tried again, and so are later ones."""
    async with server_story(client, task_queue=BATCH_QUEUE) as story:
        record = story.add_job(1)
        story.started.append(job_workflow_id(record.job_id))
        errors = [error]

        def find(job_id: JobId) -> JobRecord | None:
            if errors:
                raise errors.pop()
            return FakeRecords(story.cluster).get(job_id)

        waker = JobWaker(client, job_storage(find), story.policies, interval_s=0.01)
        waker.jobs_changed([record.job_id])
        await wait_until(lambda: story.cluster.calls["create"] > 0, "workflow started")
        await story.result(record.job_id)
        await waker.close()


async def test_temporal_comes_later(caplog: pytest.LogCaptureFixture) -> None:
    """Wake-ups that were noted while Temporal was down are delivered when it comes; our attributes are registered
    then."""
    (port,) = free_ports(1)
    client = await connect(connect_config(f"127.0.0.1:{port}", environment={}))
    record_of: dict[JobId, JobRecord] = {}
    waker = JobWaker(client, job_storage(record_of.get), Policies(), interval_s=0.01)
    with caplog.at_level(logging.WARNING, logger=wakers.__name__):
        waker.jobs_changed([new_job_id()])
        await wait_until(lambda: len(caplog.records) >= 2, "two attempts failed")
    with temporal_server(port=port) as address:
        async with server_story(await Client.connect(address), task_queue=BATCH_QUEUE) as story:
            await register_search_attributes(client)
            await register_search_attributes(client)
            known = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace="default")
            )
            record = story.add_job(2)
            story.started.append(job_workflow_id(record.job_id))
            record_of[record.job_id] = record
            waker.jobs_changed([record.job_id])
            await wait_until(lambda: story.cluster.calls["create"] > 0, "workflow started")

            assert ("SUCCEEDED", {"SUCCEEDED": 2}) == await story.result(record.job_id)
            assert {a.name for a in SEARCH_ATTRIBUTES} <= set(known.custom_attributes)
            await waker.close()


def test_changes_after_the_end_are_dropped(temporal_address: str) -> None:
    """A thread that notes a change after the waker's loop has ended sees no error."""
    config = connect_config(temporal_address, environment={})

    async def make() -> JobWaker:
        waker = JobWaker(await connect(config), job_storage(lambda _: None), Policies())
        await waker.close()
        return waker

    asyncio.run(make()).jobs_changed([new_job_id()])


async def test_signals_say_why(temporal_address: str) -> None:
    """All causes that were noted for a job, and which role sent the signal, are in the history."""
    client = await connect(connect_config(temporal_address, environment={}), "resmgr", is_lazy=False)
    async with server_story(client, hosts=0) as story:
        job = await story.submit(1)
        await wait_until(lambda: story.cluster.calls["ready_gangs"] >= 1, "placement")
        waker = JobWaker(client, job_storage(FakeRecords(story.cluster).get), Policies(), interval_s=0.2)
        settled = story.cluster.calls["settle"]
        waker.jobs_changed([job], "pods were admitted")
        waker.jobs_changed([job], "a call of the API")
        await wait_until(lambda: story.cluster.calls["settle"] > settled, "the change is looked at")
        await waker.close()
        (history,) = await histories_of(client, job_workflow_id(job))
        story.cluster.add_hosts(1)
        await story.result(job)

    signals = [
        e.workflow_execution_signaled_event_attributes
        for e in history.events
        if e.HasField("workflow_execution_signaled_event_attributes")
    ]
    reported = [(signal.identity.partition("@")[0], signal.header.fields["cause"].data) for signal in signals]
    assert ("resmgr", b'"a call of the API; pods were admitted"') in reported
