"""Scopes of statements: sets of pods of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.model.pod import ALLOCATED, ENDING_GOALS, ON_HOST, TERMINAL, PodState
from services.storage.tables import IS_ACTIVE, JOB, POD


@dataclass(frozen=True, slots=True)
class Span:
    """Instances ``start .. start+count-1`` of a job."""

    job_id: str
    start: int
    count: int

    kind: ClassVar[str] = "span"

    def bind(self, dialect: str) -> dict[str, Any]:
        return {"s_job_id": self.job_id, "s_first": self.start, "s_stop": self.start + self.count}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Listed instances of a job, sent as one parameter."""

    job_id: str
    instances: Sequence[int]

    kind: ClassVar[str] = "chosen"

    def bind(self, dialect: str) -> dict[str, Any]:
        ids = f"[{','.join(map(str, self.instances))}]" if dialect == "sqlite" else list(self.instances)
        return {"s_job_id": self.job_id, "s_ids": ids}


Scope = Span | Chosen
INSTANCE_IDS = 2**31
"""Length of a span from 0 that covers all pods of a job."""
ONE = "one"
"""Kind of a scope of a single pod, bound as ``s_job_id`` and ``s_instance``."""


@cache
def in_scope(kind: str, dialect: str) -> sa.ColumnElement[bool]:
    """Return a condition whose parameters ``bind`` provides."""
    return _condition(kind, dialect, lambda name, type_: sa.bindparam(name, type_=type_))


def within(conn: sa.Connection, scope: Scope) -> sa.ColumnElement[bool]:
    """Return the condition of a scope with literal values, for statements that are not cached."""
    dialect = conn.dialect.name
    values = scope.bind(dialect)
    return _condition(scope.kind, dialect, lambda name, type_: sa.literal(values[name], type_))


def _condition(kind: str, dialect: str, bound: Callable[[str, Any], sa.BindParameter[Any]]) -> sa.ColumnElement[bool]:
    mine = POD.c.job_id == bound("s_job_id", POD.c.job_id.type)
    big = sa.BigInteger()
    if kind == ONE:
        return sa.and_(mine, POD.c.instance_id == bound("s_instance", big))
    if kind == Span.kind:
        return sa.and_(mine, POD.c.instance_id >= bound("s_first", big), POD.c.instance_id < bound("s_stop", big))
    if dialect == "sqlite":
        each = sa.func.json_each(bound("s_ids", sa.Text)).table_valued("value")
        return sa.and_(mine, POD.c.instance_id.in_(sa.select(each.c.value)))
    return sa.and_(mine, POD.c.instance_id == sa.any_(bound("s_ids", postgresql.ARRAY(big))))


# -- states as column values ----------------------------------------------------------------------------------------


def numbers(states: Iterable[PodState]) -> list[int]:
    return sorted(POD_STATE_NUMBERS[state] for state in states)


TERMINAL_NUMBERS = numbers(TERMINAL)
ON_HOST_NUMBERS = numbers(ON_HOST)
ALLOCATED_NUMBERS = numbers(ALLOCATED)
ENDING_NUMBERS = numbers(ENDING_GOALS)
INITIALIZED = POD_STATE_NUMBERS[PodState.INITIALIZED]
PENDING = POD_STATE_NUMBERS[PodState.PENDING]
READY = POD_STATE_NUMBERS[PodState.READY]
KILLING = POD_STATE_NUMBERS[PodState.KILLING]
KILLED = POD_STATE_NUMBERS[PodState.KILLED]
LIVING_JOBS = sa.select(JOB.c.job_id).where(IS_ACTIVE).order_by(JOB.c.job_id)
"""Ids of unfinished jobs, which alone have pods on hosts."""
