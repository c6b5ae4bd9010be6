"""Conversion of v0 queries to queries of storage: bounds, time ranges, and the default of seven days."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.query import query_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.api.job_query import CONDITIONS_MAX, ROWS_MAX, job_query, pod_query
from services.storage.jobs.search import JobQuery, PodQuery

S = 10**9
DAY = 24 * 3600 * S
NOW = 1_700_000_000 * S
END = 2**62


def query(spec: job_pb2.QuerySpec) -> JobQuery:
    return job_query(job_pb2.QueryRequest(respoolID=peloton_pb2.ResourcePoolID(value="pool"), spec=spec), NOW)


def times(begin: int | None, end: int | None) -> peloton_pb2.TimeRange:
    return peloton_pb2.TimeRange(
        min=None if begin is None else Timestamp(seconds=begin, nanos=7),
        max=None if end is None else Timestamp(seconds=end, nanos=7),
    )


def test_job_query() -> None:
    """Every field of a job query is converted."""
    order = query_pb2.OrderBy(order=query_pb2.OrderBy.DESC, property=query_pb2.PropertyPath(value="name"))
    spec = job_pb2.QuerySpec(
        pagination=query_pb2.PaginationSpec(offset=3, limit=7, maxLimit=50, orderBy=[order]),
        labels=[peloton_pb2.Label(key="tier", value="gold")],
        keywords=["spark"],
        jobStates=[job_pb2.RUNNING, job_pb2.PENDING],
        owner="maps",
        name="tiles",
        creationTimeRange=times(5, 6),
    )

    assert query(spec) == JobQuery(
        labels=[("tier", "gold")],
        keywords=["spark"],
        states=[JobState.PENDING, JobState.RUNNING],
        respool_id="pool",
        owner="maps",
        name="tiles",
        created=(5 * S, 6 * S),
        order=[("name", True)],
        offset=3,
        limit=7,
        max_limit=50,
    )


TIMES: dict[str, tuple[job_pb2.QuerySpec, tuple[int, int] | None]] = {
    "active jobs of all times": (job_pb2.QuerySpec(jobStates=[job_pb2.RUNNING]), None),
    "ended jobs of seven days": (
        job_pb2.QuerySpec(jobStates=[job_pb2.RUNNING, job_pb2.FAILED]),
        (NOW - 7 * DAY, NOW + 30 * S),
    ),
    "ended jobs of a given time": (
        job_pb2.QuerySpec(jobStates=[job_pb2.FAILED], creationTimeRange=times(1, 2)),
        (1 * S, 2 * S),
    ),
    "ended jobs by their end": (
        job_pb2.QuerySpec(jobStates=[job_pb2.FAILED], completionTimeRange=times(1, 2)),
        None,
    ),
    "open begin": (job_pb2.QuerySpec(creationTimeRange=times(None, 2)), (0, 2 * S)),
    "open end": (job_pb2.QuerySpec(creationTimeRange=times(1, None)), (1 * S, END)),
    "beyond all clocks": (job_pb2.QuerySpec(creationTimeRange=times(-5, 2**62)), (0, END)),
    "one second": (job_pb2.QuerySpec(creationTimeRange=times(2, 2)), (2 * S, 2 * S)),
}


@pytest.mark.parametrize("name", TIMES)
def test_creation_time(name: str) -> None:
    """Ranges are truncated to seconds. The default range of ended jobs is the last seven days."""
    spec, created = TIMES[name]

    assert query(spec).created == created


@pytest.mark.parametrize("field", ["creationTimeRange", "completionTimeRange"])
def test_wrong_range(field: str) -> None:
    """A range that ends before it begins is refused."""
    spec = job_pb2.QuerySpec()
    getattr(spec, field).CopyFrom(times(2, 1))
    with pytest.raises(InvalidArgument, match=r"^Incorrect timerange$"):
        query(spec)


def test_bounds() -> None:
    """A query returns 10 of the first 100 rows by default; ROWS_MAX limits every query."""
    plain = query(job_pb2.QuerySpec())
    greedy = query(job_pb2.QuerySpec(pagination=query_pb2.PaginationSpec(maxLimit=2**32 - 1)))

    assert (plain.limit, plain.max_limit, greedy.max_limit) == (10, 100, ROWS_MAX)


@pytest.mark.parametrize(
    ("spec", "noun"),
    [
        (job_pb2.QuerySpec(labels=[peloton_pb2.Label()] * (CONDITIONS_MAX + 1)), "labels"),
        (job_pb2.QuerySpec(keywords=["word"] * (CONDITIONS_MAX + 1)), "keywords"),
    ],
)
def test_too_many_conditions(spec: job_pb2.QuerySpec, noun: str) -> None:
    """The error names the number of conditions and the limit."""
    with pytest.raises(InvalidArgument, match=f"^the query has 17 {noun}, at most 16 are allowed$"):
        query(spec)


def test_unknown_states() -> None:
    """An unknown state is refused, and the error has its number."""
    unknown: Any = 77
    with pytest.raises(InvalidArgument, match=r"^job state 77 is not known$"):
        query(job_pb2.QuerySpec(jobStates=[unknown]))
    with pytest.raises(InvalidArgument, match=r"^task state 77 is not known$"):
        pod_query(task_pb2.QuerySpec(taskStates=[unknown]))


LABEL_WITH_NUL = job_pb2.QuerySpec(labels=[peloton_pb2.Label(key="tier", value="a\0")])


@pytest.mark.parametrize(
    "spec", [job_pb2.QuerySpec(name="a\0"), job_pb2.QuerySpec(keywords=["b", "a\0"]), LABEL_WITH_NUL]
)
def test_nul(spec: job_pb2.QuerySpec) -> None:
    """Texts with NUL are refused, since databases cannot store them."""
    with pytest.raises(InvalidArgument, match="contains NUL"):
        query(spec)


def test_pod_query() -> None:
    """Every field of a task query is converted."""
    order = query_pb2.OrderBy(order=query_pb2.OrderBy.ASC, property=query_pb2.PropertyPath(value="host"))
    spec = task_pb2.QuerySpec(
        pagination=query_pb2.PaginationSpec(offset=3, orderBy=[order]),
        taskStates=[task_pb2.RUNNING],
        names=["shard"],
        hosts=["h1"],
    )

    assert pod_query(spec) == PodQuery(
        states=[PodState.RUNNING], names=["shard"], hosts=["h1"], order=[("host", False)], offset=3, limit=10
    )
