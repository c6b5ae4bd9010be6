"""Secrets of requests: answers have ids and paths, never the data."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha import peloton_pb2 as v1_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.model.ids import JobId
from peloton.model.secret import SECRETS_MAX, Secret
from services.storage.storage import Storage
from tests.unit.api_service.services import spec
from tests.unit.api_service.story import ID, JOB, Config, expect_refusal

DATA = b"open sesame \x00\xff"
PATH = "/run/key"


def secret(path: str = PATH, data: bytes = DATA) -> peloton_pb2.Secret:
    return peloton_pb2.Secret(path=path, value=peloton_pb2.Secret.Value(data=b64encode(data)))


async def create(jobs: Any, config: job_pb2.JobConfig) -> None:
    answer = await jobs.Create(job_pb2.CreateRequest(id=ID, config=config, secrets=[secret()]))
    assert not answer.HasField("error"), answer


def read_stored(storage: Storage, job_id: JobId, secret_id: str) -> Secret:
    wanted = [Secret(secret_id, PATH)]
    [found] = storage.secrets.reveal(job_id, wanted, storage.secrets.rows(job_id, wanted))
    return found


async def test_a_batch_job_has_its_secret(jobs: Any, config: Config, storage: Storage) -> None:
    """Answer and configuration have the secret's id and path, and the configuration can be sent again. Storage has
    the bytes."""
    await create(jobs, config(2))

    answer = await jobs.Get(job_pb2.GetRequest(id=ID))

    [found] = answer.secrets
    assert (PATH, False, [found]) == (
        found.path,
        found.HasField("value"),
        list(answer.jobInfo.config.defaultConfig.secrets),
    )
    assert DATA == read_stored(storage, JOB, found.id.value).data
    everything = answer.SerializeToString()
    assert [False, False] == [text in everything for text in (DATA, b64encode(DATA))]


async def test_a_batch_job_grows_with_its_secret(jobs: Any, config: Config, storage: Storage) -> None:
    """A request may omit the existing secret; new data alone is an update, too."""
    await create(jobs, config(2))
    [before] = (await jobs.Get(job_pb2.GetRequest(id=ID))).secrets

    grown = await jobs.Update(job_pb2.UpdateRequest(id=ID, config=config(3)))
    changed = await jobs.Update(job_pb2.UpdateRequest(id=ID, config=config(3), secrets=[secret(data=b"new")]))
    same = await jobs.Update(job_pb2.UpdateRequest(id=ID, config=config(3), secrets=[secret(data=b"new")]))

    texts = ["added 1 instances", "changed 1 secrets", "changed 0 secrets"]
    assert texts == [answer.message for answer in (grown, changed, same)]
    [after] = (await jobs.Get(job_pb2.GetRequest(id=ID))).secrets
    found = read_stored(storage, JOB, after.id.value)
    assert (before, b"new", 1) == (after, found.data, found.revision)


async def test_a_service_gets_another_secret(v1: Any, storage: Storage) -> None:
    """A replacement with data creates a new secret; one without data keeps the present one."""
    sent = v1_pb2.Secret(path=PATH, value=v1_pb2.Secret.Value(data=b64encode(DATA)))
    made = await v1.CreateJob(svc.CreateJobRequest(spec=spec(), secrets=[sent]))
    ids = []
    for secrets in ([], [v1_pb2.Secret(path=PATH, value=v1_pb2.Secret.Value(data=b64encode(b"new")))]):
        job = await v1.GetJob(svc.GetJobRequest(job_id=made.job_id))
        ids += [one.secret_id.value for one in job.secrets]
        version = job.job_info.status.version
        await v1.ReplaceJob(svc.ReplaceJobRequest(job_id=made.job_id, version=version, spec=spec(), secrets=secrets))
    job = await v1.GetJob(svc.GetJobRequest(job_id=made.job_id))
    ids += [one.secret_id.value for one in job.secrets]

    assert [PATH] == [one.path for one in job.secrets]
    assert (ids[0], True) == (ids[1], ids[1] != ids[2])
    job_id = JobId(made.job_id.value)
    assert [DATA, b"new"] == [read_stored(storage, job_id, one).data for one in ids[1:]]


BAD_PATH = ": want the absolute path of a file, without '..' and ':'"


@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        ([secret("")], "secret does not have a path"),
        ([secret("run/key")], f"secret at 'run/key'{BAD_PATH}"),
        ([secret("/run/../key")], f"secret at '/run/../key'{BAD_PATH}"),
        ([secret("/")], f"secret at '/'{BAD_PATH}"),
        ([secret("/" + "x" * 1000)], "the path of a secret has 1001 characters, at most 1000 are allowed"),
        ([secret(), secret()], "two secrets at /run/key"),
        (
            [secret(f"/{i}") for i in range(SECRETS_MAX + 1)],
            f"{SECRETS_MAX + 1} secrets in the request, at most {SECRETS_MAX} are allowed",
        ),
        (
            [peloton_pb2.Secret(path=PATH, value=peloton_pb2.Secret.Value(data=b"!"))],
            "secret at /run/key: failed to decode secret with error: Only base64 data is allowed",
        ),
    ],
)
async def test_what_is_refused(
    jobs: Any, config: Config, storage: Storage, secrets: list[peloton_pb2.Secret], text: str
) -> None:
    """The error names the secret's fault, and nothing is stored."""
    call = jobs.Create(job_pb2.CreateRequest(id=ID, config=config(), secrets=secrets))

    assert (grpc.StatusCode.INVALID_ARGUMENT, text) == await expect_refusal(call)
    assert storage.jobs.get(JOB) is None
