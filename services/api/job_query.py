"""Conversion of v0 queries to queries of storage."""

from __future__ import annotations

from itertools import chain

from google.protobuf.timestamp_pb2 import Timestamp

from peloton.api import convert
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.query import query_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.model.job import JOB_TERMINAL, JobState
from peloton.model.text import quote
from peloton.model.times import NS_PER_S
from services.storage.jobs.search import LIMIT_DEFAULT, MAX_LIMIT_DEFAULT, JobQuery, Order, PodQuery

ROWS_MAX = 10_000
"""Maximum number of rows that one query considers, whatever its ``maxLimit``."""

CONDITIONS_MAX = 16
"""Maximum number of labels, and of keywords, in one query."""
RECENT_NS = 7 * 24 * 3600 * NS_PER_S
"""Age up to which ended jobs are searched without a time range."""
CLOCK_SKEW_NS = 30 * NS_PER_S
TIME_MAX_NS = 2**62


def job_query(request: job_pb2.QueryRequest, now_ns: int) -> JobQuery:
    """Convert a job query. Raises InvalidArgument."""
    spec = request.spec
    labels = [(label.key, label.value) for label in spec.labels]
    check_no_nul(
        request.respoolID.value, spec.owner, spec.creator, spec.name, *spec.keywords, *chain.from_iterable(labels)
    )
    for conditions, noun in ((labels, "labels"), (spec.keywords, "keywords")):
        if len(conditions) > CONDITIONS_MAX:
            raise InvalidArgument(f"the query has {len(conditions)} {noun}, at most {CONDITIONS_MAX} are allowed")
    states = frozenset(job_state(number) for number in spec.jobStates)
    created = time_span(spec.creationTimeRange) if spec.HasField("creationTimeRange") else None
    completed = time_span(spec.completionTimeRange) if spec.HasField("completionTimeRange") else None
    if states & JOB_TERMINAL and created is None and completed is None:
        created = (now_ns - RECENT_NS, now_ns + CLOCK_SKEW_NS)
    return JobQuery(
        respool_id=request.respoolID.value,
        owner=spec.owner,
        creator=spec.creator,
        name=spec.name,
        labels=labels,
        keywords=list(spec.keywords),
        states=sorted(states),
        created=created,
        completed=completed,
        order=_order(spec.pagination),
        offset=spec.pagination.offset,
        limit=spec.pagination.limit or LIMIT_DEFAULT,
        max_limit=min(spec.pagination.maxLimit or MAX_LIMIT_DEFAULT, ROWS_MAX),
    )


def pod_query(spec: task_pb2.QuerySpec) -> PodQuery:
    """Convert a pod query. Raises InvalidArgument."""
    check_no_nul(*spec.hosts)
    return PodQuery(
        states=[state for number in spec.taskStates for state in convert.matching_pod_states(number)],
        names=list(spec.names),
        hosts=list(spec.hosts),
        order=_order(spec.pagination),
        offset=spec.pagination.offset,
        limit=spec.pagination.limit or LIMIT_DEFAULT,
    )


def check_no_nul(*texts: str) -> None:
    for text in texts:
        if "\0" in text:
            raise InvalidArgument(f"{quote(text)} contains NUL, which no stored text does")


def job_state(number: int) -> JobState:
    if number not in convert.JOB_STATES:
        raise InvalidArgument(f"job state {number} is not known")
    return convert.JOB_STATES[number]


def time_span(wire: peloton_pb2.TimeRange) -> tuple[int, int]:
    """Convert a range to unix nanoseconds, both ends inclusive, in whole seconds. Raises InvalidArgument."""
    begin = _ns(wire.min) if wire.HasField("min") else 0
    end = _ns(wire.max) if wire.HasField("max") else TIME_MAX_NS
    if end < begin:
        raise InvalidArgument("Incorrect timerange")
    return begin, end


def _ns(time: Timestamp) -> int:
    """Return whole seconds as nanoseconds, within the range of storage."""
    return max(0, min(time.seconds * NS_PER_S, TIME_MAX_NS))


def _order(pagination: query_pb2.PaginationSpec) -> list[Order]:
    """Convert the sort order; storage checks the fields."""
    return [(order.property.value, order.order == query_pb2.OrderBy.DESC) for order in pagination.orderBy]
