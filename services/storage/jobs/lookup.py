"""Finding jobs by what people call them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_STATES
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobState
from services.storage.repository import Store
from services.storage.tables import FINISHED_STATES, JOB

RECENT_JOBS = 10_000
"""So many of the newest jobs are looked through for names that begin in some way."""
_UUID_DIGITS = 32
_COLUMNS = (JOB.c.job_id, JOB.c.name, JOB.c.respool_id, JOB.c.state, JOB.c.created_ns)
_EXISTS = JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED]


@dataclass(frozen=True, slots=True)
class FoundJob:
    job_id: JobId
    name: str
    respool_id: RespoolId
    state: JobState
    created_ns: int


JobName = tuple[str, str]
"""The id of a pool, or "" for any, and the name of a job, or how it begins."""


class Lookup(Store):
    """Answers are in the order in which people want them: jobs that have not ended first, then the newest."""

    def jobs_named(self, names: Iterable[JobName], limit: int) -> list[FoundJob]:
        conditions = [_in_pool(JOB.c, pool, JOB.c.name == name) for pool, name in names]
        return self._found(sa.select(*_COLUMNS).where(_EXISTS, sa.or_(sa.false(), *conditions)), limit)

    def jobs_with_id_prefix(self, digits: str, limit: int) -> list[FoundJob]:
        """``digits``: up to 32 hexadecimal digits, without dashes."""
        first, last = (str(uuid.UUID(digits.ljust(_UUID_DIGITS, digit))) for digit in "0f")
        return self._found(sa.select(*_COLUMNS).where(_EXISTS, JOB.c.job_id.between(first, last)), limit)

    def recent_jobs_beginning(self, names: Iterable[JobName], limit: int) -> list[FoundJob]:
        """Among the newest RECENT_JOBS."""
        recent = sa.select(*_COLUMNS).order_by(JOB.c.created_ns.desc()).limit(RECENT_JOBS).subquery()
        exists = recent.c.state != JOB_STATE_NUMBERS[JobState.DELETED]
        conditions = [
            _in_pool(recent.c, pool, sa.func.substr(recent.c.name, 1, len(start)) == start) for pool, start in names
        ]
        query = sa.select(recent).where(exists, sa.or_(sa.false(), *conditions))
        return self._found(query, limit, recent.c)

    def _found(self, query: sa.Select[Any], limit: int, columns: Any = JOB.c) -> list[FoundJob]:
        has_ended = sa.case((columns.state.in_(FINISHED_STATES), 1), else_=0)
        query = query.order_by(has_ended, columns.created_ns.desc(), columns.job_id).limit(limit)
        rows = self.db.read(lambda conn: conn.execute(query).all())
        return [FoundJob(row[0], row[1], row[2], JOB_STATES[row[3]], row[4]) for row in rows]


def _in_pool(columns: Any, pool: str, condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.and_(condition, columns.respool_id == pool) if pool else condition
