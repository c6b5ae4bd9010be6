"""v0 UpdateService and the rolling calls of v0 JobManager, over real storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.table.table_pb2_grpc import JobTableServiceStub
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2 as svc
from peloton.model.ids import JobId
from peloton.model.update import UpdateRecord, UpdateSpec, UpdateState, UpdateType
from services.storage.storage import Storage
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.services import create as create_v1
from tests.unit.api_service.services import evolve, service_config, spec
from tests.unit.api_service.story import ID, JOB, UNKNOWN, create, expect_refusal, ranges

Status = grpc.StatusCode


@pytest.fixture
async def service(jobs: Any, storage: Storage, wakes: RecordedWakes) -> None:
    """Create a job through v0 with three running instances."""
    await create(jobs, service_config())
    storage.pods.create(JOB, lambda _: None)
    storage.jobs.settle(JOB, 1)
    wakes.started.clear()


def make_changed_config(command: str = "serve --fast", count: int = 3, version: int = 1) -> job_pb2.JobConfig:
    config = service_config(count)
    config.defaultConfig.command.value = command
    config.changeLog.version = version
    return config


async def create_update(updates: Any, config: job_pb2.JobConfig, **fields: Any) -> peloton_pb2.UpdateID:
    request = svc.CreateUpdateRequest(jobId=ID, jobConfig=config, **fields)
    response = await updates.CreateUpdate(request)
    wire: peloton_pb2.UpdateID = response.updateID
    return wire


def read_update(storage: Storage, wire: peloton_pb2.UpdateID) -> UpdateRecord:
    update = storage.updates.get(wire.value)
    assert update is not None
    return update


async def test_a_service_of_v0(jobs: Any, storage: Storage, wakes: RecordedWakes) -> None:
    """The service is created at once, without an update."""
    await create(jobs, service_config())
    job = storage.jobs.get(JOB)

    assert job is not None
    assert (job.update_id, job.instance_count, wakes.started) == ("", 3, [JOB])


async def test_create(updates: Any, storage: Storage, wakes: RecordedWakes, service: None) -> None:
    """The update creates a new version of the configuration."""
    wanted = update_pb2.UpdateConfig(
        batchSize=2,
        rollbackOnFailure=True,
        maxInstanceAttempts=3,
        maxFailureInstances=1,
        startPaused=True,
        inPlace=True,
        startTasks=True,
    )
    wire = await create_update(
        updates, make_changed_config(), updateConfig=wanted, opaque_data=peloton_pb2.OpaqueData(data="x")
    )
    update, config = read_update(storage, wire), storage.configs.job_config(JOB)

    assert update.spec == UpdateSpec(2, True, 3, 1, True, True, True)
    assert (update.state, update.opaque_data, update.config_version) == (UpdateState.PAUSED, "x", 2)
    assert config is not None
    assert (config.changeLog.version, config.defaultConfig.command.value) == (2, "serve --fast")
    assert wakes.changed == [JOB]


async def test_get(updates: Any, jobs: Any, storage: Storage, service: None) -> None:
    """The answer has the update's progress; the job has its id."""
    wire = await create_update(updates, make_changed_config(count=5), opaque_data=peloton_pb2.OpaqueData(data="x"))
    info = (await updates.GetUpdate(svc.GetUpdateRequest(updateId=wire))).updateInfo
    bare = (await updates.GetUpdate(svc.GetUpdateRequest(updateId=wire, statusOnly=True))).updateInfo
    cache = await updates.GetUpdateCache(svc.GetUpdateCacheRequest(updateId=wire))
    job = (await jobs.Get(job_pb2.GetRequest(id=ID))).jobInfo

    assert (info.jobId.value, info.configVersion, info.prevConfigVersion) == (JOB, 2, 1)
    assert (info.status.state, info.status.numTasksRemaining) == (update_pb2.INITIALIZED, 5)
    assert info.opaque_data.data == "x"
    assert bare == update_pb2.UpdateInfo(updateId=wire, status=info.status)
    assert (cache.jobId.value, cache.state) == (JOB, update_pb2.INITIALIZED)
    assert (list(cache.instancesTotal), list(cache.instancesAdded)) == ([0, 1, 2, 3, 4], [3, 4])
    assert (list(cache.instancesUpdated), list(cache.instancesDone)) == ([0, 1, 2], [])
    assert (job.runtime.updateID, job.config.changeLog.version) == (wire, 2)
    assert dict(job.runtime.taskConfigVersionStats) == {1: 3}
    assert dict(job.runtime.taskStatsByConfigurationVersion[1].stateStats) == {"INITIALIZED": 3}


async def test_list(updates: Any, storage: Storage, service: None) -> None:
    """The list is in reverse order of time, without opaque data, and empty for an unknown job."""
    first = await create_update(updates, make_changed_config(), opaque_data=peloton_pb2.OpaqueData(data="x"))
    second = await create_update(updates, make_changed_config("other", version=2))
    found = (await updates.ListUpdates(svc.ListUpdatesRequest(jobID=ID))).updateInfo

    assert [info.updateId for info in found] == [second, first]
    assert not any(info.HasField("opaque_data") for info in found)
    assert [info.status.state for info in found] == [update_pb2.INITIALIZED, update_pb2.ABORTED]
    assert await updates.ListUpdates(svc.ListUpdatesRequest(jobID=UNKNOWN)) == svc.ListUpdatesResponse()


async def test_pause_resume_abort(updates: Any, storage: Storage, wakes: RecordedWakes, service: None) -> None:
    """The calls are valid for any version of the job."""
    wire = await create_update(updates, make_changed_config())
    states = []
    for method, request in (
        (updates.PauseUpdate, svc.PauseUpdateRequest(updateId=wire)),
        (updates.ResumeUpdate, svc.ResumeUpdateRequest(updateId=wire)),
        (updates.AbortUpdate, svc.AbortUpdateRequest(updateId=wire, softAbort=True)),
    ):
        await method(request)
        states.append(read_update(storage, wire).state)

    assert states == [UpdateState.PAUSED, UpdateState.INITIALIZED, UpdateState.ABORTED]
    assert wakes.changed == [JOB] * 4


async def test_rollback(updates: Any, storage: Storage, service: None) -> None:
    """The rollback is a new update to the previous configuration with the same batch size."""
    wire = await create_update(updates, make_changed_config(), updateConfig=update_pb2.UpdateConfig(batchSize=2))
    evolve(storage)
    await updates.RollbackUpdate(svc.RollbackUpdateRequest(updateId=wire))
    job, config = storage.jobs.get(JOB), storage.configs.job_config(JOB)

    assert job is not None
    assert config is not None
    update = storage.updates.get(job.update_id)
    assert update is not None
    assert (job.config_version, config.defaultConfig.command.value) == (3, "serve")
    assert (update.type, update.spec) == (UpdateType.UPDATE, UpdateSpec(batch_size=2))


async def test_rollback_of_an_older_update(updates: Any, storage: Storage, service: None) -> None:
    """The rollback is refused, since it is not the latest update; the error names both."""
    first = await create_update(updates, make_changed_config())
    second = await create_update(updates, make_changed_config("other", version=2))

    assert await expect_refusal(updates.RollbackUpdate(svc.RollbackUpdateRequest(updateId=first))) == (
        Status.INVALID_ARGUMENT,
        f"update {first.value} is not the latest of job {JOB}, which is {second.value}: only the latest can be rolled "
        "back",
    )


async def test_rollback_of_the_first_update(v1: Any, updates: Any, storage: Storage) -> None:
    """The first update has no previous configuration, so its rollback is refused."""
    await create_v1(v1, spec())
    job = storage.jobs.get(JOB)
    assert job is not None
    wire = peloton_pb2.UpdateID(value=job.update_id)

    assert await expect_refusal(updates.RollbackUpdate(svc.RollbackUpdateRequest(updateId=wire))) == (
        Status.NOT_FOUND,
        f"job {JOB} has no configuration before that of update {job.update_id}",
    )


def config_with(change: Callable[[job_pb2.JobConfig], object]) -> job_pb2.JobConfig:
    config = make_changed_config()
    change(config)
    return config


def request(config: job_pb2.JobConfig, **fields: Any) -> svc.CreateUpdateRequest:
    return svc.CreateUpdateRequest(jobId=ID, jobConfig=config, **fields)


NO_UPDATE = peloton_pb2.UpdateID(value=UNKNOWN.value)
REFUSALS: dict[str, tuple[str, Any, grpc.StatusCode, str]] = {
    "no UUID": (
        "CreateUpdate",
        svc.CreateUpdateRequest(jobId=peloton_pb2.JobID(value="job-1")),
        Status.INVALID_ARGUMENT,
        "JobID must be of UUID format",
    ),
    "unknown job": ("CreateUpdate", svc.CreateUpdateRequest(jobId=UNKNOWN), Status.NOT_FOUND, "job not found"),
    "no change log": (
        "CreateUpdate",
        request(config_with(lambda c: c.ClearField("changeLog"))),
        Status.INVALID_ARGUMENT,
        "missing changelog in job configuration",
    ),
    "a type that does not exist": (
        "CreateUpdate",
        request(config_with(lambda c: setattr(c, "type", 99))),
        Status.INVALID_ARGUMENT,
        "job type is immutable",
    ),
    "another type": (
        "CreateUpdate",
        request(config_with(lambda c: setattr(c, "type", job_pb2.BATCH))),
        Status.INVALID_ARGUMENT,
        "job type is immutable",
    ),
    "another pool": (
        "CreateUpdate",
        request(config_with(lambda c: setattr(c.respoolID, "value", "other"))),
        Status.INVALID_ARGUMENT,
        "resource pool identifier is immutable",
    ),
    "another version": (
        "CreateUpdate",
        request(make_changed_config(version=2)),
        Status.INVALID_ARGUMENT,
        "invalid job configuration version",
    ),
    "an invalid config": (
        "CreateUpdate",
        request(config_with(lambda c: c.defaultConfig.ClearField("command"))),
        Status.INVALID_ARGUMENT,
        "missing command info for instance 0",
    ),
    "get, no id": ("GetUpdate", svc.GetUpdateRequest(), Status.INVALID_ARGUMENT, "no update ID provided"),
    "get, unknown": ("GetUpdate", svc.GetUpdateRequest(updateId=NO_UPDATE), Status.NOT_FOUND, "update not found"),
    "get, no UUID": (
        "GetUpdate",
        svc.GetUpdateRequest(updateId=peloton_pb2.UpdateID(value="u")),
        Status.NOT_FOUND,
        "update not found",
    ),
    "list, no job": ("ListUpdates", svc.ListUpdatesRequest(), Status.INVALID_ARGUMENT, "no job ID provided"),
    "pause, no id": ("PauseUpdate", svc.PauseUpdateRequest(), Status.INVALID_ARGUMENT, "no update ID provided"),
    "abort, unknown": (
        "AbortUpdate",
        svc.AbortUpdateRequest(updateId=NO_UPDATE),
        Status.NOT_FOUND,
        "update not found",
    ),
    "cache, unknown": (
        "GetUpdateCache",
        svc.GetUpdateCacheRequest(updateId=NO_UPDATE),
        Status.NOT_FOUND,
        "update not found",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_refusals(updates: Any, storage: Storage, wakes: RecordedWakes, service: None, name: str) -> None:
    """The job is unchanged, and no workflow is signalled."""
    method, wire, code, text = REFUSALS[name]
    before = storage.jobs.get(JOB)

    assert await expect_refusal(getattr(updates, method)(wire)) == (code, text)
    assert storage.jobs.get(JOB) == before
    assert wakes.changed == []


async def test_a_job_that_is_being_created(jobs: Any, updates: Any) -> None:
    """The update is refused until the job's pods exist."""
    await create(jobs, service_config())

    assert await expect_refusal(updates.CreateUpdate(request(make_changed_config()))) == (
        Status.UNAVAILABLE,
        "cannot update partially created job",
    )


ROLLING: dict[str, tuple[Any, UpdateType]] = {
    "Restart": (
        job_pb2.RestartRequest(id=ID, restartConfig=job_pb2.RestartConfig(batchSize=2), resourceVersion=1),
        UpdateType.RESTART,
    ),
    "Start": (
        job_pb2.StartRequest(id=ID, startConfig=job_pb2.StartConfig(batchSize=2), resourceVersion=1),
        UpdateType.START,
    ),
    "Stop": (
        job_pb2.StopRequest(id=ID, stopConfig=job_pb2.StopConfig(batchSize=2), resourceVersion=1),
        UpdateType.STOP,
    ),
}


@pytest.mark.parametrize("name", ROLLING)
async def test_rolling_calls(jobs: Any, storage: Storage, wakes: RecordedWakes, service: None, name: str) -> None:
    """Each call creates an update of its type for the named instances; the answer has its version."""
    wire, kind = ROLLING[name]
    wanted = type(wire)()
    wanted.CopyFrom(wire)
    wanted.ranges.extend(ranges((1, 100)))
    response = await getattr(jobs, name)(wanted)
    update = read_update(storage, response.updateID)

    assert (update.type, update.updated, update.spec) == (kind, frozenset({1, 2}), UpdateSpec(batch_size=2))
    assert (response.resourceVersion, wakes.changed) == (2, [JOB])


@pytest.mark.parametrize("name", ROLLING)
async def test_rolling_calls_are_refused(jobs: Any, storage: Storage, service: None, name: str) -> None:
    """An unknown job, another version and unknown instances are refused."""
    call, kind = getattr(jobs, name), type(ROLLING[name][0])

    assert await expect_refusal(call(kind(id=UNKNOWN))) == (Status.NOT_FOUND, "job not found")
    assert await expect_refusal(call(kind(id=ID, resourceVersion=2))) == (
        Status.INVALID_ARGUMENT,
        "invalid job configuration version",
    )
    assert await expect_refusal(call(kind(id=ID, resourceVersion=1, ranges=ranges((3, 4))))) == (
        Status.INVALID_ARGUMENT,
        "instances [3, 4) asked, the job has instances [0, 3)",
    )
    assert storage.updates.of_job(JOB) == []


async def test_rolling_calls_of_a_batch_job(jobs: Any, job: JobId) -> None:
    """Rolling calls of a batch job are refused."""
    for name, (wire, kind) in ROLLING.items():
        assert await expect_refusal(getattr(jobs, name)(wire)) == (
            Status.INVALID_ARGUMENT,
            f"{kind} supported only for service jobs",
        )


@pytest.mark.usefixtures("service")
async def test_the_table_of_jobs_says_how_far_the_latest_update_is(updates: Any, channel: grpc.aio.Channel) -> None:
    """The row has the update's progress in instances, and no update for a job without one."""
    table = JobTableServiceStub(channel)
    [before] = (await table.ListJobs(table_pb2.ListJobsRequest())).jobs
    await create_update(updates, make_changed_config(count=4))

    [row] = (await table.ListJobs(table_pb2.ListJobsRequest())).jobs

    assert not before.HasField("update")
    assert table_pb2.JobUpdate(state=update_pb2.INITIALIZED, totalCount=4) == row.update
