"""Paged listing of all jobs in an order that new jobs do not shift.

A page continues from a position, the creation time and id of a job, and never counts the rows before it. One condition
selects the index to scan: the narrowest by a bounded count. The others are filters on the scanned rows, at most
SCAN_ROWS_MAX per call. A page that stops at that limit says so, and the next page continues; its position names no job
that does not match. ``search.py`` chooses rows in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS
from peloton.model.job import JobRecord, JobState, JobType
from services.storage.codec import job_record
from services.storage.engine import Repository
from services.storage.jobs.tables import shorten_label
from services.storage.tables import JOB, JOB_LABEL, NO_BATCH, OWNER_INDEXED_MAX, SHORT_OWNER

SCAN_ROWS_MAX = 20_000
"""Maximum number of index rows scanned for one page or one count."""
COUNT_MAX = 10_000
"""Maximum number of matching jobs counted; there may be more."""
DRIVE_VALUES_MAX = 32
"""Maximum number of pools or states whose indexes are scanned side by side; larger sets become row filters."""
PAGE_S = 5.0
"""Timeout of a page or a count."""

Condition = sa.ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Conditions that must all hold; an empty one always does.

    ``pools`` are ids, None for any. ``created`` is in unix nanoseconds, both ends inclusive.
    """

    pools: frozenset[str] | None = None
    owner: str = ""
    creator: str = ""
    states: frozenset[JobState] = frozenset()
    types: frozenset[JobType] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    name_part: str = ""
    name_prefix: str = ""
    created: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Start of a page: the page has the jobs after this one, or before it with ``back``.

    ``is_included`` adds the job itself. Jobs created at the same moment are ordered by id.
    """

    created_ns: int
    job_id: str
    back: bool = False
    is_included: bool = False


@dataclass(frozen=True, slots=True)
class JobPage:
    """Page of jobs; ``next`` and ``previous`` are None at the ends of the table.

    ``is_cut`` marks a page that is short because SCAN_ROWS_MAX rows were scanned; the next page continues.
    """

    jobs: list[JobRecord]
    next: Position | None
    previous: Position | None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class JobCount:
    count: int
    is_exact: bool  # False: a lower bound


class JobTable(Repository):
    def page(self, wanted: JobFilter, size: int, at: Position | None = None, oldest_first: bool = False) -> JobPage:
        work = partial(_page, wanted=wanted, size=size, at=at, oldest_first=oldest_first)
        return self._db.read(work, PAGE_S)

    def count(self, wanted: JobFilter) -> JobCount:
        """Count matching jobs, up to COUNT_MAX jobs and SCAN_ROWS_MAX scanned rows."""
        return self._db.read(partial(_count, wanted=wanted), PAGE_S)


# -- index scan ----------------------------------------------------------------------------------------------------

_Found = tuple[int, str]  # creation time and id of a job
_FIRST_ID, _LAST_ID = str(UUID(int=0)), str(UUID(int=2**128 - 1))


@dataclass(frozen=True)
class Walk:
    """Scan of ``table``, the jobs or their labels: ``streams`` of conditions, each a range of one index, scanned side
    by side; and filters on jobs."""

    table: sa.Table
    falls: bool
    streams: Sequence[Sequence[Condition]]
    asked: Sequence[Condition]
    scan_rows: int  # per stream

    def key(self) -> tuple[Any, ...]:
        return self.table.c.created_ns, self.table.c.job_id

    def order(self) -> list[Any]:
        return [column.desc() if self.falls else column for column in self.key()]

    def beyond(self, at: Position) -> list[Condition]:
        """Return conditions for the rows after ``at``; the first one lets an index start there."""
        created_ns, job_id = self.key()
        if self.falls:
            tie = job_id <= at.job_id if at.is_included else job_id < at.job_id
            return [created_ns <= at.created_ns, sa.or_(created_ns < at.created_ns, tie)]
        tie = job_id >= at.job_id if at.is_included else job_id > at.job_id
        return [created_ns >= at.created_ns, sa.or_(created_ns > at.created_ns, tie)]

    def up_to(self, end: _Found) -> list[Condition]:
        """Return conditions for the rows up to and including ``end``."""
        return replace(self, falls=not self.falls).beyond(Position(*end, is_included=True))

    def bound_streams(self, conn: sa.Connection) -> Iterator[tuple[list[Condition], bool]]:
        """Yield for each stream the conditions of its matching jobs among the first ``scan_rows`` and those created at
        the same moment as the last of these, and whether the stream has as many rows."""
        created_ns, _ = self.key()
        at = created_ns.desc() if self.falls else created_ns
        for stream in self.streams:
            within, is_full = [*stream], False
            if self.asked:
                query = sa.select(created_ns).where(*stream).order_by(at).offset(self.scan_rows - 1).limit(1)
                end = conn.execute(query).scalar_one_or_none()
                if is_full := end is not None:
                    within.append(created_ns >= end if self.falls else created_ns <= end)
            yield [*within, *self.asked, _EXISTS], is_full


def _page(conn: sa.Connection, wanted: JobFilter, size: int, at: Position | None, oldest_first: bool) -> JobPage:
    back = at is not None and at.back
    walk = make_walk(conn, wanted, falls=oldest_first == back)
    found: list[_Found] = []
    ends: list[_Found] = []
    for stream in walk.streams:
        here = [*stream, *(walk.beyond(at) if at is not None else [])]
        matching, end = _stream_page(conn, walk, here, size)
        found += matching
        ends += [end] if end is not None else []
    found.sort(reverse=walk.falls)
    end = (max(ends) if walk.falls else min(ends)) if ends else None
    if end is not None:  # the other streams have not been scanned beyond it
        found = [one for one in found if (one >= end if walk.falls else one <= end)]
    bound = Position(*end) if end is not None else None
    if end is not None and end not in found and (at is None or at.created_ns != end[0]):
        # The scan ended at a job that the caller may not read, perhaps: the next page begins at its moment.
        bound = Position(end[0], _LAST_ID if walk.falls else _FIRST_ID, is_included=True)
        found = [one for one in found if one[0] != end[0]]
    is_full = len(found) > size
    shown = found[:size]
    onward = Position(*shown[-1]) if is_full and shown else bound
    onward = replace(onward, back=back) if onward is not None else None
    backward: Position | None = None
    if at is not None:
        backward = Position(*shown[0], back=not back) if shown else replace(at, back=not back, is_included=True)
    if back:
        shown.reverse()
    previous, following = (onward, backward) if back else (backward, onward)
    return JobPage(_read(conn, shown), following, previous, is_cut=end is not None and len(shown) < size)


def _stream_page(
    conn: sa.Connection, walk: Walk, here: Sequence[Condition], size: int
) -> tuple[list[_Found], _Found | None]:
    """Return the first ``size + 1`` matching rows and the last row scanned; None if the scan reached the end."""
    within, end = here, None
    if walk.asked:
        end = _row_at(conn, walk, here, walk.scan_rows - 1)
        within = [*here, *(walk.up_to(end) if end is not None else [])]
    query = sa.select(*walk.key()).where(*within, *walk.asked, _EXISTS)
    rows = conn.execute(query.order_by(*walk.order()).limit(size + 1)).all()
    matching = [(row[0], row[1]) for row in rows]
    return matching, matching[-1] if len(matching) > size else end


def _row_at(conn: sa.Connection, walk: Walk, here: Sequence[Condition], offset: int) -> _Found | None:
    """Return the row at this offset after the first, from an index alone."""
    query = sa.select(*walk.key()).where(*here).order_by(*walk.order()).offset(offset).limit(1)
    row = conn.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])


def _read(conn: sa.Connection, found: Sequence[_Found]) -> list[JobRecord]:
    ids = [job_id for _, job_id in found]
    jobs = (job_record(row) for row in conn.execute(sa.select(JOB).where(JOB.c.job_id.in_(ids))))
    by_id = {job.job_id: job for job in jobs}
    return [by_id[job_id] for job_id in ids]  # type: ignore[index]


def _count(conn: sa.Connection, wanted: JobFilter) -> JobCount:
    walk = make_walk(conn, wanted, falls=True)
    count, is_exact = 0, True
    for conditions, is_cut in walk.bound_streams(conn):
        is_exact = is_exact and not is_cut
        count += _count_up_to(conn, conditions, COUNT_MAX + 1)
        if count > COUNT_MAX:
            return JobCount(COUNT_MAX, is_exact=False)
    return JobCount(count, is_exact)


def _count_up_to(conn: sa.Connection, conditions: Sequence[Condition], most: int) -> int:
    few = sa.select(sa.literal(1)).where(*conditions).limit(most).subquery()
    return int(conn.execute(sa.select(sa.func.count()).select_from(few)).scalar_one())


# -- conditions ----------------------------------------------------------------------------------------------------

_EXISTS = JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED]
# Same text as in the partial indexes; SQLite compares a boolean expression with 1, and no index has that.
_IS_NO_BATCH, _IS_SHORT = sa.text(NO_BATCH), sa.text(SHORT_OWNER)


def make_walk(
    conn: sa.Connection, wanted: JobFilter, falls: bool, others: Sequence[Condition] = (), rows_max: int = 0
) -> Walk:
    """Choose the index to scan, for at most ``rows_max`` rows, by default SCAN_ROWS_MAX; ``others`` must hold, too."""
    find = sa.func.instr if conn.dialect.name == "sqlite" else sa.func.strpos
    drivers = [*_list_drivers(wanted), *_list_label_drivers(wanted)]
    driver = _choose_narrowest(conn, drivers, wanted)
    table = driver.table if driver is not None else JOB
    asked = [each.filter() for each in drivers if each is not driver and each.table is JOB] + _list_row_filters(wanted)
    asked += [find(JOB.c.labels, json.dumps(label, ensure_ascii=False)) > 0 for label in wanted.labels]
    if prefix := wanted.name_prefix:
        asked.append(sa.func.substr(JOB.c.name, 1, len(prefix)) == prefix)
    if wanted.name_part:
        asked.append(find(JOB.c.name, wanted.name_part) > 0)
    if table is not JOB:
        asked.append(JOB.c.job_id == table.c.job_id)
    span = _list_span(table, wanted)
    streams = [[*span, one] for one in driver.alternatives] if driver is not None else [span]
    return Walk(table, falls, streams, [*asked, *others], max((rows_max or SCAN_ROWS_MAX) // max(len(streams), 1), 1))


def _list_span(table: sa.Table, wanted: JobFilter) -> list[Condition]:
    return [table.c.created_ns.between(*wanted.created)] if wanted.created is not None else []


@dataclass(frozen=True)
class _Driver:
    """Condition with an index on ``table``: its alternatives, of which one must hold."""

    alternatives: Sequence[Condition]
    table: sa.Table = JOB

    def filter(self) -> Condition:
        return sa.or_(sa.false(), *self.alternatives)


def _list_drivers(wanted: JobFilter) -> list[_Driver]:
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
    return [_Driver(alternatives) for alternatives in found]


def _list_label_drivers(wanted: JobFilter) -> list[_Driver]:
    return [_Driver([JOB_LABEL.c.label == shorten_label(*label)], JOB_LABEL) for label in wanted.labels]


def _list_row_filters(wanted: JobFilter) -> list[Condition]:
    conditions: list[Condition] = []
    if wanted.pools is not None and len(wanted.pools) > DRIVE_VALUES_MAX:
        conditions.append(JOB.c.respool_id.in_(sorted(wanted.pools)))
    if len(wanted.owner) > OWNER_INDEXED_MAX:
        conditions.append(JOB.c.owning_team == wanted.owner)
    if wanted.creator:
        conditions.append(JOB.c.creator == wanted.creator)
    if JobType.BATCH in wanted.types:
        conditions.append(JOB.c.type.in_([JOB_TYPE_NUMBERS[type_] for type_ in sorted(wanted.types)]))
    return conditions


def _choose_narrowest(conn: sa.Connection, drivers: Sequence[_Driver], wanted: JobFilter) -> _Driver | None:
    """Return the driver that matches the fewest rows, counted up to SCAN_ROWS_MAX; the first of equals, None if there
    is none."""
    if len(drivers) < 2:
        return drivers[0] if drivers else None

    def rows(driver: _Driver) -> int:
        span, count = _list_span(driver.table, wanted), 0
        for one in driver.alternatives:
            count += _count_up_to(conn, [one, *span], SCAN_ROWS_MAX - count)
            if count >= SCAN_ROWS_MAX:
                break
        return count

    return min(drivers, key=rows)
