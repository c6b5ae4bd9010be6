"""Names with characters that control a terminal are refused by every call that stores names."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from peloton.api.v1alpha import peloton_pb2 as v1_peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from services.storage.storage import Storage
from tests.unit.api_service.services import ID, create, service_config, spec
from tests.unit.api_service.story import JOB, Config, expect_refusal, wire
from tests.unit.api_service.story import create as create_v0

BAD = "a\u202eb"
RULE = (
    r"'a\u202eb' contains \u202e (U+202E) at 1: control characters and characters that change the direction of text "
    "are not allowed"
)
INVALID = "invalid job spec: code:invalid-argument message:"


def make_renamed_spec(**fields: Any) -> stateless_pb2.JobSpec:
    changed = spec()
    changed.MergeFrom(stateless_pb2.JobSpec(**fields))
    return changed


async def test_batch_jobs(jobs: Any, config: Config) -> None:
    """Creations, and updates that add instances, are refused."""
    created = await jobs.Create(job_pb2.CreateRequest(config=config(name=BAD)))
    job_id = await create_v0(jobs, config(2))
    grown = config(3)
    grown.instanceConfig[2].name = BAD
    updated = await jobs.Update(job_pb2.UpdateRequest(id=wire(job_id), config=grown))

    assert f"name {RULE}" == created.error.invalidConfig.message
    assert f"Invalid config for instance 2, name {RULE}" == updated.error.invalidConfig.message


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": BAD}, f"name {RULE}"),
        ({"owner": BAD}, f"owner {RULE}"),
        ({"owning_team": BAD}, f"owningTeam {RULE}"),
        ({"labels": [v1_peloton_pb2.Label(key=BAD)]}, f"label {RULE}"),
    ],
)
async def test_services(v1: Any, storage: Storage, fields: dict[str, Any], text: str) -> None:
    """Creations, replacements and patches are refused, and nothing is stored."""
    expected = (grpc.StatusCode.INVALID_ARGUMENT, f"{INVALID}{text}")

    assert expected == await expect_refusal(
        v1.CreateJob(svc.CreateJobRequest(job_id=ID, spec=make_renamed_spec(**fields)))
    )
    assert storage.jobs.get(JOB) is None
    seen = v1_peloton_pb2.EntityVersion(value=await create(v1, spec()))
    patch = stateless_pb2.JobSpec(**fields)
    for call in (
        v1.ReplaceJob(svc.ReplaceJobRequest(job_id=ID, version=seen, spec=make_renamed_spec(**fields))),
        v1.PatchJob(svc.PatchJobRequest(job_id=ID, version=seen, spec=patch)),
    ):
        assert expected == await expect_refusal(call)


async def test_updates_of_v0(updates: Any, v1: Any) -> None:
    """Updates of a service through v0 are refused."""
    await create(v1, spec())
    changed = service_config()
    changed.labels.append(peloton_pb2.Label(key=BAD))

    code, text = await expect_refusal(
        updates.CreateUpdate(update_svc_pb2.CreateUpdateRequest(jobId=wire(JOB), jobConfig=changed))
    )
    assert grpc.StatusCode.INVALID_ARGUMENT == code
    assert text is not None
    assert text.endswith(f"label {RULE}")
