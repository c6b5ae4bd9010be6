"""Reads of many jobs at once: jobs by name, runs of pods with their events, and updates with theirs.

Each method is one transaction of one or two queries that returns a bounded page, whatever the number of jobs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS
from peloton.model.ids import JobId, parse_job_id
from peloton.model.job import JobRecord, JobState, JobType
from peloton.model.update import UpdateSpec, UpdateState, UpdateType
from services.storage.codec import job_record
from services.storage.engine import Repository, key_table, key_values, reading
from services.storage.tables import JOB, JOB_NAME, POD, POD_EVENT, UPDATE, UPDATE_EVENT

Spans = Sequence[tuple[int, int]]
"""Ranges of instances, first and last."""
_EXISTS = JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED]


class PodRow(NamedTuple):
    """Current run of an instance; ``state`` and ``goal`` are the numbers of the stored states."""

    job_id: JobId
    instance_id: int
    run_id: int
    prev_run_id: int
    state: int
    host: str
    agent_id: str
    config_version: int
    goal: int


class EventRow(NamedTuple):
    """Event of a run."""

    instance_id: int
    run_id: int
    prev_run_id: int
    state: int
    host: str
    agent_id: str
    config_version: int
    message: str
    time_ns: int


Columns = Sequence[Any]
"""Columns of an EventRow: hundreds of thousands of events are read at a time."""
Runs = Mapping[tuple[JobId, int], Sequence[Sequence[Columns]]]
"""(job, instance) -> its runs by rising number, each as its events, oldest first."""
RUNS_APART_MAX = 16
"""Largest difference between the runs of pods whose events are read by one scan, which also reads runs in between."""


@dataclass(frozen=True, slots=True)
class UpdateRow:
    update_id: str
    job_id: JobId
    type: UpdateType
    state: UpdateState
    spec: UpdateSpec
    opaque_data: str
    config_version: int
    prev_config_version: int
    added: Spans
    updated: Spans
    removed: Spans


class UpdateEventRow(NamedTuple):
    """Event of an update, or of its instances in ``spans``."""

    time_ns: int
    state: UpdateState
    spans: Spans


class BulkReads(Repository):
    @reading
    def jobs_named(
        self, conn: sa.Connection, names: Sequence[str], pools: Collection[str] | None = None
    ) -> list[JobRecord]:
        """Return the newest service in these pools (None: in any) that has or had each of the names, without deleted
        ones, by name."""
        is_service = sa.and_(JOB.c.job_id == JOB_NAME.c.job_id, JOB.c.type == JOB_TYPE_NUMBERS[JobType.SERVICE])
        query = sa.select(*JOB.c, JOB_NAME.c.name.label("found_by")).join_from(JOB_NAME, JOB, is_service, isouter=True)
        query = query.where(JOB_NAME.c.name.in_(names)).order_by(JOB_NAME.c.name, JOB_NAME.c.updated_ns.desc())
        newest: dict[str, JobRecord | None] = {}
        rows: list[Any] = list(conn.execute(query))
        for row in rows:
            is_in = pools is None or row.job_id is None or row.respool_id in pools
            if is_in and row.found_by not in newest:
                newest[row.found_by] = None if row.job_id is None else job_record(row)
        return [job for job in newest.values() if job is not None and job.state is not JobState.DELETED]

    @reading
    def pods(
        self, conn: sa.Connection, job_ids: Sequence[JobId], after: int, limit: int, runs: int = 0
    ) -> tuple[list[PodRow], Runs]:
        """Return pods of these jobs by job and instance, and their newest ``runs`` that have events.

        ``after`` is an instance of the only job, or -1. Pods beyond the count of their job, which a shrinking service
        has for a while, are left out.
        """
        rows = _fetch(conn, _pods_after(job_ids, after).limit(limit))
        ids = {raw: parse_job_id(str(raw)) for raw in {row[0] for row in rows}}
        page = [PodRow(ids[raw], *rest) for raw, *rest in rows]
        if not (page and runs):
            return page, {}
        current = {(pod.job_id, pod.instance_id): pod.run_id for pod in page}
        found: dict[tuple[JobId, int], list[Sequence[Columns]]] = {}
        for job_id, events in _read_events(conn, page, runs):
            for (instance_id, run_id), mine in groupby(events, itemgetter(0, 1)):
                key = job_id, instance_id
                if 0 <= current.get(key, -1) - run_id < runs:
                    found.setdefault(key, []).append(list(mine))
        return page, found

    @reading
    def updates(self, conn: sa.Connection, job_ids: Sequence[JobId]) -> list[UpdateRow]:
        """Return the stored updates of existing jobs among these, by job, newest first in each."""
        query = sa.select(*(UPDATE.c[name] for name in UpdateRow.__dataclass_fields__))
        query = query.join(JOB, JOB.c.job_id == UPDATE.c.job_id).where(UPDATE.c.job_id.in_(job_ids), _EXISTS)
        query = query.order_by(UPDATE.c.job_id, UPDATE.c.created_ns.desc(), UPDATE.c.config_version.desc())
        return [_update_row(*row) for row in conn.execute(query)]

    @reading
    def update_events(
        self, conn: sa.Connection, update_ids: Sequence[str], with_instances: bool
    ) -> dict[str, list[UpdateEventRow]]:
        """Return the events of updates, oldest first, with or without those of instances."""
        query = sa.select(
            UPDATE_EVENT.c.update_id, UPDATE_EVENT.c.time_ns, UPDATE_EVENT.c.state, UPDATE_EVENT.c.instances
        ).where(UPDATE_EVENT.c.update_id.in_(update_ids))
        if not with_instances:
            query = query.where(UPDATE_EVENT.c.instances == "")
        found: dict[str, list[UpdateEventRow]] = {}
        for update_id, time_ns, state, text in conn.execute(query.order_by(*UPDATE_EVENT.primary_key)):
            event = UpdateEventRow(time_ns, UpdateState(state), _spans(text))
            found.setdefault(update_id, []).append(event)
        return found


def _fetch(conn: sa.Connection, query: sa.Select[Any], values: Mapping[str, Any] | None = None) -> list[Columns]:
    """Return rows as the driver has them, in half of the time; job ids are of its own type then."""
    cursor: Any = conn.execute(query, values or {}).cursor
    return list(cursor.fetchall())


def _raw(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    return sa.type_coerce(column, sa.types.NullType()).label("raw_id")


def _pods_after(job_ids: Sequence[JobId], after: int) -> sa.Select[Any]:
    in_count = sa.and_(JOB.c.job_id == POD.c.job_id, POD.c.instance_id < JOB.c.instance_count, _EXISTS)
    columns = [_raw(POD.c.job_id), *(POD.c[name] for name in PodRow._fields[1:])]
    query = sa.select(*columns).join(JOB, in_count)
    if len(job_ids) == 1:
        query = query.where(POD.c.job_id == job_ids[0], POD.c.instance_id > after)
    else:
        query = query.where(POD.c.job_id.in_(job_ids))
    return query.order_by(POD.c.job_id, POD.c.instance_id)


def _read_events(conn: sa.Connection, pods: Sequence[PodRow], runs: int) -> Iterator[tuple[JobId, Iterable[Columns]]]:
    """Yield each job with events of its pods, by instance and time: those of the newest runs, and perhaps of others."""
    columns, key = [POD_EVENT.c[name] for name in EventRow._fields], POD_EVENT.c
    first, last = min(pod.run_id for pod in pods), max(pod.run_id for pod in pods)
    if pods[0].job_id == pods[-1].job_id and last - first <= RUNS_APART_MAX:
        span = key.instance_id.between(pods[0].instance_id, pods[-1].instance_id)
        query = sa.select(*columns).where(key.job_id == pods[0].job_id, span)
        query = query.where(key.run_id.between(first - runs + 1, last))
        yield pods[0].job_id, _fetch(conn, query.order_by(key.instance_id, key.revision))
        return
    keys = key_table(conn.dialect.name)
    pod = sa.and_(POD.c.job_id == keys.c.job_id, POD.c.instance_id == keys.c.instance_id)
    newest = key.run_id.between(POD.c.run_id - runs + 1, POD.c.run_id)
    event = sa.and_(key.job_id == POD.c.job_id, key.instance_id == POD.c.instance_id, newest)
    query = sa.select(_raw(key.job_id), *columns).select_from(keys).join(POD, pod).join(POD_EVENT, event)
    values = key_values(conn.dialect.name, [(pod.job_id, pod.instance_id) for pod in pods])
    rows = _fetch(conn, query.order_by(*POD_EVENT.primary_key), values)
    for raw, events in groupby(rows, itemgetter(0)):
        yield parse_job_id(str(raw)), (row[1:] for row in events)


def _update_row(update_id: str, job_id: str, type: str, state: str, spec: str, *rest: Any) -> UpdateRow:
    head = update_id, JobId(job_id), UpdateType(type), UpdateState(state), UpdateSpec(**json.loads(spec))
    return UpdateRow(*head, *rest[:-3], *map(_spans, rest[-3:]))


def _spans(text: str) -> Spans:
    pieces = (piece.partition("-") for piece in text.split(",") if piece)
    return [(int(first), int(last or first)) for first, _, last in pieces]
