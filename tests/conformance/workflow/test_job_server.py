"""The core stories on a real Temporal dev server, with the sandbox; each replays its own histories at its end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowExecutionStatus

from peloton.model.ids import JobId, PodId, job_workflow_id
from peloton.model.job import JobProgress, SlaSpec
from peloton.model.pod import PodState
from tests.workflow.fakes import FakeRecords
from tests.workflow.server import TIMEOUT_S, histories_of, server_story, wait_until
from tests.workflow.stories import Story
from workflows.attributes import JOB_ID, JOB_NAME, OWNER, POOL, STATE, TYPE
from workflows.policies import Policies


async def test_job_succeeds(client: Client) -> None:
    """A job of 10 pods and one of 1,000 run at the same time and succeed; a summary distinguishes them in the UI."""
    async with server_story(client, hosts=101) as story:
        small, large = await story.submit(10), await story.submit(1_000)
        summary = await (await story.handle(small).describe()).static_summary()

        assert ("SUCCEEDED", {"SUCCEEDED": 10}) == await story.result(small)
        assert ("SUCCEEDED", {"SUCCEEDED": 1_000}) == await story.result(large)
        assert "batch job train in pool pool of team, 10 instances" == summary
        assert 1_010 == len(story.cluster.launched)


async def test_virtual_time_counts_events_like_the_server(client: Client) -> None:
    """The same story takes as many events on the server as in virtual time, up to how wake-ups fall together."""
    times_s: dict[str, Any] = {
        "start_s": 1.5,
        "run_s": 2.5,
    }  # so far apart that a worker that is late looks at each by itself
    virtual = Story(hosts=1, **times_s)
    await asyncio.to_thread(lambda: virtual.submit(10).run())  # virtual time has an event loop of its own
    async with server_story(client, hosts=1, **times_s, admission_s=0.1) as story:
        job = await story.submit(10)
        await story.result(job)
        (history,) = await histories_of(client, job_workflow_id(job))

    assert abs(virtual.workflow.events - len(history.events)) <= 8


async def test_retries_and_waves(client: Client) -> None:
    """Pods that fail run again, in a pool that admits 10 at a time, over several runs of the workflow."""

    def ending(pod: PodId) -> PodState:
        return PodState.FAILED if pod.instance_id < 5 and pod.run_id == 1 else PodState.SUCCEEDED

    async with server_story(client, admitted_max=10, ending=ending) as story:
        policies = Policies(history_events_max=30, look_again_s=5.0)
        job = await story.submit(25, max_failures=2, policies=policies)

        assert ("SUCCEEDED", {"SUCCEEDED": 25}) == await story.result(job)
        assert 30 == len(story.cluster.launched)
        assert len(await histories_of(client, job_workflow_id(job))) > 1


async def test_hosts_come_later(client: Client) -> None:
    """A job without hosts says what it waits for, and starts when hosts come."""
    async with server_story(client, hosts=0) as story:
        job = await story.submit(10)
        await wait_until(lambda: story.cluster.calls["note_unplaced"] >= 2, "second placement")
        metadata = await story.handle(job).query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        story.cluster.add_hosts(1)

        assert "The job is **PENDING** with 10 pods:" in metadata.current_details
        assert "It waits for 10 pods without a host (no host offered)." in metadata.current_details
        assert ("SUCCEEDED", {"SUCCEEDED": 10}) == await story.result(job)


async def test_kill(client: Client) -> None:
    """Running pods end on hosts, queued ones in the queue, and nothing starts afterwards."""
    async with server_story(client, admitted_max=10, run_s=60.0) as story:
        job = await story.submit(35)
        await story.pods(job, "RUNNING", 10)
        story.cluster.kill(job)

        assert ("KILLED", {"KILLED": 35}) == await story.result(job)
        assert 10 == len(story.cluster.launched)


async def test_deadline(client: Client) -> None:
    """A pod that runs too long is ended without a signal to the workflow."""
    async with server_story(client, run_s=60.0) as story:
        job = await story.submit(5, sla=SlaSpec(max_running_time_s=1))

        assert ("KILLED", {"KILLED": 5}) == await story.result(job)


async def test_dependencies_fail(client: Client) -> None:
    """Calls that fail, before or after they act, are repeated; no pod starts twice."""
    async with server_story(client, admitted_max=10) as story:
        story.cluster.outages.update(create=1, settle=1, acquire_hosts=1)
        story.cluster.lost_replies.update(enqueue=1, settle=1, launch=1)
        job = await story.submit(15)

        assert ("SUCCEEDED", {"SUCCEEDED": 15}) == await story.result(job)
        assert 15 == len(story.cluster.launched)


async def test_worker_is_replaced(client: Client) -> None:
    """A job continues with a new worker that has never seen it: from its history alone."""
    async with server_story(client, admitted_max=10, run_s=0.3) as story:
        job = await story.submit(25)
        await story.pods(job, "RUNNING", 10)
        await story.stop_worker()
        await story.pods(job, "SUCCEEDED", 10)
        await story.start_worker()

        assert ("SUCCEEDED", {"SUCCEEDED": 25}) == await story.result(job)
        assert 25 == len(story.cluster.launched)


async def test_start_is_idempotent(client: Client) -> None:
    """Starting a job again while it runs changes nothing."""
    async with server_story(client, hosts=0) as story:
        record = story.add_job(10)
        await asyncio.gather(*(story.start(record) for _ in range(3)))
        await wait_until(lambda: story.cluster.calls["ready_gangs"] >= 1, "placement")
        await story.start(record)
        story.cluster.add_hosts(1)

        assert ("SUCCEEDED", {"SUCCEEDED": 10}) == await story.result(record.job_id)
        assert 1 == story.cluster.calls["create"]
        story.replays_only(record.job_id)


async def test_an_id_is_used_again_while_its_workflow_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job has ended, is deleted, and another one is created under its id, all before the workflow has reported its
    end to the server: the new job has a workflow too."""
    settle, is_over, go_on = FakeRecords.settle, threading.Event(), threading.Event()

    def slowly(records: FakeRecords, job_id: JobId, now_ns: int, *limits: int) -> JobProgress:
        progress = settle(records, job_id, now_ns, *limits)
        if progress.is_finished:
            is_over.set()
            assert go_on.wait(TIMEOUT_S)
        return progress

    monkeypatch.setattr(FakeRecords, "settle", slowly)
    async with server_story(client) as story:
        job = await story.submit(1)
        await asyncio.to_thread(is_over.wait, TIMEOUT_S)
        story.cluster.forget(job)
        await story.start(story.cluster.submit(job, 5))
        go_on.set()

        await story.pods(job, "SUCCEEDED", 5)
        assert ("SUCCEEDED", {"SUCCEEDED": 5}) == await story.result(job)
        story.replays_only(job)


async def test_search_attributes(client: Client) -> None:
    """Jobs are found in Temporal by id, pool, type and state, also after continue-as-new."""
    async with server_story(client, admitted_max=10, run_s=0.2) as story:
        job = await story.submit(25, policies=Policies(history_events_max=40, look_again_s=5.0))
        await story.result(job)
        query = f"{JOB_ID.name} = '{job}' AND {STATE.name} = 'SUCCEEDED' AND ExecutionStatus = 'Completed'"
        async with asyncio.timeout(TIMEOUT_S):
            while not (found := [w async for w in client.list_workflows(query)]):
                await asyncio.sleep(0.05)

        (last,) = found
        assert job_workflow_id(job) == last.id
        assert "pool" == last.typed_search_attributes[POOL]
        assert ("train", "team") == (last.typed_search_attributes[JOB_NAME], last.typed_search_attributes[OWNER])
        assert "BATCH" == last.typed_search_attributes[TYPE]
        assert WorkflowExecutionStatus.COMPLETED is last.status
