"""Requeueing of admitted pods whose placement failed: they release their resources and return to their old places.

READY and PENDING pods of the same shape are requeued or put in backoff with them, since their placement would fail too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from peloton.lifecycle.gang import REQUEUE_BACKOFF
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import CONFIG_OUTDATED, GOAL_ALIVE, NO_PREFERRED_HOST, QUEUED
from peloton.lifecycle.reason_text import requeue_text
from peloton.model.admission import EvictionResult
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobRecord
from peloton.model.pod import PodShape, ShapeRange
from peloton.model.ranges import as_ranges
from peloton.model.reason import RequeueReason
from peloton.model.times import NS_PER_S
from services.storage.admission.snapshot import runs_of
from services.storage.engine import lock_job
from services.storage.jobs.configs import shape_runs
from services.storage.jobs.rows import hold_job
from services.storage.pods.scope import ON_HOST_NUMBERS, READY, Chosen, Span, within
from services.storage.pods.sql import LAUNCHABLE, where
from services.storage.pods.writes import fire, forget_earlier_tries
from services.storage.ranges import CHUNK_PODS
from services.storage.tables import POD

POD_REQUEUE_REASON = "REASON_POD_REQUEUED"
_Shapes = dict[int, list[ShapeRange]]
"""Shapes of the instances of a job, by config version."""


class Hold(NamedTuple):
    vain_count: int
    until_ns: int
    ranges: list[tuple[int, int]]


def requeue_pods(
    conn: sa.Connection,
    job_id: JobId,
    instances: Sequence[tuple[int, int]],
    reason: RequeueReason,
    least_ns: int,
    now_ns: int,
    but: Sequence[int] = (),
) -> tuple[EvictionResult, list[Hold]]:
    result = EvictionResult(job_id)
    job = hold_job(conn, job_id)
    if job is None or job.state in JOB_TERMINAL:
        return result, []
    gone = _choose_requeued(conn, job, [i for start, count in instances for i in range(start, start + count)], but)
    if gone is None:
        return result, []

    def until(vain_count: int) -> int:
        return now_ns + max(REQUEUE_BACKOFF.delay_after_ns(vain_count, now_ns - gone.since_ns), least_ns)

    by_place: dict[int, list[int]] = {}
    chosen = within(conn, Chosen(job_id, sorted(gone.failure_counts)))
    for instance, queue_seq in conn.execute(sa.select(POD.c.instance_id, POD.c.queue_seq).where(chosen)):
        by_place.setdefault(queue_seq, []).append(instance)
    for vain_count in sorted({*gone.failure_counts.values()}):
        mine = sorted(i for i, count in gone.failure_counts.items() if count == vain_count)
        until_ns = until(vain_count)
        words = {
            "message": f"queued again, {tries_text(vain_count, until_ns - now_ns)}: {requeue_text(reason)}",
            "reason": POD_REQUEUE_REASON,
        }
        held = {"vain_count": vain_count, "held_until_ns": until_ns}
        fire(conn, Chosen(job_id, mine), Event.REQUEUE, now_ns, **held, **words)
        if vain_count > 1:
            forget_earlier_tries(conn, job_id, mine, POD_REQUEUE_REASON)
        result.in_backoff += [(start, count, until_ns) for start, count in as_ranges(mine)]
    for queue_seq, mine in sorted(by_place.items()):
        result.queued += [(queue_seq, start, count) for start, count in as_ranges(sorted(mine))]
    return result, [Hold(count, until(count), ranges) for count, ranges in sorted(gone.along.items())]


def tries_text(vain_count: int, delay_ns: int) -> str:
    tries = "1 attempt" if vain_count == 1 else f"{vain_count} attempts"
    return f"{tries} failed, the next in {-(-delay_ns // NS_PER_S)} s"


@dataclass(frozen=True, slots=True)
class _Requeued:
    since_ns: int  # when the first of them was admitted
    failure_counts: dict[int, int]  # READY instance -> failed attempts in a row, including this one
    along: dict[int, list[tuple[int, int]]]  # failed attempts -> ranges of PENDING pods that share the backoff


def _choose_requeued(conn: sa.Connection, job: JobRecord, named: Sequence[int], but: Sequence[int]) -> _Requeued | None:
    """Choose the pods to requeue; None when no named instance is READY. ``but``: instances to leave out."""
    first = job.gang_size if job.gang_size > 1 else 0
    not_in_gang = sa.and_(POD.c.job_id == job.job_id, POD.c.instance_id >= first, POD.c.instance_id.not_in(but))
    columns = (POD.c.instance_id, POD.c.config_version, POD.c.vain_count, POD.c.updated_ns)
    query = sa.select(*columns).where(within(conn, Chosen(job.job_id, named)), not_in_gang, LAUNCHABLE)
    chosen = conn.execute(query.order_by(POD.c.instance_id)).all()
    if not chosen:
        return None
    since_ns = min(pod.updated_ns for pod in chosen)
    shapes = _shapes(conn, job.job_id)
    launched = _read_launched_shapes(conn, not_in_gang, since_ns, shapes)
    failure_counts: dict[int, int] = {}
    together: dict[PodShape, int] = {}
    for pod in chosen:
        shape = _shape_of(shapes, pod.config_version, pod.instance_id)
        failure_counts[pod.instance_id] = pod.vain_count + 1
        if shape not in launched:
            together[shape] = max(together.get(shape, 0), pod.vain_count + 1)
    waiting = list(_read_waiting(conn, not_in_gang, shapes, together)) if together else []
    for shape, is_ready, vain_count, _ in waiting:
        together[shape] = max(together[shape], vain_count + is_ready)
    along: dict[int, list[tuple[int, int]]] = {}
    for shape, is_ready, _, (start, count) in waiting:
        if is_ready:  # pods beyond the bound are requeued when their own placement fails
            allowed = max(CHUNK_PODS - len(failure_counts), 0)
            failure_counts.update(dict.fromkeys(range(start, start + min(count, allowed)), together[shape]))
        else:
            along.setdefault(together[shape], []).append((start, count))
    return _Requeued(since_ns, failure_counts, along)


def _shapes(conn: sa.Connection, job_id: str) -> _Shapes:
    query = sa.select(sa.func.max(POD.c.instance_id)).where(POD.c.job_id == job_id)
    count = conn.execute(query).scalar_one() + 1
    versions = conn.execute(sa.select(POD.c.config_version).where(POD.c.job_id == job_id).distinct()).scalars().all()
    return {version: list(shape_runs(conn, job_id, version, 0, count)) for version in sorted(versions)}


def _shape_of(shapes: _Shapes, version: int, instance: int) -> PodShape:
    ranges = shapes[version]
    return ranges[bisect_right(ranges, instance, key=lambda one: one.start) - 1].shape


def _by_shape(shapes: _Shapes, version: int, start: int, count: int) -> Iterator[tuple[PodShape, tuple[int, int]]]:
    """Split a range of instances where the shape changes."""
    ranges, end = shapes[version], start + count
    for one in ranges[bisect_right(ranges, start, key=lambda one: one.start) - 1 :]:
        if one.start >= end:
            return
        begin = max(one.start, start)
        yield one.shape, (begin, min(one.start + one.count, end) - begin)


def _read_launched_shapes(
    conn: sa.Connection, not_in_gang: sa.ColumnElement[bool], since_ns: int, shapes: _Shapes
) -> set[PodShape]:
    """Return the shapes of pods launched since ``since_ns``, as far as the rows show it: placement works for them."""
    on_host = sa.and_(POD.c.state.in_(ON_HOST_NUMBERS), POD.c.updated_ns >= since_ns)
    runs = conn.execute(runs_of(not_in_gang, sa.or_(on_host, POD.c.started_ns >= since_ns), sa.literal(0)))
    return {shape for _, start, count, version, *_ in runs for shape, _ in _by_shape(shapes, version, start, count)}


def _read_waiting(
    conn: sa.Connection, not_in_gang: sa.ColumnElement[bool], shapes: _Shapes, wanted: dict[PodShape, int]
) -> Iterator[tuple[PodShape, bool, int, tuple[int, int]]]:
    """Yield ranges of PENDING and READY pods of these shapes as (shape, is READY, failed attempts, range).

    Pods that return to a preferred host are skipped, since resources are reserved for them there.
    """
    runs = runs_of(
        not_in_gang, where(QUEUED & GOAL_ALIVE & ~CONFIG_OUTDATED & NO_PREFERRED_HOST), POD.c.state, POD.c.vain_count
    )
    for state, first, length, version, _, vain_count in conn.execute(runs.order_by("start")):
        for shape, span in _by_shape(shapes, version, first, length):
            if shape in wanted:
                yield shape, state == READY, vain_count, span


def back_off(conn: sa.Connection, job_id: JobId, span: tuple[int, int], hold: Hold, now_ns: int) -> None:
    lock_job(conn, job_id)
    scope = Span(job_id, *span)
    fire(conn, scope, Event.BACK_OFF, now_ns, vain_count=hold.vain_count, held_until_ns=hold.until_ns)
