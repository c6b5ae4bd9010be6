"""What the parts of storage share: the database, the clock, and how pods are chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.lifecycle.backoff import NO_BACKOFF, Backoff
from peloton.model.pod import ENDING_GOALS, ON_HOST, TERMINAL, PodState
from services.storage.engine import Database
from services.storage.tables import POD

CHUNK_PODS = 5_000
"""Pods that one transaction of a job-wide change writes."""


def numbers(states: Iterable[PodState]) -> list[int]:
    return sorted(POD_STATE_NUMBERS[state] for state in states)


TERMINAL_NUMBERS = numbers(TERMINAL)
ON_HOST_NUMBERS = numbers(ON_HOST)
INITIALIZED = POD_STATE_NUMBERS[PodState.INITIALIZED]
PENDING = POD_STATE_NUMBERS[PodState.PENDING]
READY = POD_STATE_NUMBERS[PodState.READY]
KILLING = POD_STATE_NUMBERS[PodState.KILLING]
KILLED = POD_STATE_NUMBERS[PodState.KILLED]
ENDING_NUMBERS = numbers(ENDING_GOALS)


class Store:
    """Base of the parts of storage. ``batch_backoff``: how long batch pods that failed wait."""

    def __init__(self, db: Database, clock_ns: Callable[[], int], batch_backoff: Backoff = NO_BACKOFF) -> None:
        self.db = db
        self.clock_ns = clock_ns
        self.batch_backoff = batch_backoff


# -- selecting pods ------------------------------------------------------------------------------------------------


def in_range(job_id: str, start: int, count: int) -> sa.ColumnElement[bool]:
    """Instances ``start .. start+count-1`` of a job."""
    return sa.and_(POD.c.job_id == job_id, POD.c.instance_id >= start, POD.c.instance_id < start + count)


def among(conn: sa.Connection, job_id: str, instance_ids: Sequence[int]) -> sa.ColumnElement[bool]:
    """These instances of a job, sent as one parameter."""
    if conn.dialect.name == "sqlite":
        ids = sa.literal(f"[{','.join(map(str, instance_ids))}]")
        listed: sa.ColumnElement[bool] = POD.c.instance_id.in_(
            sa.select(sa.func.json_each(ids).table_valued("value").c.value)
        )
    else:
        listed = POD.c.instance_id == sa.any_(sa.literal(list(instance_ids), postgresql.ARRAY(sa.BigInteger())))
    return sa.and_(POD.c.job_id == job_id, listed)


def chunks(ranges: Iterable[tuple[int, int]], size: int = CHUNK_PODS) -> Iterator[tuple[int, int]]:
    """``(start, count)`` ranges cut to at most ``size``."""
    for start, count in ranges:
        for begin in range(start, start + count, size):
            yield begin, min(size, start + count - begin)


def as_ranges(instance_ids: Iterable[int]) -> list[tuple[int, int]]:
    """Rising instance ids as ``(start, count)``."""
    ranges: list[tuple[int, int]] = []
    for instance_id in instance_ids:
        if ranges and ranges[-1][0] + ranges[-1][1] == instance_id:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((instance_id, 1))
    return ranges


def pod_spans(conn: sa.Connection, job_id: str) -> list[tuple[int, int]]:
    """``(start, count)`` of at most CHUNK_PODS that cover all pods of a job; a service that shrinks has pods beyond its
    count for a while."""
    last = conn.execute(sa.select(sa.func.max(POD.c.instance_id)).where(POD.c.job_id == job_id)).scalar()
    return [] if last is None else list(chunks([(0, last + 1)]))
