"""v0 JobManager over real storage: Create, and every text that refuses one."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2, explain_pb2_grpc
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.model.ids import JobId
from peloton.model.job import JobState
from peloton.model.resources import Resources
from services.storage.storage import Storage
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.story import INNER, JOB, UNKNOWN, Config, create, end, expect_refusal, wire

# -- Create


async def test_create(jobs: Any, config: Config, storage: Storage, wakes: RecordedWakes) -> None:
    """A job is stored before the answer, INITIALIZED with its goal, and its workflow is started."""
    job_id = await create(jobs, config(3))

    record = storage.jobs.get(job_id)
    assert record is not None
    assert (record.state, record.goal, record.instance_count) == (JobState.INITIALIZED, JobState.SUCCEEDED, 3)
    assert wakes.started == [job_id]


async def test_create_chooses_an_id(jobs: Any, config: Config) -> None:
    """Each creation without an id generates a new one."""
    request = job_pb2.CreateRequest(config=config())
    first, second = await jobs.Create(request), await jobs.Create(request)

    assert first.jobId.value != second.jobId.value
    assert len(first.jobId.value) == 36


async def test_create_canonicalises_the_id(jobs: Any, config: Config) -> None:
    """An id in capitals names the same job."""
    assert await create(jobs, config(), JOB.upper()) == JOB
    response = await jobs.Get(job_pb2.GetRequest(id=wire(JOB.upper())))

    assert response.jobInfo.id.value == JOB


async def test_create_with_a_bad_id(jobs: Any, config: Config) -> None:
    """An id that is not a UUID is refused."""
    response = await jobs.Create(job_pb2.CreateRequest(id=wire("job-1"), config=config()))

    error = response.error.invalidJobId
    assert (error.id.value, error.message) == ("job-1", "JobID must be valid UUID")


async def test_create_again(jobs: Any, config: Config, wakes: RecordedWakes) -> None:
    """A repeated id answers alreadyExists with the id, and starts the workflow if it is missing."""
    await create(jobs, config())
    response = await jobs.Create(job_pb2.CreateRequest(id=wire(JOB), config=config()))

    assert response.error.alreadyExists.id.value == JOB
    assert response.error.alreadyExists.message
    assert response.jobId.value == JOB
    assert wakes.started == [JOB, JOB]


async def test_create_again_after_the_end(jobs: Any, config: Config, storage: Storage, wakes: RecordedWakes) -> None:
    """A repeated creation of a job that has ended starts nothing."""
    await create(jobs, config())
    end(storage)
    await jobs.Create(job_pb2.CreateRequest(id=wire(JOB), config=config()))

    assert wakes.started == [JOB]


async def test_create_without_temporal(jobs: Any, config: Config, storage: Storage, wakes: RecordedWakes) -> None:
    """The job is stored during an outage of Temporal, the error says so, and a repeated call starts the workflow."""
    wakes.is_down = True
    request = job_pb2.CreateRequest(id=wire(JOB), config=config())
    code, text = await expect_refusal(jobs.Create(request))
    stored = storage.jobs.get(JobId(JOB))
    wakes.is_down = False
    repeated = await jobs.Create(request)

    assert code == grpc.StatusCode.UNAVAILABLE
    assert text == (
        f"job {JOB} is stored, but its workflow could not be started yet (ConnectionError: no Temporal at "
        "127.0.0.1:7233); the api keeps trying, and it is safe to repeat the call with the same id"
    )
    assert stored is not None
    assert repeated.error.alreadyExists.id.value == JOB
    assert wakes.started == [JOB]


POOLS = {
    "none": ("", "resource pool ID is null"),
    "root": ("root", "cannot submit jobs to the `root` resource pool"),
    "unknown": (UNKNOWN.value, "resource pool not found"),
    "not a UUID": ("/eng/maps", "resource pool not found"),
    "inner": (INNER, "cannot submit jobs to a non leaf resource pool: /eng has child pools"),
}


@pytest.mark.parametrize("name", POOLS)
async def test_create_in_a_wrong_pool(jobs: Any, config: Config, storage: Storage, name: str) -> None:
    """A wrong pool is the first fault of a config; nothing is stored."""
    respool_id, text = POOLS[name]
    job = config(100_001)
    job.respoolID.value = respool_id
    response = await jobs.Create(job_pb2.CreateRequest(id=wire(JOB), config=job))

    assert (response.error.invalidConfig.id.value, response.error.invalidConfig.message) == (JOB, text)
    assert not response.HasField("jobId")
    assert storage.jobs.get(JobId(JOB)) is None


async def test_create_without_a_config(jobs: Any) -> None:
    """The first fault of an empty request is its missing pool."""
    response = await jobs.Create(job_pb2.CreateRequest())

    assert response.error.invalidConfig.message == "resource pool ID is null"


async def test_create_with_an_invalid_config(jobs: Any, config: Config, storage: Storage, wakes: RecordedWakes) -> None:
    """The response has all faults of a config; nothing is stored or started."""
    job = config(2)
    job.instanceConfig[1].resource.cpuLimit = -1
    job.instanceConfig[2].name = "beyond"
    response = await jobs.Create(job_pb2.CreateRequest(id=wire(JOB), config=job))

    assert response.error.invalidConfig.message.split("\n") == [
        "Invalid config for instance 1, cpuLimit -1 is negative",
        "instanceConfig is given for instance 2, instanceCount is 2",
    ]
    assert storage.jobs.get(JobId(JOB)) is None
    assert wakes.started == []


async def test_create_beyond_limits(jobs: Any, config: Config, hosts: OneSandbox) -> None:
    """A pod above its pool's limit or the cluster's capacity is refused with the numbers."""
    job = config(1)
    job.defaultConfig.resource.cpuLimit = 1000
    above_pool = await jobs.Create(job_pb2.CreateRequest(config=job))
    job.defaultConfig.resource.cpuLimit = 8
    hosts.total = Resources(4_000, 8_192, 100_000, 0)
    above_cluster = await jobs.Create(job_pb2.CreateRequest(config=job))

    assert above_pool.error.invalidConfig.message == (
        "instance 0 asks cpu 1000, limit of resource pool /eng/maps is 12"
    )
    assert above_cluster.error.invalidConfig.message == "instance 0 asks cpu 8, limit of resource pool / is 4"


async def test_create_within_a_capacity_that_has_grown(jobs: Any, config: Config, hosts: OneSandbox) -> None:
    """A capacity that was read before hosts joined refuses no job."""
    job = config(1)
    job.defaultConfig.resource.cpuLimit = 8
    hosts.total, hosts.grown = Resources(4_000, 8_192, 100_000, 0), Resources(8_000, 8_192, 100_000, 0)

    answer = await jobs.Create(job_pb2.CreateRequest(config=job))

    assert not answer.HasField("error"), answer.error


async def test_create_a_service(jobs: Any, config: Config, storage: Storage) -> None:
    """A service has the goal RUNNING, and the rules of services apply."""
    job_id = await create(jobs, config(type=job_pb2.SERVICE))
    wrong = config(type=job_pb2.SERVICE)
    wrong.sla.maxRunningTime = 1
    response = await jobs.Create(job_pb2.CreateRequest(config=wrong))

    record = storage.jobs.get(job_id)
    assert record is not None
    assert record.goal is JobState.RUNNING
    assert response.error.invalidConfig.message == "MaxRunningTime should be 0 for stateless job"


async def test_create_with_secrets(jobs: Any, config: Config) -> None:
    """An invalid secret is refused by status."""
    request = job_pb2.CreateRequest(config=config(), secrets=[peloton_pb2.Secret(path="/s")])

    assert await expect_refusal(jobs.Create(request)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "secret at /s has no data, and the job has none there",
    )


async def test_create_with_many_overrides(jobs: Any, config: Config, storage: Storage) -> None:
    """Overrides of many instances are stored and returned completely."""
    job = config(2_000)
    for instance in range(2_000):
        job.instanceConfig[instance].command.value = f"work {instance}"
    job_id = await create(jobs, job)
    response = await jobs.Get(job_pb2.GetRequest(id=wire(job_id)))

    assert response.jobInfo.config.instanceConfig[1_999].command.value == "work 1999"
    assert len(response.jobInfo.config.instanceConfig) == 2_000


# -- JobPlan, which is forwarded


async def test_a_plan_is_refused_like_the_job(jobs: Any, channel: grpc.aio.Channel, config: Config) -> None:
    """The plan of an invalid job is refused with the creation's text; a valid one is forwarded to the resource
    manager."""
    too_big = config(13)
    too_big.sla.minimumRunningInstances = 13
    plan: Any = explain_pb2_grpc.ExplainServiceStub(channel)

    reported = (await jobs.Create(job_pb2.CreateRequest(config=too_big))).error.invalidConfig.message
    planned = await expect_refusal(plan.JobPlan(explain_pb2.JobPlanRequest(config=too_big)))
    sound = await expect_refusal(plan.JobPlan(explain_pb2.JobPlanRequest(config=config(12))))

    both = explain_pb2.JobPlanRequest(config=config(12), spec=stateless_pb2.JobSpec(name="web"))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "a plan is of a config or of a spec: both are given") == (
        await expect_refusal(plan.JobPlan(both))
    )
    assert reported.startswith("the gang of instances 0-12 asks cpu 13, limit of resource pool /eng/maps is 12")
    assert planned == (grpc.StatusCode.INVALID_ARGUMENT, reported)
    assert sound[0] is grpc.StatusCode.UNAVAILABLE
    assert sound[1].startswith("no leader of role resmgr is known")
