"""The table of all jobs, a page at a time, in an order that new jobs do not shift.

A page goes on from a position, the creation time and the id of a job, and never counts what came before it. One
condition drives the walk through an index, the narrowest by a bounded count; the others are asked of the rows that it
passes, of which a call looks at no more than SCAN_ROWS_MAX. A page that ends there says so; the next one goes on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS
from peloton.model.job import JobRecord, JobState, JobType
from services.storage.codec import job_record
from services.storage.engine import Database
from services.storage.tables import JOB, NO_BATCH, OWNER_INDEXED_MAX, SHORT_OWNER

SCAN_ROWS_MAX = 20_000
"""Rows of an index that one page, or one count, looks at."""
COUNT_MAX = 10_000
"""Matching jobs that are counted; there may be more."""
DRIVE_VALUES_MAX = 32
"""Pools, or states, whose indexes are walked side by side; more of them are asked of each row."""

Condition = sa.ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class JobFilter:
    """All conditions must hold; an empty one always does. ``pools``: ids, None for any. ``created``: unix nanoseconds,
    both ends inclusive."""

    pools: frozenset[str] | None = None
    owner: str = ""
    states: frozenset[JobState] = frozenset()
    types: frozenset[JobType] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    name_part: str = ""
    name_prefix: str = ""
    created: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """A page holds what comes after this job in its order, or before when it goes ``back``; with ``is_included`` also
    the job itself. Jobs of one moment are in the order of their ids."""

    created_ns: int
    job_id: str
    back: bool = False
    is_included: bool = False


@dataclass(frozen=True, slots=True)
class JobPage:
    """``next`` and ``previous`` are None where the table ends. ``is_cut``: it is short because SCAN_ROWS_MAX rows have
    been looked at; the page beyond goes on."""

    jobs: list[JobRecord]
    next: Position | None
    previous: Position | None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class JobCount:
    count: int
    is_exact: bool  # False: there are at least so many


class JobTable:
    def __init__(self, db: Database) -> None:
        self._db = db

    def page(self, wanted: JobFilter, size: int, at: Position | None = None, oldest_first: bool = False) -> JobPage:
        return self._db.read(partial(_page, wanted=wanted, size=size, at=at, oldest_first=oldest_first))

    def count(self, wanted: JobFilter) -> JobCount:
        """Of at most COUNT_MAX jobs, and SCAN_ROWS_MAX rows."""
        return self._db.read(partial(_count, wanted=wanted))


# -- the walk ------------------------------------------------------------------------------------------------------

_Found = tuple[int, str]  # when a job was created, and its id


@dataclass(frozen=True)
class _Walk:
    """The way through the table: ``streams`` of conditions, each a range of one index, walked side by side; and what is
    asked of each row on the way."""

    falls: bool
    streams: Sequence[Sequence[Condition]]
    asked: Sequence[Condition]
    scan_rows: int  # of each stream

    def order(self) -> list[Any]:
        columns: tuple[Any, ...] = (JOB.c.created_ns, JOB.c.job_id)
        return [column.desc() if self.falls else column for column in columns]

    def beyond(self, at: Position) -> list[Condition]:
        """The first of these lets an index begin there."""
        created_ns, job_id = JOB.c.created_ns, JOB.c.job_id
        if self.falls:
            tie = job_id <= at.job_id if at.is_included else job_id < at.job_id
            return [created_ns <= at.created_ns, sa.or_(created_ns < at.created_ns, tie)]
        tie = job_id >= at.job_id if at.is_included else job_id > at.job_id
        return [created_ns >= at.created_ns, sa.or_(created_ns > at.created_ns, tie)]

    def up_to(self, end: _Found) -> list[Condition]:
        """Everything before a row in this order, and the row."""
        return replace(self, falls=not self.falls).beyond(Position(*end, is_included=True))


def _page(conn: sa.Connection, wanted: JobFilter, size: int, at: Position | None, oldest_first: bool) -> JobPage:
    back = at is not None and at.back
    walk = _walk(conn, wanted, falls=oldest_first == back)
    found: list[_Found] = []
    ends: list[_Found] = []
    for stream in walk.streams:
        here = [*stream, *(walk.beyond(at) if at is not None else [])]
        matching, end = _stream_page(conn, walk, here, size)
        found += matching
        ends += [end] if end is not None else []
    found.sort(reverse=walk.falls)
    end = (max(ends) if walk.falls else min(ends)) if ends else None
    if end is not None:  # beyond it the other streams have not been looked at
        found = [one for one in found if (one >= end if walk.falls else one <= end)]
    is_full = len(found) > size
    shown = found[:size]
    beyond = shown[-1] if is_full and shown else end
    onward = None if beyond is None else Position(*beyond, back=back)
    backward: Position | None = None
    if at is not None:
        backward = Position(*shown[0], back=not back) if shown else replace(at, back=not back, is_included=True)
    if back:
        shown.reverse()
    previous, following = (onward, backward) if back else (backward, onward)
    return JobPage(_read(conn, shown), following, previous, is_cut=end is not None and len(shown) < size)


def _stream_page(
    conn: sa.Connection, walk: _Walk, here: Sequence[Condition], size: int
) -> tuple[list[_Found], _Found | None]:
    """The first ``size + 1`` that match, and how far that has looked; None: to the end."""
    within, end = here, None
    if walk.asked:
        end = _row_at(conn, walk, here, walk.scan_rows - 1)
        within = [*here, *(walk.up_to(end) if end is not None else [])]
    query = sa.select(JOB.c.created_ns, JOB.c.job_id).where(*within, *walk.asked, _EXISTS)
    rows = conn.execute(query.order_by(*walk.order()).limit(size + 1)).all()
    matching = [(row[0], row[1]) for row in rows]
    return matching, matching[-1] if len(matching) > size else end


def _row_at(conn: sa.Connection, walk: _Walk, here: Sequence[Condition], offset: int) -> _Found | None:
    """The row that comes so many after the first; an index alone answers."""
    query = sa.select(JOB.c.created_ns, JOB.c.job_id).where(*here).order_by(*walk.order()).offset(offset).limit(1)
    row = conn.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])


def _read(conn: sa.Connection, found: Sequence[_Found]) -> list[JobRecord]:
    ids = [job_id for _, job_id in found]
    jobs = (job_record(row) for row in conn.execute(sa.select(JOB).where(JOB.c.job_id.in_(ids))))
    by_id = {job.job_id: job for job in jobs}
    return [by_id[job_id] for job_id in ids]  # type: ignore[index]


def _count(conn: sa.Connection, wanted: JobFilter) -> JobCount:
    walk = _walk(conn, wanted, falls=True)
    count, is_exact = 0, True
    for stream in walk.streams:
        within = [*stream]
        if walk.asked and (end := _row_at(conn, walk, stream, walk.scan_rows - 1)) is not None:
            within += walk.up_to(end)
            is_exact = False
        count += _count_up_to(conn, [*within, *walk.asked, _EXISTS], COUNT_MAX + 1)
        if count > COUNT_MAX:
            return JobCount(COUNT_MAX, is_exact=False)
    return JobCount(count, is_exact)


def _count_up_to(conn: sa.Connection, conditions: Sequence[Condition], most: int) -> int:
    few = sa.select(sa.literal(1)).where(*conditions).limit(most).subquery()
    return int(conn.execute(sa.select(sa.func.count()).select_from(few)).scalar_one())


# -- conditions ----------------------------------------------------------------------------------------------------

_EXISTS = JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED]
# As the partial indexes have them.
_IS_NO_BATCH: Condition = sa.literal_column(NO_BATCH, sa.Boolean)
_IS_SHORT: Condition = sa.literal_column(SHORT_OWNER, sa.Boolean)


def _walk(conn: sa.Connection, wanted: JobFilter, falls: bool) -> _Walk:
    find = sa.func.instr if conn.dialect.name == "sqlite" else sa.func.strpos
    span: list[Condition] = [JOB.c.created_ns.between(*wanted.created)] if wanted.created is not None else []
    narrow = _drivers(wanted)
    driver = _narrowest(conn, narrow, span)
    asked = [sa.or_(sa.false(), *each) for each in narrow if each is not driver] + _never_driving(wanted)
    asked += [find(JOB.c.labels, json.dumps(label, ensure_ascii=False)) > 0 for label in wanted.labels]
    if prefix := wanted.name_prefix:
        asked.append(sa.func.substr(JOB.c.name, 1, len(prefix)) == prefix)
    if wanted.name_part:
        asked.append(find(JOB.c.name, wanted.name_part) > 0)
    streams = [[*span, one] for one in driver] if driver is not None else [span]
    return _Walk(falls, streams, asked, max(SCAN_ROWS_MAX // max(len(streams), 1), 1))


def _drivers(wanted: JobFilter) -> list[list[Condition]]:
    """Of each condition that has an index its alternatives, of which one must hold."""
    found: list[list[Condition]] = []
    if wanted.pools is not None and len(wanted.pools) <= DRIVE_VALUES_MAX:
        found.append([JOB.c.respool_id == pool for pool in sorted(wanted.pools)])
    if wanted.states:
        found.append([JOB.c.state == JOB_STATE_NUMBERS[state] for state in sorted(wanted.states)])
    if wanted.types and JobType.BATCH not in wanted.types:
        numbers = [JOB_TYPE_NUMBERS[type_] for type_ in sorted(wanted.types)]
        found.append([sa.and_(JOB.c.type == number, _IS_NO_BATCH) for number in numbers])
    if 0 < len(wanted.owner) <= OWNER_INDEXED_MAX:
        found.append([sa.and_(JOB.c.owning_team == wanted.owner, _IS_SHORT)])
    return found


def _never_driving(wanted: JobFilter) -> list[Condition]:
    conditions: list[Condition] = []
    if wanted.pools is not None and len(wanted.pools) > DRIVE_VALUES_MAX:
        conditions.append(JOB.c.respool_id.in_(sorted(wanted.pools)))
    if len(wanted.owner) > OWNER_INDEXED_MAX:
        conditions.append(JOB.c.owning_team == wanted.owner)
    if JobType.BATCH in wanted.types:
        conditions.append(JOB.c.type.in_([JOB_TYPE_NUMBERS[type_] for type_ in sorted(wanted.types)]))
    return conditions


def _narrowest(
    conn: sa.Connection, drivers: Sequence[list[Condition]], span: Sequence[Condition]
) -> list[Condition] | None:
    """The one that the fewest rows meet, counted up to SCAN_ROWS_MAX; the first of equals, None of none."""
    if len(drivers) < 2:
        return drivers[0] if drivers else None

    def rows(driver: list[Condition]) -> int:
        count = 0
        for one in driver:
            count += _count_up_to(conn, [one, *span], SCAN_ROWS_MAX - count)
            if count >= SCAN_ROWS_MAX:
                break
        return count

    return min(drivers, key=rows)
