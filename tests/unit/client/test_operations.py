"""Operations of several calls, by both clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.errors import errors_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.api.yaml_config import ConfigError
from peloton.client import AsyncClient, Client, RetryPolicy
from peloton.errors import Aborted, InvalidArgument, NotFound, Reason
from tests.unit.cli.fake_api import FakeAgent, FakeApi, because

JOB = "4bc52ca5-1a2b-4a3f-9fd9-4b1a0b1fbb6e"
AWAY = (grpc.StatusCode.UNAVAILABLE, "the api is being replaced")
LATE = (grpc.StatusCode.DEADLINE_EXCEEDED, "too late")
CONFLICT = because(Reason.VERSION_CONFLICT, grpc.StatusCode.ABORTED, "invalid version")
POOL = respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value="pool-1"))

Operation = Callable[[Any], Any]
Do = Callable[[Operation], Any]


class Waits:
    def __init__(self) -> None:
        self.slept_s: list[float] = []
        self.policy = RetryPolicy(away_s=30, clock=lambda: sum(self.slept_s), chance=lambda: 0.0)

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture(params=[Client, AsyncClient])
def do(request: pytest.FixtureRequest, api: FakeApi, waits: Waits) -> Do:
    """Return a function that does an operation by a client of either kind."""

    async def by_client(operation: Operation) -> Any:
        if request.param is Client:
            with Client(api.address, retry=waits.policy, sleep=waits.slept_s.append) as client:
                return operation(client)
        async with AsyncClient(api.address, retry=waits.policy, sleep=waits.sleep) as client:
            return await operation(client)

    return by_client


def cache(state: str, **counts: int) -> job_pb2.GetCacheResponse:
    answer = job_pb2.GetCacheResponse(config=job_pb2.JobConfig(instanceCount=3))
    answer.runtime.state = job_pb2.JobState.Value(state)
    answer.runtime.taskStats.update(counts)
    return answer


CONFIGS: dict[str, Callable[[Path], Any]] = {
    "a message": lambda path: job_pb2.JobConfig(name="hello", instanceCount=2),
    "a mapping": lambda path: {"name": "hello", "instance_count": 2},
    "a file": lambda path: path,
    "the name of a file": str,
}


@pytest.mark.parametrize("form", CONFIGS)
async def test_submit(api: FakeApi, do: Do, tmp_path: Path, form: str) -> None:
    """A configuration in any form becomes a job of the pool, whose id the client has chosen."""
    path = tmp_path / "job.yaml"
    path.write_text("name: hello\ninstanceCount: 2\n")
    api.answers["respools.LookupResourcePoolID"] = [POOL]
    api.answers["jobs.Create"] = [
        AWAY,
        job_pb2.CreateResponse(error=job_pb2.CreateResponse.Error(alreadyExists=job_pb2.JobAlreadyExists())),
    ]

    job_id = await do(lambda client: client.submit("/team", CONFIGS[form](path)))
    first, second = api.requests("jobs.Create")

    assert (job_id, "hello", 2, "pool-1") == (
        first.id.value, first.config.name, first.config.instanceCount, first.config.respoolID.value
    )  # fmt: skip
    assert first == second


async def test_submit_with_instances(api: FakeApi, do: Do) -> None:
    """A mapping has the keys of a file, of which those of instances are numbers."""
    api.answers["respools.LookupResourcePoolID"] = [POOL]
    api.answers["jobs.Create"] = [job_pb2.CreateResponse()]

    await do(lambda client: client.submit("/team", {"instanceCount": 2, "instanceConfig": {1: {"name": "last"}}}))
    [request] = api.requests("jobs.Create")

    assert {1: "last"} == {number: task.name for number, task in request.config.instanceConfig.items()}


async def test_submit_a_service(api: FakeApi, do: Do) -> None:
    """The creation of a service has a key, so that it may be repeated."""
    api.answers["respools.LookupResourcePoolID"] = [POOL]
    api.answers["services.CreateJob"] = [AWAY, svc.CreateJobResponse()]
    spec = stateless_pb2.JobSpec(name="web", instance_count=3)

    assert JOB == await do(lambda client: client.submit("/team", spec, job_id=JOB))
    assert [(JOB, JOB, "pool-1")] * 2 == [
        (each.job_id.value, each.update_key, each.spec.respool_id.value) for each in api.requests("services.CreateJob")
    ]
    assert not spec.HasField("respool_id")


async def test_what_cannot_be_submitted(api: FakeApi, do: Do) -> None:
    """Refusals are errors that name the object."""
    unknown = respool_pb2.LookupResponse.Error(notFound=respool_pb2.ResourcePoolPathNotFound(message="no pool"))
    api.answers["respools.LookupResourcePoolID"] = [respool_pb2.LookupResponse(error=unknown), POOL]
    api.answers["jobs.Create"] = [
        job_pb2.CreateResponse(
            error=job_pb2.CreateResponse.Error(invalidConfig=job_pb2.InvalidJobConfig(message="no command"))
        )
    ]

    with pytest.raises(NotFound, match="unable to find resource pool /team: no pool"):
        await do(lambda client: client.submit("/team", {}))
    with pytest.raises(InvalidArgument, match="no command"):
        await do(lambda client: client.submit("/team", {}))
    with pytest.raises(ConfigError, match=r"<config>:1:.*instancecount"):
        await do(lambda client: client.submit("/team", {"instancecounts": 2}))


async def test_wait(api: FakeApi, do: Do, waits: Waits) -> None:
    """The wait polls ever more slowly, and survives outages that are shorter than its bound."""
    api.answers["jobs.GetCache"] = [
        cache("PENDING"),
        cache("RUNNING", RUNNING=3),
        LATE,
        LATE,
        cache("FAILED", FAILED=3),
    ]

    progress = await do(lambda client: client.wait(JOB, policy=waits.policy))

    assert ("FAILED", 3, {"FAILED": 3}, True, False) == (
        progress.state, progress.ended_count, progress.counts, progress.has_ended, progress.has_succeeded
    )  # fmt: skip
    assert [0.25, 0.375, 0.25, 0.5] == waits.slept_s


async def test_a_wait_has_bounds(api: FakeApi, do: Do, waits: Waits) -> None:
    """A wait ends after its time, after a long outage, and for an unknown job."""
    api.answers["jobs.GetCache"] = [cache("RUNNING")]
    with pytest.raises(TimeoutError, match=f"job {JOB} has not ended within 10 s: RUNNING"):
        await do(lambda client: client.wait(JOB, 10, waits.policy))
    assert 10 == pytest.approx(sum(waits.slept_s))

    api.answers["jobs.GetCache"] = [LATE]
    with pytest.raises(grpc.RpcError, match="too late"):
        await do(lambda client: client.wait(JOB, policy=waits.policy))

    api.answers["jobs.GetCache"] = [(grpc.StatusCode.NOT_FOUND, "Job not found in cache")]
    api.answers["jobs.Get"] = [
        job_pb2.GetResponse(error=job_pb2.GetResponse.Error(notFound=errors_pb2.JobNotFound(message="no such job")))
    ]
    with pytest.raises(NotFound, match="no such job"):
        await do(lambda client: client.wait(JOB))


async def test_logs_of_an_agent(api: FakeApi, agent: FakeAgent, do: Do) -> None:
    """A file is fetched from the agent that has it."""
    agent.files["/sandbox/stderr"] = b"worn out \xff\n"
    api.answers["tasks.BrowseSandbox"] = [
        task_pb2.BrowseSandboxResponse(
            hostname=agent.host, port=agent.port, paths=["/sandbox/old/stderr", "/sandbox/stdout", "/sandbox/stderr"]
        )
    ]

    assert "worn out \N{REPLACEMENT CHARACTER}\n" == await do(lambda client: client.logs(JOB, 1, "stderr"))
    with pytest.raises(NotFound, match=r"has no file core: it has /sandbox/old/stderr, /sandbox/stdout"):
        await do(lambda client: client.logs(JOB, 1, "core"))
    with pytest.raises(OSError, match="404"):
        await do(lambda client: client.logs(JOB, 1, "stdout"))


async def test_logs_by_the_api(api: FakeApi, do: Do) -> None:
    """A file that no agent serves comes in pieces."""
    pieces = {0: pod_svc_pb2.GetPodFileResponse(data=b"one\n"), 4: pod_svc_pb2.GetPodFileResponse(is_end=True)}
    api.answers["tasks.BrowseSandbox"] = [task_pb2.BrowseSandboxResponse(paths=["stdout"])]
    api.answers["pods.GetPodFile"] = [lambda request: pieces[request.offset]]

    assert "one\n" == await do(lambda client: client.logs(JOB))
    assert f"{JOB}-0" == api.requests("pods.GetPodFile")[0].pod_name.value


async def test_logs_of_what_did_not_run(api: FakeApi, do: Do) -> None:
    """A task without a run has no logs."""
    api.answers["tasks.BrowseSandbox"] = [
        task_pb2.BrowseSandboxResponse(
            error=task_pb2.BrowseSandboxResponse.Error(notRunning=task_pb2.TaskNotRunning(message="waits"))
        ),
        task_pb2.BrowseSandboxResponse(
            error=task_pb2.BrowseSandboxResponse.Error(outOfRange=task_pb2.InstanceIdOutOfRange(instanceCount=3))
        ),
    ]

    with pytest.raises(Aborted, match="has not been started: waits"):
        await do(lambda client: client.logs(JOB))
    with pytest.raises(NotFound, match="the job has 3 instances"):
        await do(lambda client: client.logs(JOB, 7))


async def test_stop(api: FakeApi, do: Do) -> None:
    """A job stops whole, or some of its instances."""
    api.answers["tasks.Stop"] = [
        task_pb2.StopResponse(),
        task_pb2.StopResponse(),
        task_pb2.StopResponse(
            error=task_pb2.StopResponse.Error(notFound=errors_pb2.JobNotFound(message="no such job"))
        ),
    ]

    await do(lambda client: client.stop(JOB))
    await do(lambda client: client.stop(JOB, [1, 4]))
    with pytest.raises(NotFound, match="no such job"):
        await do(lambda client: client.stop(JOB))

    ranges = [[(getattr(each, "from"), each.to) for each in one.ranges] for one in api.requests("tasks.Stop")]
    assert [[], [(1, 2), (4, 5)], []] == ranges


async def test_scale(api: FakeApi, do: Do) -> None:
    """A change that another one overtook is sent again with the new version and the same key."""
    job = svc.GetJobResponse()
    job.summary.status.version.value = "1-1-1"
    later = svc.GetJobResponse()
    later.summary.status.version.value = "2-1-1"
    api.answers["services.GetJob"] = [job, later]
    api.answers["services.PatchJob"] = [CONFLICT, AWAY, svc.PatchJobResponse()]

    key = await do(lambda client: client.scale(JOB, 7, stateless_pb2.UpdateSpec(batch_size=2)))

    sent = api.requests("services.PatchJob")
    assert [("1-1-1", 7, 2, key), ("2-1-1", 7, 2, key), ("2-1-1", 7, 2, key)] == [
        (each.version.value, each.spec.instance_count, each.update_spec.batch_size, each.update_key) for each in sent
    ]
    with pytest.raises(InvalidArgument, match="0 instances, the minimum is 1"):
        await do(lambda client: client.scale(JOB, 0))


async def test_wait_for_an_update(api: FakeApi, do: Do, waits: Waits) -> None:
    """The wait ends with the update of the key."""

    def answer(state: str) -> svc.ListJobWorkflowsResponse:
        found = svc.ListJobWorkflowsResponse()
        for key in ("later", "mine"):
            one = found.workflow_infos.add(update_key=key)
            one.status.state = stateless_pb2.WorkflowState.Value(f"WORKFLOW_STATE_{state}")
        return found

    api.answers["services.ListJobWorkflows"] = [answer("ROLLING_FORWARD"), LATE, answer("ROLLED_BACK")]

    status = await do(lambda client: client.wait_for_update(JOB, "mine", policy=waits.policy))

    assert stateless_pb2.WORKFLOW_STATE_ROLLED_BACK == status.state
    with pytest.raises(NotFound, match="has no update with the key 'other'"):
        await do(lambda client: client.wait_for_update(JOB, "other"))
    api.answers["services.ListJobWorkflows"] = [answer("PAUSED")]
    with pytest.raises(TimeoutError, match="within 5 s: PAUSED"):
        await do(lambda client: client.wait_for_update(JOB, "mine", 5, waits.policy))
