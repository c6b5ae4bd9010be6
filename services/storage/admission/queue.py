"""Transitions of pods into the queue and out of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.lifecycle.job import count_scheduled, is_ending
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import CONFIG_OUTDATED, GOAL_ENDED, state
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobRecord
from peloton.model.pod import PodState
from peloton.model.ranges import as_ranges
from services.storage.admission.snapshot import runs_of
from services.storage.engine import lock_job
from services.storage.jobs.rows import hold_job, read_job
from services.storage.jobs.steering import touch_job
from services.storage.pods.scope import INITIALIZED, Span, in_scope, within
from services.storage.pods.sql import GOAL_ALIVE
from services.storage.pods.writes import fire, instances_of
from services.storage.tables import POD

_WAITS = sa.and_(POD.c.state == INITIALIZED, GOAL_ALIVE)
_FINDING = (
    sa.select(POD.c.instance_id)
    .where(
        POD.c.job_id == sa.bindparam("of_job"),
        _WAITS,
        POD.c.instance_id >= sa.bindparam("first", type_=sa.BigInteger),
    )
    .order_by(POD.c.instance_id)
    .limit(sa.bindparam("at_most", type_=sa.Integer))
)


@cache
def _select_runs(dialect: str, is_gang: bool) -> sa.Select[Any]:
    """Build the statement that selects the pods of a span that wait for a place, in runs of equal ones. Pods that were
    queued before keep their place, a gang as a whole.
    """
    given: sa.ColumnElement[int] = sa.bindparam("place", type_=sa.BigInteger)
    place = sa.cast(given, sa.BigInteger) if is_gang else sa.case((POD.c.queue_seq > 0, POD.c.queue_seq), else_=given)
    mine = POD.c.job_id == sa.bindparam("s_job_id", type_=POD.c.job_id.type)
    return runs_of(mine, sa.and_(in_scope(Span.kind, dialect), _WAITS), place)


def join_ranges(items: Iterable[tuple[JobId, int, int]]) -> list[tuple[JobId, int, int]]:
    """Merge adjacent ``(job, start, count)`` ranges: one statement writes a range of unlike pods as fast as of like
    ones."""
    joined: list[tuple[JobId, int, int]] = []
    for job_id, start, count in sorted(items):
        last_id, first, length = joined[-1] if joined else ("", 0, 0)
        if (last_id, first + length) == (job_id, start):
            joined[-1] = (job_id, first, length + count)
        else:
            joined.append((job_id, start, count))
    return joined


def queueable(conn: sa.Connection, job_id: str, limit: int) -> list[tuple[int, int]]:
    job = read_job(conn, job_id)
    if job is None or limit <= 0 or job.state in JOB_TERMINAL or is_ending(job):
        return []
    allowed = _remaining_count(conn, job)
    waits = sa.and_(POD.c.job_id == sa.bindparam("of_job"), _WAITS)
    gang: list[tuple[int, int]] = []
    first = 0
    if job.gang_size > 1:
        in_gang = sa.select(sa.func.count()).select_from(POD).where(waits, POD.c.instance_id < job.gang_size)
        if conn.execute(in_gang, {"of_job": job_id}).scalar_one() == job.gang_size:
            if allowed is not None and allowed < job.gang_size:
                return []
            gang = [(0, job.gang_size)]
            limit -= job.gang_size
            allowed = None if allowed is None else allowed - job.gang_size
        first = job.gang_size
    limit = limit if allowed is None else min(limit, allowed)
    if limit <= 0:
        return gang
    found = conn.execute(_FINDING, {"of_job": job_id, "first": first, "at_most": limit})
    return gang + as_ranges(found.scalars())


def mark_pending(
    conn: sa.Connection, job_id: str, ranges: Sequence[tuple[int, int]], queue_seq: int, now_ns: int
) -> list[tuple[int, int, int]]:
    job = hold_job(conn, job_id)
    if job is None or job.state in JOB_TERMINAL:
        return []
    dialect = conn.dialect.name
    marked: dict[int, list[int]] = {}
    for start, count in ranges:
        span = Span(job_id, start, count)
        event, seq, is_gang = Event.ENQUEUE, queue_seq, False
        if job.gang_size > 1 and (start, count) == (0, job.gang_size):
            query = sa.select(sa.func.count(), sa.func.min(POD.c.queue_seq), sa.func.max(POD.c.queue_seq))
            here, first, last = conn.execute(query.where(within(conn, span), _WAITS)).one()
            if here < job.gang_size:
                continue
            event, seq, is_gang = Event.ENQUEUE_GANG, last if first else queue_seq, True
        for key, begin, length, *_ in conn.execute(
            _select_runs(dialect, is_gang), {**span.bind(dialect), "place": seq}
        ):
            marked.setdefault(key, []).extend(range(begin, begin + length))
        fire(conn, span, event, now_ns, queue_seq=seq)
    return [(seq, *span) for seq in sorted(marked) for span in as_ranges(sorted(marked[seq]))]


def _remaining_count(conn: sa.Connection, job: JobRecord) -> int | None:
    """Return how many more pods may be scheduled, or None without a limit."""
    maximum = job.sla.maximum_running_instances
    if maximum == 0:
        return None
    query = sa.select(POD.c.state, sa.func.count()).where(POD.c.job_id == job.job_id).group_by(POD.c.state)
    counts = {POD_STATES[state]: count for state, count in conn.execute(query)}
    return max(maximum - count_scheduled(counts), 0)


def refuse(conn: sa.Connection, job_id: str, span: tuple[int, int], message: str, now_ns: int) -> int:
    if lock_job(conn, job_id) is None:
        return 0
    refused = fire(conn, Span(job_id, *span), Event.REFUSE, now_ns, message=message)
    if refused:
        touch_job(conn, job_id, now_ns)
    return refused


def leave_queue(
    conn: sa.Connection, job_id: str, span: tuple[int, int], now_ns: int
) -> list[tuple[int, int, PodState]]:
    lock_job(conn, job_id)
    killed: list[tuple[int, int, PodState]] = []
    scope = Span(job_id, *span)
    for was in (PodState.PENDING, PodState.READY):
        leaving = instances_of(conn, scope, state(was) & (GOAL_ENDED | CONFIG_OUTDATED))
        killed += [(start, count, was) for start, count in as_ranges(leaving)]
    if killed:
        fire(conn, scope, Event.LEAVE_QUEUE, now_ns)
    return killed
