"""v0 JobManager over real storage: Get, GetCache, Query, GetActiveJobs."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.query import query_pb2
from services.api import stored_configs
from services.storage.storage import Storage
from tests.unit.api_service.story import LEAF, UNKNOWN, Config, create, end, expect_refusal, wire

# -- Get, GetCache, Query, GetActiveJobs


async def test_get(jobs: Any, config: Config) -> None:
    """The config is returned as it was sent, retries cut to 100, with the runtime and every state counted."""
    job = config(3)
    job.defaultConfig.restartPolicy.maxFailures = 500
    job_id = await create(jobs, job)
    info = (await jobs.Get(job_pb2.GetRequest(id=wire(job_id)))).jobInfo

    job.defaultConfig.restartPolicy.maxFailures = 100
    info.config.ClearField("changeLog")
    assert info.config == job
    assert (info.runtime.state, info.runtime.goalState) == (job_pb2.INITIALIZED, job_pb2.SUCCEEDED)
    assert (info.runtime.taskStats["INITIALIZED"], info.runtime.taskStats["LOST"]) == (3, 0)
    assert info.runtime.configurationVersion == 1


@pytest.mark.parametrize("job_id", [UNKNOWN.value, "job-1", ""])
async def test_get_unknown(jobs: Any, job_id: str) -> None:
    """The error for an unknown job is the API's text about its runtime."""
    response = await jobs.Get(job_pb2.GetRequest(id=wire(job_id)))

    assert response.error.getRuntimeFail.id.value == job_id
    assert response.error.getRuntimeFail.message == f"job:{job_id} not found"
    assert not response.HasField("jobInfo")


async def test_get_that_is_too_large(jobs: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config above the limit of a message is refused with the alternatives."""
    monkeypatch.setattr(stored_configs, "ANSWER_BYTES_MAX", 10)
    job_id = await create(jobs, config())
    code, text = await expect_refusal(jobs.Get(job_pb2.GetRequest(id=wire(job_id))))

    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "the limit of one answer is 10; Query and GetCache return the job without its 0" in str(text)


async def test_get_cache(jobs: Any, config: Config) -> None:
    """The cached view is a small part of the config, and the runtime."""
    job_id = await create(jobs, config(3, sla=job_pb2.SlaConfig(priority=7, preemptible=True)))
    response = await jobs.GetCache(job_pb2.GetCacheRequest(id=wire(job_id)))

    cached = response.config
    assert (cached.changeLog.version, cached.sla.priority, cached.respoolID.value) == (1, 7, LEAF)
    assert (cached.type, cached.instanceCount, cached.name) == (job_pb2.BATCH, 3, "")
    assert response.runtime.state == job_pb2.INITIALIZED


async def test_query(jobs: Any, config: Config) -> None:
    """Records and summaries match; pagination and spec echo the request."""
    for number in range(3):
        await create(jobs, config(name=f"shards-{number}"), f"91b1b8e5-2ba8-41e7-bc23-0242ac11000{number}")
    spec = job_pb2.QuerySpec(
        name="shards",
        pagination=query_pb2.PaginationSpec(
            offset=1,
            limit=5,
            orderBy=[query_pb2.OrderBy(order=query_pb2.OrderBy.ASC, property=query_pb2.PropertyPath(value="name"))],
        ),
    )
    response = await jobs.Query(job_pb2.QueryRequest(spec=spec))

    assert [summary.name for summary in response.results] == ["shards-1", "shards-2"]
    assert [record.config.name for record in response.records] == ["shards-1", "shards-2"]
    assert response.pagination == query_pb2.Pagination(offset=1, limit=5, total=3)
    assert response.spec == spec


async def test_query_echoes_a_missing_limit(jobs: Any, config: Config) -> None:
    """An absent limit is echoed as 0 although ten rows are returned."""
    await create(jobs, config())
    response = await jobs.Query(job_pb2.QueryRequest(spec=job_pb2.QuerySpec(), summaryOnly=True))

    assert response.pagination == query_pb2.Pagination(offset=0, limit=0, total=1)
    assert (len(response.results), len(response.records)) == (1, 0)


async def test_query_without_a_spec(jobs: Any, config: Config) -> None:
    """A query without a spec has an empty answer."""
    await create(jobs, config())

    assert await jobs.Query(job_pb2.QueryRequest()) == job_pb2.QueryResponse()


async def test_query_records_leave_out_instances(jobs: Any, config: Config) -> None:
    """A record has the config without its instances."""
    job = config()
    job.instanceConfig[1].command.value = "other"
    await create(jobs, job)
    response = await jobs.Query(
        job_pb2.QueryRequest(spec=job_pb2.QuerySpec(), respoolID=peloton_pb2.ResourcePoolID(value=LEAF))
    )

    assert response.records[0].config.defaultConfig.command.value == "true"
    assert not response.records[0].config.instanceConfig


async def test_query_with_a_wrong_range(jobs: Any) -> None:
    """A range that ends before it begins is an error inside the response."""
    spec = job_pb2.QuerySpec()
    spec.creationTimeRange.min.seconds = 2
    spec.creationTimeRange.max.seconds = 1
    response = await jobs.Query(job_pb2.QueryRequest(spec=spec))

    assert response.error.err.message == "Incorrect timerange"


async def test_query_ordered_by_something_unknown(jobs: Any) -> None:
    """The error lists the supported fields."""
    spec = job_pb2.QuerySpec()
    spec.pagination.orderBy.add().property.value = "colour"
    response = await jobs.Query(job_pb2.QueryRequest(spec=spec))

    assert response.error.err.message.startswith("jobs cannot be sorted by 'colour': only by creation_time")


async def test_active_jobs(jobs: Any, config: Config, storage: Storage) -> None:
    """Jobs that have not ended are active."""
    await create(jobs, config())
    active = await create(jobs, config(), UNKNOWN.value)
    end(storage)
    response = await jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest())

    assert [job_id.value for job_id in response.ids] == [active]
