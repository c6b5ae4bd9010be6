"""Search for jobs and pods: by conditions, and by name or id prefix."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_STATES, JOB_TYPE_NUMBERS, JOB_TYPES, POD_STATE_NUMBERS
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType
from peloton.model.pod import PodRecord, PodState
from peloton.model.text import quote
from peloton.model.times import NS_PER_S
from services.storage.codec import counts_from_text, facts_from_text, job_record, pod_record
from services.storage.engine import Repository
from services.storage.jobs.job_table import JobFilter, make_walk
from services.storage.tables import (
    FINISHED_STATES,
    IS_ACTIVE,
    IS_CREATED_BY_USER,
    JOB,
    JOB_CONFIG,
    JOB_NAME,
    OVERRIDE,
    POD,
)

LIMIT_DEFAULT = 10
MAX_LIMIT_DEFAULT = 100
QUERY_ROWS_MAX = 100_000
"""Maximum number of index rows scanned for one query of jobs."""
QUERY_S = 5.0
"""Timeout of a query of jobs."""
_UNSET = 2**62
"""Sort key of an unset time: last in ascending order, first in descending order."""

Order = tuple[str, bool]
"""Field name, and whether the order is descending."""


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Conditions that must all hold; an empty one always does.

    Time ranges are inclusive, in unix nanoseconds, and compared by the second. ``limit`` and ``max_limit`` 0 are the
    defaults.
    """

    labels: Sequence[tuple[str, str]] = ()  # key and value, both exact
    keywords: Sequence[str] = ()
    states: Sequence[JobState] = ()
    respool_id: str = ""
    pools: frozenset[str] | None = None  # ids; None: all
    owner: str = ""  # the owning team
    creator: str = ""
    name: str = ""
    created: tuple[int, int] | None = None
    completed: tuple[int, int] | None = None
    order: Sequence[Order] = ()
    offset: int = 0
    limit: int = 0
    max_limit: int = 0


class FoundJobs(NamedTuple):
    """Page of jobs, and the number of matches within ``max_limit``.

    With ``is_cut`` only the newest QUERY_ROWS_MAX rows of one condition were examined, and older jobs may match.
    """

    jobs: list[JobRecord]
    total: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class PodQuery:
    """Conditions on pods; ``names`` are names of task configurations."""

    states: Sequence[PodState] = ()
    names: Sequence[str] = ()
    hosts: Sequence[str] = ()
    order: Sequence[Order] = ()
    offset: int = 0
    limit: int = 0


JOB_ORDER: dict[str, sa.ColumnElement[Any]] = {
    "creation_time": JOB.c.created_ns,
    "completion_time": sa.func.coalesce(sa.func.nullif(JOB.c.completed_ns, 0), _UNSET),
    "start_time": sa.func.coalesce(sa.func.nullif(JOB.c.started_ns, 0), _UNSET),
    "update_time": JOB.c.updated_ns,
    "name": JOB.c.name,
    "owner": JOB.c.owning_team,
    "state": JOB.c.state,
    "job_type": JOB.c.type,
    "instance_count": JOB.c.instance_count,
    "respool_id": JOB.c.respool_id,
    "job_id": JOB.c.job_id,
}
POD_ORDER: dict[str, Callable[[PodRecord], Any]] = {
    "creation_time": lambda pod: pod.started_ns or _UNSET,
    "host": lambda pod: pod.host,
    "instanceId": lambda pod: pod.instance_id,
    "message": lambda pod: pod.message,
    "name": lambda pod: "",  # replaced by the name in the configuration
    "reason": lambda pod: pod.reason,
    "state": lambda pod: POD_STATE_NUMBERS[pod.state],
}
_POD_COLUMNS: dict[str, sa.ColumnElement[Any]] = {
    "creation_time": sa.func.coalesce(sa.func.nullif(POD.c.started_ns, 0), _UNSET),
    "host": POD.c.host,
    "instanceId": POD.c.instance_id,
    "message": POD.c.message,
    "reason": POD.c.reason,
    "state": POD.c.state,
}


RECENT_JOBS = 10_000
"""Number of the newest jobs in which names are searched by prefix."""
_UUID_DIGITS = 32
_FOUND = (JOB.c.job_id, JOB.c.name, JOB.c.respool_id, JOB.c.state, JOB.c.created_ns, JOB.c.type)
_EXISTS = JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED]


@dataclass(frozen=True, slots=True)
class FoundJob:
    job_id: JobId
    name: str
    respool_id: RespoolId
    state: JobState
    created_ns: int
    type: JobType


JobName = tuple[str, str]
"""Id of a pool ("" for any), and the name of a job or its prefix."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Counts of unfinished work: jobs without a started workflow, all active jobs, and the pods of active jobs."""

    jobs_waiting: int = 0
    jobs_active: int = 0
    pods_active: int = 0


class Search(Repository):
    def backlog(self) -> Backlog:
        """Count unfinished jobs and pods; a job that has grown counts as waiting until its new pods exist."""
        waiting = sa.func.sum(sa.case((JOB.c.state == JOB_STATE_NUMBERS[JobState.INITIALIZED], 1), else_=0))
        query = sa.select(waiting, sa.func.count(), sa.func.sum(JOB.c.instance_count))
        query = query.where(IS_ACTIVE, JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED])
        return self._db.read(lambda conn: Backlog(*(int(n or 0) for n in conn.execute(query).one())))

    def jobs_waiting(self) -> int:
        """Count the jobs that ``backlog`` counts as waiting, by their index: it costs what they are, however many jobs
        are active."""
        query = sa.select(sa.func.count()).where(JOB.c.state == JOB_STATE_NUMBERS[JobState.INITIALIZED])
        return self._db.read(lambda conn: int(conn.execute(query).scalar_one()))

    def pods_of_creator(self, creator: str) -> int:
        """Count the pods of a user's jobs that have not ended, without those of batch jobs that have succeeded.

        One index has these jobs. Jobs with equal counts are one row: a user's many small jobs are few rows.
        """
        query = sa.select(JOB.c.type, JOB.c.pod_counts, sa.func.count(), sa.func.sum(JOB.c.instance_count))
        query = query.where(JOB.c.creator == creator, IS_ACTIVE, sa.text(IS_CREATED_BY_USER))
        rows = self._db.read(lambda conn: conn.execute(query.group_by(JOB.c.type, JOB.c.pod_counts)).all())
        pods = 0
        for number, counts, jobs, instances in rows:
            is_batch = JOB_TYPES[number] is JobType.BATCH
            done = counts_from_text(counts).get(PodState.SUCCEEDED, 0) if is_batch else 0
            pods += int(instances) - jobs * done
        return pods

    def query_jobs(self, query: JobQuery) -> FoundJobs:
        """Return one page, newest jobs first by default. Raises InvalidArgument, ResourceExhausted after QUERY_S."""
        return self._db.read(partial(_query_jobs, query=query), QUERY_S)

    def jobs_after(self, job_id: str, limit: int, type_: JobType | None = None) -> list[JobRecord]:
        """Return a page of all jobs, or of those of a type, by id; "" begins."""
        query = sa.select(JOB).where(JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED])
        if type_ is not None:
            query = query.where(JOB.c.type == JOB_TYPE_NUMBERS[type_])
        if job_id:
            query = query.where(JOB.c.job_id > job_id)
        query = query.order_by(JOB.c.job_id).limit(limit)
        return self._db.read(lambda conn: [job_record(row) for row in conn.execute(query)])

    def query_pods(self, job_id: JobId, query: PodQuery) -> tuple[list[PodRecord], int]:
        """Return one page, by instance by default, and the number of matches.

        Raises InvalidArgument for an unknown sort field.
        """
        for name, _ in query.order:
            if name not in POD_ORDER:
                raise InvalidArgument(f"Sort only supports fields: {', '.join(POD_ORDER)}")
        return self._db.read(partial(_query_pods, job_id=job_id, query=query))

    # -- by name or id: unfinished jobs first, then the newest

    def jobs_named(self, names: Iterable[JobName], limit: int) -> list[FoundJob]:
        conditions = [_in_pool(JOB.c, pool, JOB.c.name == name) for pool, name in names]
        return self._find(sa.select(*_FOUND).where(_EXISTS, sa.or_(sa.false(), *conditions)), limit)

    def jobs_with_id_prefix(self, digits: str, limit: int) -> list[FoundJob]:
        """Find jobs by id prefix; ``digits`` are up to 32 hexadecimal digits, without dashes."""
        first, last = (str(uuid.UUID(digits.ljust(_UUID_DIGITS, digit))) for digit in "0f")
        return self._find(sa.select(*_FOUND).where(_EXISTS, JOB.c.job_id.between(first, last)), limit)

    def recent_jobs_beginning(self, names: Iterable[JobName], limit: int) -> list[FoundJob]:
        """Find jobs by name prefix among the newest RECENT_JOBS."""
        recent = sa.select(*_FOUND).order_by(JOB.c.created_ns.desc()).limit(RECENT_JOBS).subquery()
        exists = recent.c.state != JOB_STATE_NUMBERS[JobState.DELETED]
        conditions = [
            _in_pool(recent.c, pool, sa.func.substr(recent.c.name, 1, len(start)) == start) for pool, start in names
        ]
        query = sa.select(recent).where(exists, sa.or_(sa.false(), *conditions))
        return self._find(query, limit, recent.c)

    def _find(self, query: sa.Select[Any], limit: int, columns: Any = JOB.c) -> list[FoundJob]:
        has_ended = sa.case((columns.state.in_(FINISHED_STATES), 1), else_=0)
        query = query.order_by(has_ended, columns.created_ns.desc(), columns.job_id).limit(limit)
        rows = self._db.read(lambda conn: conn.execute(query).all())
        return [FoundJob(row[0], row[1], row[2], JOB_STATES[row[3]], row[4], JOB_TYPES[row[5]]) for row in rows]

    def services_named(self, name: str) -> list[JobId]:
        """Return services that have or had this name, newest first."""
        query = sa.select(JOB_NAME.c.job_id).where(JOB_NAME.c.name == name).order_by(JOB_NAME.c.updated_ns.desc())
        return self._db.read(lambda conn: [JobId(job_id) for job_id in conn.execute(query).scalars()])


# -- jobs ----------------------------------------------------------------------------------------------------------


def _query_jobs(conn: sa.Connection, query: JobQuery) -> FoundJobs:
    most, order = query.max_limit or MAX_LIMIT_DEFAULT, query.order or [("creation_time", True)]
    others = [_contains(conn, JOB.c.search, word.lower()) for word in query.keywords]
    if query.completed is not None:
        begin, end = _by_second(query.completed)
        others.append(JOB.c.completed_ns.between(begin, end))
    if query.order:
        others.append(sa.true())  # limits the scan, since all its rows are sorted
    walk = make_walk(conn, _filter(query), True, others, QUERY_ROWS_MAX)
    bounded = list(walk.bound_streams(conn))
    parts = []
    for conditions, _ in bounded:
        part = sa.select(JOB.c.job_id).where(*conditions)
        part = _order_by(part, order) if query.order else part.order_by(*walk.order())  # an index has the latter
        parts.append(sa.select(part.limit(most).subquery()))
    ids = sa.union_all(*parts) if len(parts) > 1 else parts[0]
    statement = _order_by(sa.select(JOB).where(JOB.c.job_id.in_(ids)), order).limit(most)
    found = conn.execute(statement).all()
    stop = query.offset + (query.limit or LIMIT_DEFAULT)
    is_cut = len(found) < most and any(is_cut for _, is_cut in bounded)
    return FoundJobs([job_record(row) for row in found[query.offset : stop]], len(found), is_cut)


def _filter(query: JobQuery) -> JobFilter:
    return JobFilter(
        pools=_pools(query),
        owner=query.owner,
        creator=query.creator,
        states=frozenset(query.states),
        labels=tuple(query.labels),
        name_part=query.name,
        created=_by_second(query.created) if query.created is not None else None,
    )


def _pools(query: JobQuery) -> frozenset[str] | None:
    if not query.respool_id:
        return query.pools
    return frozenset([query.respool_id if query.pools is None or query.respool_id in query.pools else ""])


def _by_second(span: tuple[int, int]) -> tuple[int, int]:
    """Extend a range to whole seconds."""
    begin, end = (at // NS_PER_S * NS_PER_S for at in span)
    return begin, end + NS_PER_S - 1


def _contains(conn: sa.Connection, column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    """Return a case-sensitive substring condition; no character of ``text`` is special."""
    find = sa.func.instr if conn.dialect.name == "sqlite" else sa.func.strpos
    return find(column, text) > 0


def _order_by(statement: sa.Select[Any], order: Sequence[Order]) -> sa.Select[Any]:
    for name, _ in order:
        if name not in JOB_ORDER:
            raise InvalidArgument(f"jobs cannot be sorted by {quote(name)}: only by {', '.join(JOB_ORDER)}")
    for name, falls in order:
        statement = statement.order_by(JOB_ORDER[name].desc() if falls else JOB_ORDER[name])
    return statement.order_by(JOB.c.job_id)


# -- pods ----------------------------------------------------------------------------------------------------------


def _query_pods(conn: sa.Connection, job_id: str, query: PodQuery) -> tuple[list[PodRecord], int]:
    conditions = [POD.c.job_id == job_id]
    if query.states:
        conditions.append(POD.c.state.in_([POD_STATE_NUMBERS[state] for state in query.states]))
    if query.hosts:
        conditions.append(POD.c.host.in_(query.hosts))
    page = slice(query.offset, query.offset + (query.limit or LIMIT_DEFAULT))
    if query.names or any(name == "name" for name, _ in query.order):
        return _query_pods_by_name(conn, job_id, query, conditions, page)
    total = conn.execute(sa.select(sa.func.count()).select_from(POD).where(*conditions)).scalar_one()
    statement = sa.select(POD).where(*conditions)
    for name, falls in query.order:
        statement = statement.order_by(_POD_COLUMNS[name].desc() if falls else _POD_COLUMNS[name])
    statement = statement.order_by(POD.c.instance_id).offset(page.start).limit(page.stop - page.start)
    return [pod_record(row) for row in conn.execute(statement)], total


@dataclass(slots=True)
class _Names:
    """Names of the instances' configurations, by version."""

    defaults: dict[int, str]
    overridden: dict[int, list[tuple[int, str]]] = field(default_factory=dict)  # instance -> rising (version, name)

    def of(self, pod: PodRecord) -> str:
        own = [name for version, name in self.overridden.get(pod.instance_id, ()) if version <= pod.config_version]
        return own[-1] if own else self.defaults.get(pod.config_version, "")


def _query_pods_by_name(
    conn: sa.Connection, job_id: str, query: PodQuery, conditions: Iterable[sa.ColumnElement[bool]], page: slice
) -> tuple[list[PodRecord], int]:
    """Query pods by name; reads every pod that meets the other conditions, since names are in configurations."""
    names = _read_names(conn, job_id)
    rows = conn.execute(sa.select(POD).where(*conditions).order_by(POD.c.instance_id))
    pods = [pod for pod in map(pod_record, rows) if not query.names or names.of(pod) in query.names]
    fields: Mapping[str, Callable[[PodRecord], Any]] = {**POD_ORDER, "name": names.of}
    for name, falls in reversed(query.order):
        pods.sort(key=fields[name], reverse=falls)
    return pods[page], len(pods)


def _read_names(conn: sa.Connection, job_id: str) -> _Names:
    defaults = conn.execute(sa.select(JOB_CONFIG.c.version, JOB_CONFIG.c.facts).where(JOB_CONFIG.c.job_id == job_id))
    names = _Names({version: facts_from_text(text).name for version, text in defaults})
    query = sa.select(OVERRIDE.c.instance_id, OVERRIDE.c.version, OVERRIDE.c.facts).where(OVERRIDE.c.job_id == job_id)
    for instance_id, version, text in conn.execute(query.order_by(OVERRIDE.c.instance_id, OVERRIDE.c.version)):
        names.overridden.setdefault(instance_id, []).append((version, facts_from_text(text).name))
    return names


# -- by name -----------------------------------------------------------------------------------------------------------


def _in_pool(columns: Any, pool: str, condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.and_(condition, columns.respool_id == pool) if pool else condition
