"""Peloton's JobTableService over real storage: filters, tokens and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.config_bounds import TASKS_PER_JOB_MAX
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.table.table_pb2_grpc import JobTableServiceStub
from peloton.model.ids import JobId, new_job_id
from services.api.job_table_service import LABELS_MAX, PAGE_SIZE_MAX, TEXT_MAX
from tests.unit.api_service.story import ID, INNER, LEAF, expect_refusal

Build = Callable[..., job_pb2.JobConfig]
NAMES = ("etl", "tiles", "tiles-2")


@pytest.fixture
def table(channel: grpc.aio.Channel) -> Any:
    return JobTableServiceStub(channel)


@pytest.fixture
async def three(jobs: Any, config: Build) -> None:
    for name in NAMES:
        one = config(2, name=name, owningTeam=f"team-{name}", labels=[peloton_pb2.Label(key="k", value=name)])
        await jobs.Create(job_pb2.CreateRequest(config=one))


def make_request(**fields: Any) -> table_pb2.ListJobsRequest:
    return table_pb2.ListJobsRequest(filter=table_pb2.JobFilter(**fields))


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["tiles-2", "tiles", "etl"]),
        ({"pool": "/"}, ["tiles-2", "tiles", "etl"]),
        ({"pool": "/eng"}, ["tiles-2", "tiles", "etl"]),
        ({"pool": "/eng/maps"}, ["tiles-2", "tiles", "etl"]),
        ({"pool": INNER}, ["tiles-2", "tiles", "etl"]),
        ({"pool": LEAF, "namePrefix": "tiles"}, ["tiles-2", "tiles"]),
        ({"owner": "team-etl"}, ["etl"]),
        ({"states": [job_pb2.INITIALIZED]}, ["tiles-2", "tiles", "etl"]),
        ({"states": [job_pb2.RUNNING]}, []),
        ({"types": [job_pb2.SERVICE]}, []),
        ({"labels": [peloton_pb2.Label(key="k", value="tiles")]}, ["tiles"]),
        ({"namePart": "es-"}, ["tiles-2"]),
    ],
)
async def test_filters(table: Any, fields: dict[str, Any], expected: list[str]) -> None:
    """A pool's path or id includes the pools below it."""
    response = await table.ListJobs(make_request(**fields))

    assert expected == [job.name for job in response.jobs]
    assert "" == response.nextPageToken


@pytest.mark.usefixtures("three")
async def test_a_time_is_by_the_second(table: Any) -> None:
    """The second of a job's creation includes it; the previous one does not."""
    newest = (await table.ListJobs(table_pb2.ListJobsRequest(pageSize=1))).jobs[0]
    within, before = make_request(namePart=newest.name), make_request(namePart=newest.name)
    within.filter.creationTimeRange.max.FromJsonString(newest.creationTime)
    before.filter.creationTimeRange.max.FromJsonString(newest.creationTime)
    before.filter.creationTimeRange.max.seconds -= 1

    assert 1 == len((await table.ListJobs(within)).jobs)
    assert 0 == len((await table.ListJobs(before)).jobs)


@pytest.mark.usefixtures("three")
async def test_rows_and_tokens(table: Any) -> None:
    """A row has the columns of a table; tokens lead to the next page and back."""
    first = await table.ListJobs(table_pb2.ListJobsRequest(pageSize=2, count=True))
    second = await table.ListJobs(table_pb2.ListJobsRequest(pageSize=2, pageToken=first.nextPageToken))
    back = await table.ListJobs(table_pb2.ListJobsRequest(pageSize=2, pageToken=second.previousPageToken))

    assert (3, False, "") == (first.count.count, first.count.more, first.previousPageToken)
    assert (["etl"], "") == ([job.name for job in second.jobs], second.nextPageToken)
    assert list(first.jobs) == list(back.jobs)
    row = second.jobs[0]
    assert ("team-etl", "/eng/maps", LEAF, 2) == (row.owner, row.poolPath, row.respoolID.value, row.instanceCount)
    assert (job_pb2.BATCH, job_pb2.INITIALIZED) == (row.type, row.state)
    assert [("k", "etl")] == [(label.key, label.value) for label in row.labels]
    assert row.creationTime.endswith("Z")
    assert not second.HasField("count")


@pytest.mark.usefixtures("three")
async def test_a_token_is_of_one_order(table: Any) -> None:
    """A token is refused by the other order, and so is a forged one."""
    first = await table.ListJobs(table_pb2.ListJobsRequest(pageSize=1, oldestFirst=True))
    assert ["etl"] == [job.name for job in first.jobs]
    other = table_pb2.ListJobsRequest(pageToken=first.nextPageToken)

    assert (
        grpc.StatusCode.INVALID_ARGUMENT,
        "pageToken belongs to the other sort order: start again without a token",
    ) == (await expect_refusal(table.ListJobs(other)))
    for token in ("x", "W10", "WzEsMixudWxsLDAsMF0", "MQ", "Wzk" * 50, "é"):
        code, details = await expect_refusal(table.ListJobs(table_pb2.ListJobsRequest(pageToken=token)))
        assert (grpc.StatusCode.INVALID_ARGUMENT, True) == (
            code,
            "was not issued by this service: start again without a token" in details,
        )


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (table_pb2.ListJobsRequest(pageSize=PAGE_SIZE_MAX + 1), "INVALID_ARGUMENT", "pageSize is 501, at most 500"),
        (make_request(pool="/nosuch"), "NOT_FOUND", "resource pool /nosuch not found"),
        (make_request(owner="x" * (TEXT_MAX + 1)), "INVALID_ARGUMENT", "has 4001 characters, at most 4000"),
        (make_request(namePart="a\0"), "INVALID_ARGUMENT", "contains NUL"),
        (
            make_request(labels=[peloton_pb2.Label()] * (LABELS_MAX + 1)),
            "INVALID_ARGUMENT",
            "has 17 labels, at most 16",
        ),
        (make_request(states=[99]), "INVALID_ARGUMENT", "job state 99 is not known"),
        (make_request(types=[99]), "INVALID_ARGUMENT", "job type 99 is not known"),
    ],
)
async def test_what_is_refused(table: Any, request_: table_pb2.ListJobsRequest, code: str, text: str) -> None:
    """Each refusal names the rule and the numbers."""
    found, details = await expect_refusal(table.ListJobs(request_))

    assert (code, True) == (found.name, text in details), details


@pytest.mark.usefixtures("job")
async def test_one_job_has_the_row_that_it_has_in_the_table(table: Any) -> None:
    """The row of one job equals its row in the table; unknown jobs are not found."""
    row = await table.GetJob(table_pb2.GetJobRequest(id=ID))
    assert [row] == list((await table.ListJobs(table_pb2.ListJobsRequest())).jobs)
    unknown = peloton_pb2.JobID(value=new_job_id())

    assert (grpc.StatusCode.NOT_FOUND, f"job {unknown.value} not found") == (
        await expect_refusal(table.GetJob(table_pb2.GetJobRequest(id=unknown)))
    )


async def test_states_of_instances(table: Any, job: JobId) -> None:
    """The answer has one byte for each instance, from the requested one on."""
    whole = await table.GetInstanceStates(table_pb2.GetInstanceStatesRequest(id=ID))
    part = await table.GetInstanceStates(table_pb2.GetInstanceStatesRequest(id=ID, start=3, limit=5))

    assert (bytes([1] * 4), 4) == (whole.states, whole.instanceCount)
    assert (bytes([1]), 4) == (part.states, part.instanceCount)


async def test_states_of_unknown_jobs(table: Any) -> None:
    """Unknown jobs are not found; a limit above the bound is refused."""
    for value in (new_job_id(), "no-uuid"):
        request = table_pb2.GetInstanceStatesRequest(id=peloton_pb2.JobID(value=value))
        assert (grpc.StatusCode.NOT_FOUND, f"job {value} not found") == await expect_refusal(
            table.GetInstanceStates(request)
        )
    request = table_pb2.GetInstanceStatesRequest(id=ID, limit=TASKS_PER_JOB_MAX + 1)
    code, _ = await expect_refusal(table.GetInstanceStates(request))
    assert grpc.StatusCode.INVALID_ARGUMENT is code
