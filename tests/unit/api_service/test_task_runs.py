"""v0 TaskManager over real storage: the events and sandboxes of runs."""

from __future__ import annotations

from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState
from services.storage.storage import Storage
from tests.unit.api_service.fakes import OneSandbox
from tests.unit.api_service.story import ID, JOB, UNKNOWN, expect_refusal, ranges, report, run

# -- events and sandbox


async def test_pod_events(tasks: Any, job: JobId, storage: Storage) -> None:
    """Events are in reverse order of time, with states by name."""
    run(storage, 0)
    response = await tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=ID, instanceId=0))

    states = [event.actualState for event in response.result]
    assert (states[0], states[-1]) == ("RUNNING", "INITIALIZED")
    assert {event.taskId.value for event in response.result} == {f"{JOB}-0-1"}
    assert (response.result[0].hostname, response.result[0].goalState) == ("h1", "SUCCEEDED")


async def test_pod_events_of_runs(tasks: Any, job: JobId, storage: Storage) -> None:
    """The limit counts runs; a run id selects one run."""
    await tasks.Stop(task_pb2.StopRequest(jobId=ID, ranges=ranges((0, 1))))
    await tasks.Start(task_pb2.StartRequest(jobId=ID))
    everything = await tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=ID))
    newest = await tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=ID, limit=1))
    oldest = await tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=ID, runId=f"{JOB}-0-1"))

    assert {event.taskId.value[-1] for event in everything.result} == {"1", "2"}
    assert {event.taskId.value[-1] for event in newest.result} == {"2"}
    assert {event.taskId.value[-1] for event in oldest.result} == {"1"}


@pytest.mark.parametrize("wire_id", [UNKNOWN, peloton_pb2.JobID(value="job-1"), peloton_pb2.JobID()])
async def test_pod_events_of_an_unknown_job(tasks: Any, wire_id: peloton_pb2.JobID) -> None:
    """The events of an unknown job are an empty list."""
    response = await tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=wire_id))

    assert response == task_pb2.GetPodEventsResponse()


async def test_pod_events_of_a_bad_run(tasks: Any, job: JobId) -> None:
    """A malformed run id, or another instance's, is refused."""
    bad = await expect_refusal(tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=ID, runId="one")))
    other = await expect_refusal(tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=ID, runId=f"{JOB}-3-1")))

    absurd = await expect_refusal(tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=ID, runId=f"{JOB}-0-{2**70}")))

    assert absurd[0] == grpc.StatusCode.INVALID_ARGUMENT
    assert bad == (grpc.StatusCode.INVALID_ARGUMENT, "invalid pod id 'one': want <job>-<instance>-<run>")
    assert other == (
        grpc.StatusCode.INVALID_ARGUMENT,
        f"run {JOB}-3-1 is not a run of instance 0 of job {JOB}",
    )


async def test_delete_pod_events(tasks: Any, job: JobId, storage: Storage) -> None:
    """Events of runs up to the given one are deleted; a number above all runs deletes all."""
    await tasks.Stop(task_pb2.StopRequest(jobId=ID, ranges=ranges((0, 1))))
    await tasks.Start(task_pb2.StartRequest(jobId=ID))
    await tasks.DeletePodEvents(task_pb2.DeletePodEventsRequest(jobId=ID, instanceId=0, runId=1))
    left = {event.run_id for event in storage.pods.events(JOB, 0, None, 10)}
    await tasks.DeletePodEvents(task_pb2.DeletePodEventsRequest(jobId=ID, instanceId=0, runId=2**64 - 1))

    assert storage.pods.events(JOB, 0, None, 10) == []
    assert left == {2}


async def test_browse_sandbox(tasks: Any, job: JobId, storage: Storage, hosts: OneSandbox) -> None:
    """The api requests the sandbox of the current run from the host manager."""
    run(storage, 0)
    response = await tasks.BrowseSandbox(task_pb2.BrowseSandboxRequest(jobId=ID, instanceId=0))

    assert not response.HasField("error")
    assert (response.hostname, response.port) == ("10.0.0.1", "5051")
    assert list(response.paths) == ["/sandbox/stdout", "/sandbox/stderr"]
    assert (response.mesosMasterHostname, response.mesosMasterPort) == ("10.0.0.9", "5050")
    assert hosts.asked == [(PodId(JOB, 0, 1), "h1", "agent-1")]


async def test_browse_sandbox_of_a_past_run(tasks: Any, job: JobId, storage: Storage, hosts: OneSandbox) -> None:
    """The host of an earlier run is known from its events."""
    run(storage, 0)
    await tasks.Stop(task_pb2.StopRequest(jobId=ID, ranges=ranges((0, 1))))
    report(storage, 0, PodState.KILLED)
    await tasks.Start(task_pb2.StartRequest(jobId=ID, ranges=ranges((0, 1))))
    await tasks.BrowseSandbox(task_pb2.BrowseSandboxRequest(jobId=ID, instanceId=0, taskId=f"{JOB}-0-1"))

    assert hosts.asked == [(PodId(JOB, 0, 1), "h1", "agent-1")]


async def test_browse_sandbox_errors(tasks: Any, job: JobId, storage: Storage, hosts: OneSandbox) -> None:
    """Each cause of a missing sandbox has its own error inside the response."""
    run(storage, 0)

    async def browse(**request: Any) -> task_pb2.BrowseSandboxResponse.Error:
        response = await tasks.BrowseSandbox(task_pb2.BrowseSandboxRequest(jobId=ID, **request))
        return cast(task_pb2.BrowseSandboxResponse.Error, response.error)

    assert (await browse(instanceId=9)).outOfRange.instanceCount == 4
    assert (await browse(instanceId=0, taskId=f"{JOB}-0-7")).outOfRange.instanceCount == 4
    assert (await browse(instanceId=1)).notRunning.message == "taskinfo does not have hostname or agentID"
    hosts.is_down = True
    assert (await browse(instanceId=0)).failure.message == (
        "get slave log failed on host:h1 due to: connection refused"
    )
