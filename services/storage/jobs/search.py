"""Search for jobs and pods: by conditions, and by name or id prefix."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_STATES, JOB_TYPES, POD_STATE_NUMBERS
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType
from peloton.model.pod import PodRecord, PodState
from peloton.model.text import quote
from peloton.model.times import NS_PER_S
from services.storage.codec import facts_from_text, job_record, pod_record
from services.storage.engine import Repository
from services.storage.tables import FINISHED_STATES, JOB, JOB_CONFIG, JOB_NAME, OVERRIDE, POD

LIMIT_DEFAULT = 10
MAX_LIMIT_DEFAULT = 100
_PAGE_ROWS = 500
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

    labels: Sequence[str] = ()  # values; keys are ignored
    keywords: Sequence[str] = ()
    states: Sequence[JobState] = ()
    respool_id: str = ""
    owner: str = ""  # the owning team
    name: str = ""
    created: tuple[int, int] | None = None
    completed: tuple[int, int] | None = None
    order: Sequence[Order] = ()
    offset: int = 0
    limit: int = 0
    max_limit: int = 0


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
        query = query.where(JOB.c.state.not_in(FINISHED_STATES), JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED])
        return self._db.read(lambda conn: Backlog(*(int(n or 0) for n in conn.execute(query).one())))

    def query_jobs(self, query: JobQuery) -> tuple[list[JobRecord], int]:
        """Return one page, newest jobs first by default, and the number of matches within ``max_limit``."""
        return self._db.read(partial(_query_jobs, query=query))

    def jobs_after(self, job_id: str, limit: int) -> list[JobRecord]:
        """Return a page of all jobs, by id; "" begins."""
        query = sa.select(JOB).where(JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED])
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


def _query_jobs(conn: sa.Connection, query: JobQuery) -> tuple[list[JobRecord], int]:
    statement = _order_by(sa.select(JOB).where(*_job_conditions(conn, query)), query.order)
    wanted = [token for value in query.labels for token in _tokens(value)]
    most = query.max_limit or MAX_LIMIT_DEFAULT
    # Labels are compared by whole words, which SQL cannot do: rows are read until enough of them match.
    statement = statement.execution_options(yield_per=_PAGE_ROWS) if wanted else statement.limit(most)
    with conn.execute(statement) as rows:
        matching = (row for row in rows if set(wanted) <= set(_tokens(row.labels)))
        found = list(islice(matching, most))
    stop = query.offset + (query.limit or LIMIT_DEFAULT)
    return [job_record(row) for row in found[query.offset : stop]], len(found)


def _job_conditions(conn: sa.Connection, query: JobQuery) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = [JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED]]
    if query.states:
        conditions.append(JOB.c.state.in_([JOB_STATE_NUMBERS[state] for state in query.states]))
    if query.respool_id:
        conditions.append(JOB.c.respool_id == query.respool_id)
    if query.owner:
        conditions.append(JOB.c.owning_team == query.owner)
    if query.name:
        conditions.append(_contains(conn, JOB.c.name, query.name))
    conditions += [_contains(conn, JOB.c.search, word.lower()) for word in query.keywords]
    for column, span in ((JOB.c.created_ns, query.created), (JOB.c.completed_ns, query.completed)):
        if span is not None:
            conditions += [column >= span[0] // NS_PER_S * NS_PER_S, column < (span[1] // NS_PER_S + 1) * NS_PER_S]
    return conditions


def _contains(conn: sa.Connection, column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    """Return a case-sensitive substring condition; no character of ``text`` is special."""
    find = sa.func.instr if conn.dialect.name == "sqlite" else sa.func.strpos
    return find(column, text) > 0


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _order_by(statement: sa.Select[Any], order: Sequence[Order]) -> sa.Select[Any]:
    for name, _ in order:
        if name not in JOB_ORDER:
            raise InvalidArgument(f"jobs cannot be sorted by {quote(name)}: only by {', '.join(JOB_ORDER)}")
    for name, falls in order or [("creation_time", True)]:
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
