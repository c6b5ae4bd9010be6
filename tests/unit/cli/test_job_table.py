"""``peloton job table``: filters become a request, and short pages are continued."""

from __future__ import annotations

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.table import table_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"


def a_row(job_id: str = JOB) -> table_pb2.JobRow:
    row = table_pb2.JobRow(
        id=peloton_pb2.JobID(value=job_id), name="etl", poolPath="/dev", owner="maps", state=job_pb2.RUNNING
    )
    row.instanceCount, row.taskStats["RUNNING"], row.creationTime = 3, 2, "2026-01-31T08:00:00.5Z"
    return row


def test_filters(run: Run, api: FakeApi) -> None:
    """Each option is a condition of the request."""
    api.answers["job_table.ListJobs"] = [table_pb2.ListJobsResponse(jobs=[a_row()])]
    times = ("--since", "2026-01-31T00:00:00Z", "--until", "2026-02-01T00:00:00Z")
    names = ("--name", "t", "--prefix", "e", "--owner", "maps", "-l", "tier=gold")
    result = run("job", "table", "-r", "/dev", "-s", "running", "-t", "batch", *names, *times, "-n", "7")

    header, row = result.stdout.splitlines()
    assert ["ID", "Name", "Pool", "Owner", "Type", "State"] == header.split()[:6]
    assert [JOB, "etl", "/dev", "maps", "BATCH", "RUNNING", "2026-01-31T08:00:00Z", "3", "2", "0"] == row.split()
    expected = table_pb2.ListJobsRequest(pageSize=7)
    wanted = expected.filter
    wanted.pool, wanted.owner, wanted.namePart, wanted.namePrefix = "/dev", "maps", "t", "e"
    wanted.states.append(job_pb2.RUNNING)
    wanted.types.append(job_pb2.BATCH)
    wanted.labels.add(key="tier", value="gold")
    wanted.creationTimeRange.min.FromJsonString("2026-01-31T00:00:00Z")
    wanted.creationTimeRange.max.FromJsonString("2026-02-01T00:00:00Z")
    assert [expected] == api.requests("job_table.ListJobs")


def test_pages_that_are_cut_are_gone_on_from(run: Run, api: FakeApi) -> None:
    """The command reads pages until it has the requested number of rows or no more exist; the count is printed once."""
    count = table_pb2.JobCount(count=10_000, more=True)
    api.answers["job_table.ListJobs"] = [
        table_pb2.ListJobsResponse(nextPageToken="a", cut=True, count=count),
        table_pb2.ListJobsResponse(jobs=[a_row()], nextPageToken="b"),
    ]
    result = run("job", "table", "-n", "1", "--count", "--token", "z", "--oldest-first")

    requests = api.requests("job_table.ListJobs")
    assert [("z", True, True), ("a", False, True)] == [(r.pageToken, r.count, r.oldestFirst) for r in requests]
    assert "At least 10,000 match.\nThese are the first 1: --token b continues\n" == result.stderr


def test_nothing_matches(run: Run, api: FakeApi) -> None:
    """The command says that no jobs match, and exits with 0."""
    api.answers["job_table.ListJobs"] = [table_pb2.ListJobsResponse()]
    result = run("job", "table")

    assert (0, "No jobs found.\n", "") == (result.exit_code, result.stdout, result.stderr)
