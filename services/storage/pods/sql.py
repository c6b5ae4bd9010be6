"""SQL of the pod machine's conditions and values. Parameters of an event are bound as ``p_NAME``."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import sqlalchemy as sa

from peloton.lifecycle import pod_terms as terms
from peloton.lifecycle.guards import (
    All,
    Column,
    Condition,
    Differs,
    Either,
    Exceeds,
    Flag,
    In,
    Joined,
    Not,
    Parameter,
    Pick,
    Plus,
    Unset,
    Value,
)
from peloton.model.pod import HealthState, NextRun, PodState, Termination
from services.storage.codec import TERMINATION, ports_to_text, split_termination
from services.storage.mapper import NUMBERS, strip_nul
from services.storage.tables import POD


def columns_of(field: str) -> tuple[str, ...]:
    return TERMINATION if field == "termination" else (field,)


_STORED: dict[type, Callable[[Any], Any]] = {
    **{kind: NUMBERS[kind].__getitem__ for kind in (PodState, HealthState, NextRun)},
    bool: int,
    str: strip_nul,
    dict: ports_to_text,
}


def encode(value: Any) -> Any:
    """Convert a value of a record's field to its column value, except terminations, which have three columns."""
    convert = _STORED.get(type(value))
    return value if convert is None else convert(value)


# -- conditions ----------------------------------------------------------------------------------------------------


def where(condition: Condition) -> sa.ColumnElement[bool]:
    """Return the SQL of a condition on a row of ``pod``."""
    match condition:
        case All(parts):
            return sa.and_(sa.true(), *map(where, parts))
        case Either(parts):
            return sa.or_(sa.false(), *map(where, parts))
        case Not(part):
            return sa.not_(where(part))
        case In(column, values):
            numbers = sorted(map(encode, values))
            listed = [_constant(number) for number in numbers]
            return POD.c[column] == listed[0] if len(listed) == 1 else POD.c[column].in_(listed)
        case Unset(column):
            return POD.c[column] == _constant("" if isinstance(POD.c[column].type, sa.Text) else 0)
        case Differs(column, other):
            return POD.c[column] != value_sql(other, column)
        case Exceeds(column, other):
            return POD.c[column] > value_sql(other, column)
        case Flag(name):
            return sa.bindparam(f"p_{name}", type_=sa.SmallInteger) == _constant(1)
    raise AssertionError(f"{condition} has no SQL")


# -- values --------------------------------------------------------------------------------------------------------


def value_sql(value: Any, column: str) -> sa.ColumnElement[Any]:
    """Return the SQL of a new value of ``column``, one of the columns of a field."""
    match value:
        case Column(name):
            return POD.c[column if name == "termination" else name]
        case Parameter(name, kept):
            part = f"_{column}" if column in TERMINATION else ""
            parameter = sa.bindparam(f"p_{name}{part}", type_=POD.c[column].type)
            return sa.func.coalesce(parameter, POD.c[column]) if kept else parameter
        case Plus(term, more):
            return value_sql(term, column) + value_sql(more, column)
        case Joined(parts):
            return reduce(add, [value_sql(part, column) for part in parts])
        case Pick(when, then, otherwise):
            return sa.case((where(when), value_sql(then, column)), else_=value_sql(otherwise, column))
        case Value():
            raise AssertionError(f"{value} has no SQL")
        case Termination() | None:
            return _constant(split_termination(value)[TERMINATION.index(column)])
    return _constant(encode(value))


def _constant(value: Any) -> sa.ColumnElement[Any]:
    """Return a literal in the statement's text: it never changes and needs no parameter."""
    if isinstance(value, str):
        assert not set(value) & set("'\\%"), f"{value!r} would have to be quoted"
        return sa.literal_column(f"'{value}'", sa.Text)
    return sa.literal_column(str(value), sa.BigInteger)


GOAL_ENDED, GOAL_ALIVE = where(terms.GOAL_ENDED), where(terms.GOAL_ALIVE)
LAUNCHABLE, RUN_SUPERSEDED = where(terms.LAUNCHABLE), where(terms.RUN_SUPERSEDED)


def select_launchable(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select pods of job ``of_job`` that wait for a host, by instance: those from ``first`` on, at most ``at_most``."""
    return (
        sa.select(*columns)
        .where(
            POD.c.job_id == sa.bindparam("of_job"),
            POD.c.instance_id >= sa.bindparam("first", type_=sa.BigInteger),
            LAUNCHABLE,
        )
        .order_by(POD.c.instance_id)
        .limit(sa.bindparam("at_most", type_=sa.Integer))
    )
