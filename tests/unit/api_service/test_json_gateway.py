"""JSON over HTTP in front of the real api, for a job from its creation on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import orjson
import pytest
from google.protobuf import json_format
from starlette.applications import Starlette

from services.web.api import Api
from services.web.gateway import Gateway
from tests.unit.api_service.story import JOB, UNKNOWN, Config

JOBS = "peloton.api.v0.job.JobManager"
V1 = "peloton.api.v1alpha.job.stateless.svc.JobService"


@pytest.fixture
async def web(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    api = Api(address)
    transport = httpx2.ASGITransport(Starlette(routes=Gateway(api).routes()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://web/api/") as client:
        yield client
    await api.close()


async def test_a_job_is_created_and_read(web: httpx2.AsyncClient, config: Config) -> None:
    """The job is read as it was sent; a second creation with its id has the v0 API's error."""
    wanted = json_format.MessageToDict(config(3))
    request = {"id": {"value": JOB}, "config": wanted}

    created = await web.post(f"{JOBS}/Create", json=request)
    read = await web.post(f"{JOBS}/Get", json={"id": {"value": JOB}})
    again = await web.post(f"{JOBS}/Create", json=request)

    assert {"jobId": {"value": JOB}} == created.json()
    assert "INITIALIZED" == read.json()["jobInfo"]["runtime"]["state"]
    assert wanted.items() <= read.json()["jobInfo"]["config"].items()
    assert (200, {"value": JOB}) == (again.status_code, again.json()["error"]["alreadyExists"]["id"])


async def test_what_is_refused_says_why(web: httpx2.AsyncClient, config: Config) -> None:
    """A configuration's fault is in the answer, an unknown job is a status, as over gRPC."""
    wanted = json_format.MessageToDict(config(3)) | {"instanceConfig": {"3": {}}}

    refused = await web.post(f"{JOBS}/Create", json={"config": wanted})
    missing = await web.post(f"{V1}/GetJob", json={"jobId": {"value": UNKNOWN.value}})

    assert "instanceConfig" in refused.json()["error"]["invalidConfig"]["message"]
    assert (404, "not_found") == (missing.status_code, missing.json()["code"])
    assert UNKNOWN.value in missing.json()["message"]


async def test_jobs_come_in_lines(web: httpx2.AsyncClient, config: Config) -> None:
    """A streamed list has one line for each job."""
    request: dict[str, Any] = {"config": json_format.MessageToDict(config(1))}
    for _ in range(3):
        assert "jobId" in (await web.post(f"{JOBS}/Create", json=request)).json()

    found = await web.post(f"{JOBS}/Query", json={"summaryOnly": True, "spec": {}})
    listed = await web.post(f"{V1}/ListJobs", json={})

    assert 3 == len(found.json()["results"])
    assert (200, "application/x-ndjson") == (listed.status_code, listed.headers["content-type"])
    lines = [orjson.loads(line) for line in listed.content.splitlines()]
    assert ["shards"] * 3 == [job["name"] for line in lines for job in line["result"]["jobs"]]
