"""Single writer of pods: each event of the pod machine is one UPDATE, with the pod events that it records.

Statements are built once per event, kind of scope and dialect: building one takes longer than running it on a small
job.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.lifecycle.guards import Condition, Parameter, Row, parameters
from peloton.lifecycle.pod_machine import TABLE, Event
from peloton.model.ids import PodId
from peloton.model.pod import PodRecord, PodState
from peloton.model.status_text import OUTPUT_MARK
from services.storage.codec import PODS, TERMINATION, split_termination
from services.storage.engine import key_table, key_values
from services.storage.mapper import strip_nul
from services.storage.pods.scope import ONE, Chosen, Scope, Span, in_scope
from services.storage.pods.sql import columns_of, encode, value_sql, where
from services.storage.prepared import Prepared
from services.storage.tables import POD, POD_EVENT
from services.storage.watch_log import note_changes, note_pods, pods_of_services


def instances_of(conn: sa.Connection, scope: Scope, condition: Condition) -> list[int]:
    """Return the instances of ``scope`` that meet a condition without parameters, rising."""
    dialect = conn.dialect.name
    return [row[0] for row in conn.execute(_select_instances(scope.kind, condition, dialect), scope.bind(dialect))]


@cache
def _select_instances(kind: str, condition: Condition, dialect: str) -> sa.Select[int]:
    return sa.select(POD.c.instance_id).where(in_scope(kind, dialect), where(condition)).order_by(POD.c.instance_id)


def count_pods(conn: sa.Connection, scope: Scope, condition: Condition, given: Mapping[str, Any]) -> int:
    """Count the pods of ``scope`` that meet a condition with these parameters."""
    dialect = conn.dialect.name
    values = {**scope.bind(dialect), **{f"p_{name}": value for name, value in given.items()}}
    return int(conn.execute(_pod_count(scope.kind, condition, dialect), values).scalar_one())


@cache
def _pod_count(kind: str, condition: Condition, dialect: str) -> sa.Select[int]:
    return sa.select(sa.func.count()).select_from(POD).where(in_scope(kind, dialect), where(condition))


# -- events of the machine -----------------------------------------------------------------------------------------


def fire(conn: sa.Connection, scope: Scope, event: Event, now_ns: int, **given: Any) -> int:
    """Fire the event on the pods of ``scope``; returns how many changed."""
    dialect = conn.dialect.name
    values = {**scope.bind(dialect), **_bind(event, {**given, "now_ns": now_ns})}
    changed = conn.execute(update_of(event, scope.kind, dialect), values).rowcount
    if changed and not TABLE[event].is_quiet:
        add_events(conn, scope, now_ns)
    return changed


def fire_each(
    conn: sa.Connection, job_id: str, event: Event, now_ns: int, given: Mapping[int, Mapping[str, Any]]
) -> None:
    """Fire the event on each instance with its own parameters."""
    dialect = conn.dialect.name
    rows = [
        {"s_job_id": job_id, "s_instance": instance, **_bind(event, {**own, "now_ns": now_ns})}
        for instance, own in given.items()
    ]
    names = tuple(rows[0])
    _prepare(event, dialect, names).execute(conn, [[row[name] for name in names] for row in rows])
    if not TABLE[event].is_quiet:
        add_events(conn, Chosen(job_id, sorted(given)), now_ns)


@cache
def _prepare(event: Event, dialect: str, names: tuple[str, ...]) -> Prepared:
    return Prepared(update_of(event, ONE, dialect), dialect, names)


def _bind(event: Event, given: Mapping[str, Any]) -> dict[str, Any]:
    """Bind the parameters of an event for its statement.

    A termination takes three columns. None keeps the pod's termination if the event says so, and clears it otherwise.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        kept = _terminations(event).get(name)
        if kept is None:
            values[f"p_{name}"] = encode(value)
        elif value is None and kept:
            values |= dict.fromkeys(f"p_{name}_{column}" for column in TERMINATION)
        else:
            values |= {
                f"p_{name}_{column}": part for column, part in zip(TERMINATION, split_termination(value), strict=True)
            }
    return values


@cache
def _terminations(event: Event) -> dict[str, bool]:
    """Return the termination parameters of an event; True: None keeps the pod's own termination."""
    set_to = [row.assigned["termination"] for row in TABLE[event].rows if "termination" in row.assigned]
    return {name: isinstance(value, Parameter) and bool(value.kept) for value in set_to for name in parameters(value)}


@cache
def update_of(event: Event, kind: str, dialect: str) -> sa.Update | sa.Delete:
    """Build the statement of an event: a column that several rows set is a CASE over their guards in order.

    The last row needs no guard.
    """
    rule = TABLE[event]
    guards = [where(row.guard) for row in rule.rows]
    condition = sa.and_(in_scope(kind, dialect), sa.or_(*guards))
    if all(row.to is PodState.UNKNOWN for row in rule.rows):
        return sa.delete(POD).where(condition)
    values = {column: _assign_value(column, rule.rows, guards) for column in _columns(rule.rows)}
    if not rule.is_quiet:
        values |= {"revision": POD.c.revision + 1, "updated_ns": sa.bindparam("p_now_ns", type_=sa.BigInteger)}
    return sa.update(POD).where(condition).values(values)


def _columns(rows: Sequence[Row[PodState]]) -> dict[str, None]:
    return dict.fromkeys(column for row in rows for field in row.assigned for column in columns_of(field))


def _assign_value(
    column: str, rows: Sequence[Row[PodState]], guards: Sequence[sa.ColumnElement[bool]]
) -> sa.ColumnElement[Any]:
    field = "termination" if column in columns_of("termination") else column
    missing = object()
    choices = [row.assigned.get(field, missing) for row in rows]
    while len(choices) > 1 and choices[-2] == choices[-1]:
        choices.pop()
    parts = [POD.c[column] if choice is missing else value_sql(choice, column) for choice in choices]
    if len(parts) == 1:
        return parts[0]
    return sa.case(*zip(guards, parts[:-1], strict=False), else_=parts[-1])


# -- evaluated pods -------------------------------------------------------------------------------------------------

_REPORTED = [event for event in Event if event.name.startswith("REPORT_")]
_WRITTEN = ["updated_ns", "revision"]
_WRITTEN += dict.fromkeys(
    field for event in (*_REPORTED, Event.RUN_AGAIN) for row in TABLE[event].rows for field in row.assigned
)
_reported_columns, _list_reported = PODS.lister(_WRITTEN)


def write_reported(conn: sa.Connection, pods: Sequence[PodRecord], services: Container[str]) -> None:
    """Write pods as changed by ``next_pod`` for reports, each pod once, with their events; ``services`` are the jobs
    that are one."""
    writing, inserting = _write_reported(conn.dialect.name)
    writing.execute(conn, [[*_list_reported(pod), pod.job_id, pod.instance_id] for pod in pods])
    conn.execute(inserting, key_values(conn.dialect.name, [(pod.job_id, pod.instance_id) for pod in pods]))
    note_changes(conn, [(pod.job_id, pod.instance_id) for pod in pods if pod.job_id in services])


@cache
def _write_reported(dialect: str) -> tuple[Prepared, sa.Insert]:
    mine = (POD.c.job_id == sa.bindparam("key_job"), POD.c.instance_id == sa.bindparam("key_instance"))
    writing = sa.update(POD).where(*mine).values({name: sa.bindparam(f"new_{name}") for name in _reported_columns})
    names = [*(f"new_{name}" for name in _reported_columns), "key_job", "key_instance"]
    keys = key_table(dialect)
    source = keys.join(POD, sa.and_(POD.c.job_id == keys.c.job_id, POD.c.instance_id == keys.c.instance_id))
    return Prepared(writing, dialect, names), _inserting_events(sa.true(), dialect, source)


def _build_insert() -> sa.Insert:
    """Build one statement that inserts a span of pods: the database counts the instances."""
    first, last = (sa.bindparam(name, type_=sa.BigInteger) for name in ("first", "last"))
    numbered = sa.select(sa.cast(first, sa.BigInteger).label("i")).cte("numbered", recursive=True)
    numbered = numbered.union_all(sa.select(numbered.c.i + 1).where(numbered.c.i < last))
    columns = [c for c in POD.columns if c.name != "instance_id"]
    rows = sa.select(numbered.c.i, *(sa.bindparam(f"new_{c.name}", type_=c.type) for c in columns))
    return POD.insert().from_select(["instance_id", *(c.name for c in columns)], rows)


_INSERTING = _build_insert()
_bind_inserted = PODS.writer((field.name for field in fields(PodRecord) if field.name != "instance_id"), "new_")


def insert_pods(conn: sa.Connection, span: Span, pod: PodRecord) -> None:
    """Insert pods that all equal ``pod``, as created by the machine, without their events."""
    conn.execute(_INSERTING, {"first": span.start, "last": span.start + span.count - 1, **_bind_inserted(pod)})


# -- events --------------------------------------------------------------------------------------------------------

_COPIED = [c.name for c in POD_EVENT.columns if c.name != "time_ns"]


def add_events(conn: sa.Connection, scope: Scope, now_ns: int) -> None:
    """Add an event for each pod of ``scope`` that was written at ``now_ns`` and whose revision has none yet."""
    dialect = conn.dialect.name
    named = {**scope.bind(dialect), "p_now_ns": now_ns}
    inserting, noting = _event_statements(scope.kind, dialect)
    conn.execute(inserting, named)
    note_pods(conn, noting, named)


@cache
def _event_statements(kind: str, dialect: str) -> tuple[sa.Insert, sa.Select[Any]]:
    written = sa.and_(
        in_scope(kind, dialect), POD.c.updated_ns == sa.bindparam("p_now_ns", type_=POD.c.updated_ns.type)
    )
    return _inserting_events(written, dialect), pods_of_services(written)


def _inserting_events(scope: sa.ColumnElement[bool], dialect: str, source: sa.FromClause = POD) -> sa.Insert:
    pods = sa.select(*(POD.c[name] for name in _COPIED), POD.c.updated_ns).select_from(source).where(scope)
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return insert(POD_EVENT).from_select([*_COPIED, "time_ns"], pods).on_conflict_do_nothing()


def forget_earlier_tries(conn: sa.Connection, job_id: str, instances: Sequence[int], reason: str) -> None:
    """Delete events of failed placements, except the last, of rising instances just requeued for this reason."""
    tried = sa.or_(POD_EVENT.c.state == POD_STATE_NUMBERS[PodState.READY], POD_EVENT.c.reason == reason)
    chosen = in_scope(Chosen.kind, conn.dialect.name)
    is_earlier = sa.exists().where(
        chosen,
        POD.c.instance_id == POD_EVENT.c.instance_id,
        POD.c.run_id == POD_EVENT.c.run_id,
        POD_EVENT.c.revision < POD.c.revision - 1,
    )
    span = POD_EVENT.c.instance_id.between(instances[0], instances[-1])
    forgetting = sa.delete(POD_EVENT).where(POD_EVENT.c.job_id == job_id, span, tried, is_earlier)
    conn.execute(forgetting, Chosen(job_id, instances).bind(conn.dialect.name))


# -- output --------------------------------------------------------------------------------------------------------


def add_output(conn: sa.Connection, pod_id: PodId, text: str) -> None:
    """Append output to the messages of a failed run and its event; a repeated call adds nothing."""
    for table in (POD, POD_EVENT):
        failed = sa.and_(
            table.c.job_id == pod_id.job_id,
            table.c.instance_id == pod_id.instance_id,
            table.c.run_id == pod_id.run_id,
            table.c.state == POD_STATE_NUMBERS[PodState.FAILED],
            table.c.message.not_like(f"%{OUTPUT_MARK}%"),
        )
        message = table.c.message + strip_nul(f"{OUTPUT_MARK}{text}")
        conn.execute(sa.update(table).where(failed).values(message=message))
