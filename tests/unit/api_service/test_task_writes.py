"""v0 TaskManager over real storage: Stop, Start, Restart, Refresh."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.model.ids import JobId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.storage.storage import Storage
from tests.unit.api_service import services
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.story import ID, JOB, NOW_NS, Config, end, expect_refusal, goals, ranges, run

# -- Stop, Start, Restart, Refresh


@pytest.mark.parametrize("asked", [[], ranges((0, 4)), ranges((0, 2**31 - 1))])
async def test_stop_whole_job(
    tasks: Any, job: JobId, storage: Storage, wakes: RecordedWakes, asked: list[task_pb2.InstanceRange]
) -> None:
    """The job stops if there is no range, or one over all: its goal and its pods' goals are KILLED, its workflow is
    signalled."""
    response = await tasks.Stop(task_pb2.StopRequest(jobId=ID, ranges=asked))

    record = storage.jobs.get(JOB)
    assert list(response.stoppedInstanceIds) == [0, 1, 2, 3]
    assert not response.invalidInstanceIds
    assert record is not None
    assert (record.goal, record.desired_state_version) == (JobState.KILLED, 2)
    assert goals(storage) == [PodState.KILLED] * 4
    assert wakes.changed == [JOB]


async def test_stop_twice(tasks: Any, job: JobId, storage: Storage) -> None:
    """A second stop has the same answer and changes nothing."""
    await tasks.Stop(task_pb2.StopRequest(jobId=ID))
    response = await tasks.Stop(task_pb2.StopRequest(jobId=ID))

    record = storage.jobs.get(JOB)
    assert list(response.stoppedInstanceIds) == [0, 1, 2, 3]
    assert record is not None
    assert record.desired_state_version == 2


async def test_stop_after_the_end(tasks: Any, job: JobId, storage: Storage, wakes: RecordedWakes) -> None:
    """The stop of an ended job succeeds, and signals no workflow."""
    end(storage)
    response = await tasks.Stop(task_pb2.StopRequest(jobId=ID))

    assert list(response.stoppedInstanceIds) == [0, 1, 2, 3]
    assert wakes.changed == []


async def test_stop_ranges(tasks: Any, job: JobId, storage: Storage) -> None:
    """The goal of the pods in the ranges becomes KILLED; pods that have it already are skipped, others unchanged."""
    first = await tasks.Stop(task_pb2.StopRequest(jobId=ID, ranges=ranges((1, 2))))
    second = await tasks.Stop(task_pb2.StopRequest(jobId=ID, ranges=ranges((1, 2), (3, 9))))

    record = storage.jobs.get(JOB)
    assert (list(first.stoppedInstanceIds), list(second.stoppedInstanceIds)) == ([1], [3])
    assert goals(storage) == [PodState.SUCCEEDED, PodState.KILLED, PodState.SUCCEEDED, PodState.KILLED]
    assert record is not None
    assert record.goal is JobState.SUCCEEDED


async def test_stop_before_pods_exist(jobs: Any, config: Config, tasks: Any, storage: Storage) -> None:
    """Pods that are not created yet cannot be stopped singly: the answer has them as invalid, for a later retry."""
    await jobs.Create(job_pb2.CreateRequest(id=ID, config=config(3)))
    response = await tasks.Stop(task_pb2.StopRequest(jobId=ID, ranges=ranges((1, 3))))

    assert (list(response.stoppedInstanceIds), list(response.invalidInstanceIds)) == ([], [1, 2])


async def test_stop_before_an_update_has_made_the_pods(v1: Any, tasks: Any, storage: Storage) -> None:
    """An update creates a service's pods in batches: existing ones are stopped, and the others are answered as
    invalid."""
    create_spec = stateless_pb2.CreateSpec(batch_size=1)
    await services.create(v1, services.spec(), create_spec=create_spec)
    storage.updates.advance(JOB, NOW_NS)
    response = await tasks.Stop(task_pb2.StopRequest(jobId=ID, ranges=ranges((0, 2))))

    assert (list(response.stoppedInstanceIds), list(response.invalidInstanceIds)) == ([0], [1])


async def test_stop_whole_job_before_pods_exist(jobs: Any, config: Config, tasks: Any, storage: Storage) -> None:
    """The whole job can be stopped at any time: its pods are then created stopped."""
    await jobs.Create(job_pb2.CreateRequest(id=ID, config=config(3)))
    response = await tasks.Stop(task_pb2.StopRequest(jobId=ID))
    storage.pods.create(JOB, lambda _: None)

    assert list(response.stoppedInstanceIds) == [0, 1, 2]
    assert [pod.state for pod in storage.pods.page(JOB, 0, 4)] == [PodState.KILLED] * 3


async def test_start(tasks: Any, job: JobId, storage: Storage, wakes: RecordedWakes) -> None:
    """Stopped tasks start with a new run; others are ignored."""
    await tasks.Stop(task_pb2.StopRequest(jobId=ID, ranges=ranges((1, 2))))
    wakes.changed.clear()
    response = await tasks.Start(task_pb2.StartRequest(jobId=ID))

    pod = storage.pods.get(JOB, 1)
    assert list(response.startedInstanceIds) == [1]
    assert not response.invalidInstanceIds
    assert pod is not None
    assert (pod.goal, pod.run_id, pod.message) == (PodState.SUCCEEDED, 2, "Task start API request")
    assert wakes.changed == [JOB]


async def test_start_after_the_end(tasks: Any, job: JobId, storage: Storage) -> None:
    """A batch job that has ended does not start again."""
    end(storage)

    assert await expect_refusal(tasks.Start(task_pb2.StartRequest(jobId=ID))) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "cannot start tasks in a terminated job",
    )


async def test_restart(tasks: Any, job: JobId, storage: Storage, wakes: RecordedWakes) -> None:
    """Each task in the ranges has a new desired run; goals are unchanged."""
    run(storage, 0, 1, 2, 3)
    response = await tasks.Restart(task_pb2.RestartRequest(jobId=ID, ranges=ranges((2, 9))))

    assert response == task_pb2.RestartResponse()
    assert [pod.desired_run_id for pod in storage.pods.page(JOB, 0, 4)] == [1, 1, 2, 2]
    assert goals(storage) == [PodState.SUCCEEDED] * 4
    assert wakes.changed == [JOB]


async def test_restart_beyond_the_job(tasks: Any, job: JobId) -> None:
    """A range outside the job is refused by status with the numbers, since the response has no error."""
    request = task_pb2.RestartRequest(jobId=ID, ranges=ranges((4, 9)))

    assert await expect_refusal(tasks.Restart(request)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "instances [4, 9) asked, the job has instances [0, 4)",
    )


async def test_refresh(tasks: Any, job: JobId, wakes: RecordedWakes) -> None:
    """Refresh signals the job's workflow."""
    await tasks.Refresh(task_pb2.RefreshRequest(jobId=ID))

    assert wakes.changed == [JOB]


async def test_refresh_of_nothing(tasks: Any, job: JobId) -> None:
    """A range without tasks is NOT_FOUND."""
    request = task_pb2.RefreshRequest(jobId=ID, range=ranges((4, 9))[0])

    assert await expect_refusal(tasks.Refresh(request)) == (grpc.StatusCode.NOT_FOUND, "tasks not found")


@pytest.mark.parametrize("method", ["Start", "Stop"])
async def test_out_of_range(tasks: Any, job: JobId, storage: Storage, method: str) -> None:
    """A range outside the job is answered by outOfRange with the number of instances, and changes nothing."""
    request = getattr(task_pb2, f"{method}Request")(jobId=ID, ranges=ranges((0, 1), (4, 5)))
    response = await getattr(tasks, method)(request)

    assert (response.error.outOfRange.jobId.value, response.error.outOfRange.instanceCount) == (JOB, 4)
    assert goals(storage) == [PodState.SUCCEEDED] * 4
