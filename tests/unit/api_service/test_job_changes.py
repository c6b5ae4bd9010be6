"""v0 JobManager over real storage: Update, Delete, Refresh, rolling operations; names on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.api.limits import code_of
from peloton.api.service_names import JOB_MANAGER
from peloton.api.v0.job import job_pb2
from peloton.model.job import JobState
from services.storage.storage import Storage
from services.web.faults import refusal_of
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.story import INNER, JOB, UNKNOWN, Config, create, end, expect_refusal, wire

# -- Update


async def test_update_adds_instances(jobs: Any, config: Config, storage: Storage, wakes: RecordedWakes) -> None:
    """A batch job grows, its new instances with their own configs, and its workflow is signalled."""
    job_id = await create(jobs, config(2))
    grown = config(5, description="more")
    grown.ClearField("respoolID")
    grown.instanceConfig[4].command.value = "last"
    response = await jobs.Update(job_pb2.UpdateRequest(id=wire(job_id), config=grown))

    record = storage.jobs.get(job_id)
    assert (response.id.value, response.message) == (job_id, "added 3 instances")
    assert record is not None
    assert (record.instance_count, record.config_version, record.state) == (5, 2, JobState.INITIALIZED)
    assert storage.configs.task_configs(job_id, 2, [4])[4].command.value == "last"
    assert wakes.changed == [job_id]


async def test_update_of_nothing(jobs: Any, config: Config, wakes: RecordedWakes) -> None:
    """An update that adds nothing succeeds with an empty answer."""
    job_id = await create(jobs, config(2))
    response = await jobs.Update(job_pb2.UpdateRequest(id=wire(job_id), config=config(2)))

    assert response == job_pb2.UpdateResponse()
    assert wakes.changed == []


async def test_update_unknown(jobs: Any, config: Config) -> None:
    """The response contains the error for an unknown job."""
    response = await jobs.Update(job_pb2.UpdateRequest(id=UNKNOWN, config=config()))

    assert response.error.jobNotFound.message == (
        f"Failed to find job with id {UNKNOWN.value} err=job:{UNKNOWN.value} not found"
    )


async def test_update_after_the_end(jobs: Any, config: Config, storage: Storage) -> None:
    """A job that has ended cannot grow."""
    job_id = await create(jobs, config(2))
    end(storage)

    assert await expect_refusal(jobs.Update(job_pb2.UpdateRequest(id=wire(job_id), config=config(3)))) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "Job is in a terminal state:KILLED",
    )


def _change_two(job: job_pb2.JobConfig) -> None:
    job.name, job.instanceCount = "other", 1


IMMUTABLE: dict[str, tuple[Callable[[job_pb2.JobConfig], object], str]] = {
    "name": (lambda j: setattr(j, "name", "other"), "updating Name not supported"),
    "labels": (lambda j: j.labels.add(key="a", value="b"), "updating Labels not supported"),
    "team": (lambda j: setattr(j, "owningTeam", "ads"), "updating OwningTeam not supported"),
    "pool": (lambda j: setattr(j.respoolID, "value", INNER), "updating RespoolID not supported"),
    "type": (lambda j: setattr(j, "type", job_pb2.SERVICE), "updating Type not supported"),
    "groups": (lambda j: j.ldapGroups.append("ads"), "updating LdapGroups not supported"),
    "default": (
        lambda j: setattr(j.defaultConfig, "name", "other"),
        "updating DefaultConfig not supported",
    ),
    "fewer": (lambda j: setattr(j, "instanceCount", 1), "new instance count can't be less"),
    "existing instance": (
        lambda j: setattr(j.instanceConfig[1].command, "value", "other"),
        "existing instance config can't be updated",
    ),
    "existing override": (
        lambda j: setattr(j.instanceConfig[0].command, "value", "other"),
        "existing instance config can't be updated",
    ),
    "new instance is invalid": (
        lambda j: setattr(j.instanceConfig[3].resource, "cpuLimit", -2),
        "Invalid config for instance 3, cpuLimit -2 is negative",
    ),
    "two at once": (
        _change_two,
        "updating Name not supported\nnew instance count can't be less",
    ),
}


@pytest.mark.parametrize("name", IMMUTABLE)
async def test_update_of_something_else(jobs: Any, config: Config, storage: Storage, name: str) -> None:
    """Every change of a batch job but an addition is refused by name and changes nothing."""
    change, text = IMMUTABLE[name]
    before = config(2)
    before.instanceConfig[0].command.value = "first"
    job_id = await create(jobs, before)
    changed = config(4)
    change(changed)
    response = await jobs.Update(job_pb2.UpdateRequest(id=wire(job_id), config=changed))

    record = storage.jobs.get(job_id)
    assert (response.error.invalidConfig.id.value, response.error.invalidConfig.message) == (job_id, text)
    assert record is not None
    assert (record.instance_count, record.config_version) == (2, 1)


async def test_update_may_repeat_an_existing_override(jobs: Any, config: Config) -> None:
    """An update may contain existing instances unchanged."""
    job = config(2)
    job.instanceConfig[0].command.value = "first"
    job_id = await create(jobs, job)
    job.instanceCount = 3
    response = await jobs.Update(job_pb2.UpdateRequest(id=wire(job_id), config=job))

    assert response.message == "added 1 instances"


# -- Delete, Refresh, rolling operations


async def test_delete(jobs: Any, config: Config, storage: Storage) -> None:
    """A job that has ended is deleted at once."""
    job_id = await create(jobs, config())
    end(storage)
    await jobs.Delete(job_pb2.DeleteRequest(id=wire(job_id)))

    assert storage.jobs.get(job_id) is None


async def test_delete_of_an_active_job(jobs: Any, config: Config, storage: Storage) -> None:
    """A job that has not ended is not deleted. The status is the original's; the trailing metadata has the error's
    own code."""
    job_id = await create(jobs, config())

    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await jobs.Delete(job_pb2.DeleteRequest(id=wire(job_id)))

    assert (grpc.StatusCode.INTERNAL, "Job is not in a terminal state: INITIALIZED", "ABORTED") == (
        refusal.value.code(),
        refusal.value.details(),
        code_of(refusal.value),
    )
    assert (409, "aborted") == (refusal_of(refusal.value).status, refusal_of(refusal.value).code)
    assert storage.jobs.get(job_id) is not None


async def test_refresh(jobs: Any, config: Config, wakes: RecordedWakes) -> None:
    """Refresh signals the job's workflow."""
    job_id = await create(jobs, config())
    await jobs.Refresh(job_pb2.RefreshRequest(id=wire(job_id)))

    assert wakes.changed == [job_id]


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("Delete", "job not found"),
        ("Refresh", "job not found"),
        ("GetCache", "Job not found in cache"),
        ("Restart", "job not found"),
        ("Start", "job not found"),
        ("Stop", "job not found"),
    ],
)
async def test_unknown_job(jobs: Any, method: str, text: str) -> None:
    """Methods without an error in their response answer NOT_FOUND."""
    request = getattr(job_pb2, f"{method}Request")(id=UNKNOWN)

    assert await expect_refusal(getattr(jobs, method)(request)) == (grpc.StatusCode.NOT_FOUND, text)


@pytest.mark.parametrize("method", ["Restart", "Start", "Stop"])
async def test_rolling_operations_of_a_batch_job(jobs: Any, config: Config, method: str) -> None:
    """Rolling operations are for service jobs."""
    job_id = await create(jobs, config())
    request = getattr(job_pb2, f"{method}Request")(id=wire(job_id))

    assert await expect_refusal(getattr(jobs, method)(request)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        f"{method.upper()} supported only for service jobs",
    )


# -- the wire


@pytest.mark.parametrize("name", JOB_MANAGER)
async def test_every_spelling_is_served(channel: grpc.aio.Channel, config: Config, name: str) -> None:
    """Each name of JobManager serves the same, with any headers of the original's clients."""
    method = cast(Any, channel).unary_unary(
        f"/{name}/Create",
        request_serializer=job_pb2.CreateRequest.SerializeToString,
        response_deserializer=job_pb2.CreateResponse.FromString,
    )
    headers = (("rpc-caller", "cli"), ("rpc-service", "peloton-jobmgr"), ("rpc-encoding", "proto"))
    response = await method(job_pb2.CreateRequest(id=wire(JOB), config=config()), metadata=headers)

    assert response.jobId.value == JOB


async def test_unknown_fields_survive(channel: grpc.aio.Channel, config: Config, jobs: Any) -> None:
    """Fields of a newer client are stored with the config."""
    raw = config()
    raw.MergeFromString(b"\xfa\x3f\x03new")
    job_id = await create(jobs, raw)
    response = await jobs.Get(job_pb2.GetRequest(id=wire(job_id)))

    assert b"\xfa\x3f\x03new" in response.jobInfo.config.SerializeToString()
