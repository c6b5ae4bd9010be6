"""Ranges ``(start, count)`` of a job's instances, and the number of pods written in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import sqlalchemy as sa

from services.storage.tables import POD

CHUNK_PODS = 5_000
"""Number of pods that one transaction of a job-wide change writes."""


def chunks(ranges: Iterable[tuple[int, int]], size: int = CHUNK_PODS) -> Iterator[tuple[int, int]]:
    """Split ranges into pieces of at most ``size``."""
    for start, count in ranges:
        for begin in range(start, start + count, size):
            yield begin, min(size, start + count - begin)


def with_gang(size: int, ranges: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Extend ranges that overlap a gang of ``size`` instances to the whole gang."""
    if size == 1 or all(start >= size for start, _ in ranges):
        return ranges
    rest = [(max(start, size), start + count - max(start, size)) for start, count in ranges]
    return [(0, size), *((start, count) for start, count in rest if count > 0)]


def pod_spans(conn: sa.Connection, job_id: str) -> list[tuple[int, int]]:
    """Return ranges of at most CHUNK_PODS that cover all pods of a job.

    A shrinking service has pods beyond its count for a while.
    """
    last = conn.execute(sa.select(sa.func.max(POD.c.instance_id)).where(POD.c.job_id == job_id)).scalar()
    return [] if last is None else list(chunks([(0, last + 1)]))
