"""External jobs: the API shows them, and refuses changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.peloton_pb2 import EntityVersion, JobID, PodName
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.model.pod import PodState
from services.storage.pods.external_pods import Arrival
from services.storage.storage import Storage
from tests.unit.api_service.story import ID, JOB, LEAF, NOW_NS

SEEN = EntityVersion(value="1-1-1")


@pytest.fixture
def external_job(storage: Storage) -> None:
    config = job_pb2.JobConfig(name="Job team/train", type=job_pb2.EXTERNAL, owningTeam="team")
    config.respoolID.value = LEAF
    storage.external_pods.adopt("k8s", Arrival(JOB, config, {"uid": "team/train-1"}), NOW_NS)


Calls = dict[str, Callable[[Any, Any, Any, Any], Awaitable[Any]]]
CHANGES: Calls = {
    "stop": lambda jobs, tasks, v1, pods: tasks.Stop(task_pb2.StopRequest(jobId=ID)),
    "start": lambda jobs, tasks, v1, pods: tasks.Start(task_pb2.StartRequest(jobId=ID)),
    "restart": lambda jobs, tasks, v1, pods: tasks.Restart(task_pb2.RestartRequest(jobId=ID)),
    "stop a pod": lambda jobs, tasks, v1, pods: pods.StopPod(
        pod_svc_pb2.StopPodRequest(pod_name=PodName(value=f"{JOB}-0"))
    ),
    "start a pod": lambda jobs, tasks, v1, pods: pods.StartPod(
        pod_svc_pb2.StartPodRequest(pod_name=PodName(value=f"{JOB}-0"))
    ),
    "restart a pod": lambda jobs, tasks, v1, pods: pods.RestartPod(
        pod_svc_pb2.RestartPodRequest(pod_name=PodName(value=f"{JOB}-0"))
    ),
    "stop a service": lambda jobs, tasks, v1, pods: v1.StopJob(
        stateless_svc_pb2.StopJobRequest(job_id=JobID(value=JOB), version=SEEN)
    ),
    "delete a service": lambda jobs, tasks, v1, pods: v1.DeleteJob(
        stateless_svc_pb2.DeleteJobRequest(job_id=JobID(value=JOB), version=SEEN, force=True)
    ),
    "look into a pod": lambda jobs, tasks, v1, pods: pods.BrowsePodSandbox(
        pod_svc_pb2.BrowsePodSandboxRequest(pod_name=PodName(value=f"{JOB}-0"))
    ),
}


@pytest.mark.usefixtures("external_job")
@pytest.mark.parametrize("change", CHANGES)
async def test_people_change_it_where_it_is_made(
    jobs: Any, tasks: Any, v1: Any, pods: Any, storage: Storage, change: str
) -> None:
    """The refusal names the owner, and nothing changes."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await CHANGES[change](jobs, tasks, v1, pods)
    assert grpc.StatusCode.INVALID_ARGUMENT is error.value.code()
    assert f"job {JOB} is external: its pods belong to Job team/train" in str(error.value.details())
    [pod] = storage.pods.page(JOB)
    assert (PodState.INITIALIZED, PodState.SUCCEEDED, 1) == (pod.state, pod.goal, pod.desired_run_id)


@pytest.mark.usefixtures("external_job")
async def test_people_see_it_like_any_other(jobs: Any, tasks: Any) -> None:
    """The API shows the job with its type."""
    job = (await jobs.Get(job_pb2.GetRequest(id=ID))).jobInfo
    assert ("Job team/train", job_pb2.EXTERNAL) == (job.config.name, job.config.type)
    found = await tasks.List(task_pb2.ListRequest(jobId=ID))
    assert [0] == list(found.result.value)


@pytest.mark.usefixtures("external_job")
async def test_its_logs_are_read_where_it_is_made(tasks: Any) -> None:
    """External pods have names of their own, so the API does not search for their files."""
    answer = await tasks.BrowseSandbox(task_pb2.BrowseSandboxRequest(jobId=ID, instanceId=0))
    assert f"job {JOB} is external: its pods belong to Job team/train" in answer.error.failure.message
    assert "read their logs there" in answer.error.failure.message


async def test_no_user_creates_one(jobs: Any) -> None:
    """The creation of an external job is refused, since its pods come from a cluster."""
    config = job_pb2.JobConfig(name="mine", type=job_pb2.EXTERNAL, instanceCount=1)
    config.respoolID.value = LEAF
    config.defaultConfig.command.value = "true"
    answer = await jobs.Create(job_pb2.CreateRequest(id=ID, config=config))
    assert "invalid job type: EXTERNAL" in answer.error.invalidConfig.message
