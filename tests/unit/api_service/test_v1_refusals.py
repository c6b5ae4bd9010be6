"""v1alpha JobService: the code and the text of each refusal, which changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.model.ids import JobId
from peloton.model.job import JobState
from services.storage.storage import Storage
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.services import (
    CHAIN,
    ID,
    NOT_UUID,
    UNKNOWN,
    UNKNOWN_JOB,
    container,
    create,
    ranges,
    spec,
    spec_in,
    spec_with,
    version,
)
from tests.unit.api_service.story import INNER, JOB, NOW_NS, expect_refusal

Status = grpc.StatusCode
INVALID = "invalid job spec: code:invalid-argument message:"


@dataclass(frozen=True)
class Refused:
    """A call about a service in version 1-1-1, with its refusal."""

    method: str
    request: Any
    code: grpc.StatusCode
    text: str


V1 = version("1-1-1")
STALE = version("1-1-2")
TO_REPLACE: dict[str, Any] = {"job_id": ID, "spec": spec(image="web:2")}
UNEXPECTED = CHAIN("aborted", "unexpected entity version")
UPDATE = "failed to create update workload: "
REFUSALS: dict[str, Refused] = {
    "replace, no UUID": Refused(
        "ReplaceJob",
        svc.ReplaceJobRequest(job_id=NOT_UUID),
        Status.INVALID_ARGUMENT,
        "JobID must be of UUID format",
    ),
    "replace, unknown job": Refused(
        "ReplaceJob",
        svc.ReplaceJobRequest(job_id=UNKNOWN, spec=spec()),
        Status.NOT_FOUND,
        f"failed to get job runtime from cache: {UNKNOWN_JOB}",
    ),
    "replace, another version": Refused(
        "ReplaceJob", svc.ReplaceJobRequest(version=STALE, **TO_REPLACE), Status.ABORTED, UPDATE + UNEXPECTED
    ),
    "replace, no version at all": Refused(
        "ReplaceJob", svc.ReplaceJobRequest(**TO_REPLACE), Status.ABORTED, UPDATE + UNEXPECTED
    ),
    "replace, a text that is no version": Refused(
        "ReplaceJob", svc.ReplaceJobRequest(version=version("one"), **TO_REPLACE), Status.ABORTED, UPDATE + UNEXPECTED
    ),
    "replace, another pool": Refused(
        "ReplaceJob",
        svc.ReplaceJobRequest(job_id=ID, version=V1, spec=spec_in(INNER)),
        Status.INVALID_ARGUMENT,
        "failed to validate spec update: " + CHAIN("invalid-argument", "resource pool identifier is immutable"),
    ),
    "replace, an invalid spec": Refused(
        "ReplaceJob",
        svc.ReplaceJobRequest(job_id=ID, version=V1, spec=spec_with(lambda s: container(s).ClearField("entrypoint"))),
        Status.INVALID_ARGUMENT,
        INVALID + "missing command info for instance 0",
    ),
    "replace, too much opaque data": Refused(
        "ReplaceJob",
        svc.ReplaceJobRequest(version=V1, opaque_data=peloton_pb2.OpaqueData(data="x" * 65_537), **TO_REPLACE),
        Status.INVALID_ARGUMENT,
        UPDATE + CHAIN("invalid-argument", "opaque data has 65537 bytes, at most 65536 are allowed"),
    ),
    "pause, opaque data with NUL": Refused(
        "PauseJobWorkflow",
        svc.PauseJobWorkflowRequest(job_id=ID, version=V1, opaque_data=peloton_pb2.OpaqueData(data="a\0")),
        Status.INVALID_ARGUMENT,
        "opaque data contains NUL",
    ),
    "patch, another version": Refused(
        "PatchJob",
        svc.PatchJobRequest(job_id=ID, version=STALE, spec=stateless_pb2.JobSpec(description="x")),
        Status.ABORTED,
        UPDATE + UNEXPECTED,
    ),
    "patch, unknown job": Refused(
        "PatchJob",
        svc.PatchJobRequest(job_id=UNKNOWN),
        Status.NOT_FOUND,
        f"failed to get job runtime from cache: {UNKNOWN_JOB}",
    ),
    "restart, another version": Refused(
        "RestartJob", svc.RestartJobRequest(job_id=ID, version=STALE), Status.ABORTED, UPDATE + UNEXPECTED
    ),
    "restart, instances that do not exist": Refused(
        "RestartJob",
        svc.RestartJobRequest(job_id=ID, version=V1, restart_spec=stateless_pb2.RestartSpec(ranges=ranges((3, 7)))),
        Status.INVALID_ARGUMENT,
        "instances [3, 7) asked, the job has instances [0, 3)",
    ),
    "pause, another version": Refused(
        "PauseJobWorkflow",
        svc.PauseJobWorkflowRequest(job_id=ID, version=STALE),
        Status.ABORTED,
        "failed to pause workload: " + UNEXPECTED,
    ),
    "resume, another version": Refused(
        "ResumeJobWorkflow",
        svc.ResumeJobWorkflowRequest(job_id=ID, version=STALE),
        Status.ABORTED,
        "failed to resume workload: " + UNEXPECTED,
    ),
    "abort, unknown job": Refused(
        "AbortJobWorkflow",
        svc.AbortJobWorkflowRequest(job_id=UNKNOWN, version=V1),
        Status.NOT_FOUND,
        f"failed to abort workflow: {UNKNOWN_JOB}",
    ),
    "start, another version": Refused(
        "StartJob", svc.StartJobRequest(job_id=ID, version=STALE), Status.ABORTED, "unexpected entity version"
    ),
    "stop, another version": Refused(
        "StopJob", svc.StopJobRequest(job_id=ID, version=STALE), Status.ABORTED, "unexpected entity version"
    ),
    "stop, unknown job": Refused(
        "StopJob",
        svc.StopJobRequest(job_id=UNKNOWN, version=V1),
        Status.NOT_FOUND,
        f"job:{UNKNOWN.value} not found",
    ),
    "delete, it runs": Refused(
        "DeleteJob", svc.DeleteJobRequest(job_id=ID, version=V1), Status.ABORTED, "job is not stopped"
    ),
    "delete, another version": Refused(
        "DeleteJob",
        svc.DeleteJobRequest(job_id=ID, version=STALE, force=True),
        Status.ABORTED,
        "unexpected entity version",
    ),
    "refresh, unknown job": Refused(
        "RefreshJob", svc.RefreshJobRequest(job_id=UNKNOWN), Status.NOT_FOUND, f"job:{UNKNOWN.value} not found"
    ),
    "diff, no UUID": Refused(
        "GetReplaceJobDiff",
        svc.GetReplaceJobDiffRequest(job_id=NOT_UUID),
        Status.INVALID_ARGUMENT,
        "JobID must be of UUID format",
    ),
    "diff, another version": Refused(
        "GetReplaceJobDiff",
        svc.GetReplaceJobDiffRequest(version=STALE, **TO_REPLACE),
        Status.ABORTED,
        "unexpected entity version",
    ),
    "diff, another pool": Refused(
        "GetReplaceJobDiff",
        svc.GetReplaceJobDiffRequest(job_id=ID, version=V1, spec=spec_in(INNER)),
        Status.INVALID_ARGUMENT,
        "failed to validate spec update: " + CHAIN("invalid-argument", "resource pool identifier is immutable"),
    ),
    "get, unknown job": Refused(
        "GetJob",
        svc.GetJobRequest(job_id=UNKNOWN),
        Status.NOT_FOUND,
        f"failed to get job status: {UNKNOWN_JOB}",
    ),
    "get, summary of an unknown job": Refused(
        "GetJob",
        svc.GetJobRequest(job_id=UNKNOWN, summary_only=True),
        Status.NOT_FOUND,
        f"job:{UNKNOWN.value} not found",
    ),
    "get, unknown version": Refused(
        "GetJob",
        svc.GetJobRequest(job_id=ID, version=version("9-1-1")),
        Status.NOT_FOUND,
        "fail to get job spec: " + CHAIN("not-found", f"job:{JOB} has no configuration 9"),
    ),
    "get, a text that is no version": Refused(
        "GetJob",
        svc.GetJobRequest(job_id=ID, version=version("nine")),
        Status.INVALID_ARGUMENT,
        "entityVersion has wrong format",
    ),
    "id of an unknown name": Refused(
        "GetJobIDFromJobName",
        svc.GetJobIDFromJobNameRequest(job_name="nobody"),
        Status.NOT_FOUND,
        'job id for job name not found: "nobody"',
    ),
    "id of a name that cannot be": Refused(
        "GetJobIDFromJobName",
        svc.GetJobIDFromJobNameRequest(job_name="\0"),
        Status.NOT_FOUND,
        r'job id for job name not found: "\x00"',
    ),
    "events, no UUID": Refused(
        "GetWorkflowEvents",
        svc.GetWorkflowEventsRequest(job_id=NOT_UUID),
        Status.INVALID_ARGUMENT,
        "job ID must be of UUID format",
    ),
    "events, unknown job": Refused(
        "GetWorkflowEvents",
        svc.GetWorkflowEventsRequest(job_id=UNKNOWN),
        Status.NOT_FOUND,
        f"job:{UNKNOWN.value} not found",
    ),
    "workflows of no job": Refused(
        "ListJobWorkflows", svc.ListJobWorkflowsRequest(), Status.INVALID_ARGUMENT, "no job id provided"
    ),
    "workflows of an unknown job": Refused(
        "ListJobWorkflows",
        svc.ListJobWorkflowsRequest(job_id=UNKNOWN),
        Status.NOT_FOUND,
        f"job:{UNKNOWN.value} not found",
    ),
    "pods of an unknown job": Refused(
        "QueryPods",
        svc.QueryPodsRequest(job_id=UNKNOWN),
        Status.NOT_FOUND,
        f"failed to find job runtime: {UNKNOWN_JOB}",
    ),
    "cache of an unknown job": Refused(
        "GetJobCache", svc.GetJobCacheRequest(job_id=UNKNOWN), Status.NOT_FOUND, "job not found in cache"
    ),
}


@pytest.mark.usefixtures("running_service")
@pytest.mark.parametrize("name", REFUSALS)
async def test_refusals(v1: Any, storage: Storage, wakes: RecordedWakes, name: str) -> None:
    """The job is unchanged, and no workflow is signalled."""
    before, case = storage.jobs.get(JOB), REFUSALS[name]

    assert await expect_refusal(getattr(v1, case.method)(case.request)) == (case.code, case.text)
    assert storage.jobs.get(JOB) == before
    assert wakes.changed == []


async def test_a_bad_sort_field(v1: Any) -> None:
    """The error lists the supported fields."""
    await create(v1, spec())
    request = svc.QueryPodsRequest(job_id=ID)
    request.spec.pagination.order_by.add().property.value = "color"
    code, text = await expect_refusal(v1.QueryPods(request))

    assert code == Status.INVALID_ARGUMENT
    assert str(text).startswith("failed to query tasks from DB: code:invalid-argument message:Sort only supports")


async def test_a_batch_job_is_no_service(v1: Any, job: JobId) -> None:
    """v1alpha can neither replace nor restart a batch job, and it has no workflows."""
    replace = svc.ReplaceJobRequest(version=V1, **TO_REPLACE)
    restart = svc.RestartJobRequest(job_id=ID, version=V1)

    assert await expect_refusal(v1.ReplaceJob(replace)) == (
        Status.INVALID_ARGUMENT,
        "failed to validate spec update: " + CHAIN("invalid-argument", "job type is immutable"),
    )
    assert await expect_refusal(v1.RestartJob(restart)) == (
        Status.INVALID_ARGUMENT,
        UPDATE + CHAIN("invalid-argument", "RESTART supported only for service jobs"),
    )
    assert await expect_refusal(v1.GetWorkflowEvents(svc.GetWorkflowEventsRequest(job_id=ID))) == (
        Status.NOT_FOUND,
        "job runtime does not have workflow",
    )
    assert await expect_refusal(v1.PauseJobWorkflow(svc.PauseJobWorkflowRequest(job_id=ID, version=V1))) == (
        Status.NOT_FOUND,
        "failed to pause workload: " + CHAIN("not-found", "no workflow found"),
    )


async def test_a_restart_does_not_overwrite_an_update(v1: Any, storage: Storage) -> None:
    """An update that is under way can be replaced by another update only."""
    await create(v1, spec())
    restart = svc.RestartJobRequest(job_id=ID, version=V1)

    assert await expect_refusal(v1.RestartJob(restart)) == (
        Status.INVALID_ARGUMENT,
        UPDATE + CHAIN("invalid-argument", "workflow RESTART cannot overwrite workflow UPDATE"),
    )


async def test_an_update_that_starts_pods_forbids_to_stop(v1: Any, storage: Storage, running_service: str) -> None:
    """A stop is refused while an update with start_pods is under way."""
    request = svc.ReplaceJobRequest(version=V1, update_spec=stateless_pb2.UpdateSpec(start_pods=True), **TO_REPLACE)
    seen = (await v1.ReplaceJob(request)).version

    assert await expect_refusal(v1.StopJob(svc.StopJobRequest(job_id=ID, version=seen))) == (
        Status.ABORTED,
        "job has active update with start_pods set, cannot stop the job now",
    )


async def test_a_job_to_delete_takes_no_more(v1: Any, storage: Storage, running_service: str) -> None:
    """Updates and starts are refused."""
    job = storage.jobs.set_service_goal(JOB, None, JobState.DELETED, True, NOW_NS)
    seen = version(str(job.entity_version))

    assert await expect_refusal(v1.ReplaceJob(svc.ReplaceJobRequest(version=seen, **TO_REPLACE))) == (
        Status.INVALID_ARGUMENT,
        UPDATE + CHAIN("invalid-argument", "job is going to be deleted"),
    )
    assert await expect_refusal(v1.StartJob(svc.StartJobRequest(job_id=ID, version=seen))) == (
        Status.INVALID_ARGUMENT,
        "job is going to be deleted",
    )


async def test_pods_cannot_be_started_while_the_job_is_stopped(v1: Any, storage: Storage, running_service: str) -> None:
    """An update that starts pods is refused until the job has ended."""
    stopped = (await v1.StopJob(svc.StopJobRequest(job_id=ID, version=V1))).version
    update_spec = stateless_pb2.UpdateSpec(start_pods=True)
    request = svc.ReplaceJobRequest(version=stopped, update_spec=update_spec, **TO_REPLACE)

    assert await expect_refusal(v1.ReplaceJob(request)) == (
        Status.ABORTED,
        UPDATE + CHAIN("aborted", "job is being terminated, cannot update with start_pods set now"),
    )


@pytest.mark.parametrize(("field", "wins"), [("environment", "command"), ("image", "container")])
async def test_a_patch_that_would_have_no_effect(v1: Any, field: str, wins: str) -> None:
    """A field that a Mesos message overrides cannot be patched alone."""
    wanted = spec()
    container(wanted).command.value = "serve"
    container(wanted).container.type = mesos_pb2.ContainerInfo.MESOS
    await create(v1, wanted)
    patch = stateless_pb2.JobSpec()
    patched = patch.default_spec.containers.add()
    if field == "image":
        patched.image = "web:2"
    else:
        patched.environment.add(name="A", value="1")

    assert await expect_refusal(v1.PatchJob(svc.PatchJobRequest(job_id=ID, version=V1, spec=patch))) == (
        Status.INVALID_ARGUMENT,
        f"the container's {wins} takes precedence over {field}: change {wins}, or replace the spec",
    )
