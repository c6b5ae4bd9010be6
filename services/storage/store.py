"""What the gateway's parts share: the database, the clock, and how a pod is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from peloton.api.convert import HEALTH_NUMBERS, POD_STATE_NUMBERS, TERMINATION_NUMBERS
from peloton.lifecycle.backoff import NO_BACKOFF, Backoff
from peloton.lifecycle.retry import NextRun
from peloton.model.pod import ENDING_GOALS, ON_HOST, TERMINAL, HealthState, PodState, TerminationReason
from services.storage.engine import Database
from services.storage.tables import POD, POD_EVENT
from services.storage.watch import note_pods

CHUNK_PODS = 5_000
"""Pods that one transaction of a job-wide change writes."""

NON_RUNNING_KILLED = "Non-running task killed"


def numbers(states: Iterable[PodState]) -> list[int]:
    return sorted(POD_STATE_NUMBERS[state] for state in states)


TERMINAL_NUMBERS = numbers(TERMINAL)
ON_HOST_NUMBERS = numbers(ON_HOST)
INITIALIZED = POD_STATE_NUMBERS[PodState.INITIALIZED]
PENDING = POD_STATE_NUMBERS[PodState.PENDING]
READY = POD_STATE_NUMBERS[PodState.READY]
KILLING = POD_STATE_NUMBERS[PodState.KILLING]
KILLED = POD_STATE_NUMBERS[PodState.KILLED]
DELETED = POD_STATE_NUMBERS[PodState.DELETED]
ENDING_NUMBERS = numbers(ENDING_GOALS)
ENDS = POD.c.goal.in_(ENDING_NUMBERS)
"""Of a pod: it is to end, and to stay so."""
STAYS = POD.c.goal.not_in(ENDING_NUMBERS)
LAUNCHABLE = sa.and_(POD.c.state == READY, STAYS, POD.c.desired_config_version == POD.c.config_version)
"""Who is to have another configuration leaves the queue for it: launched, nobody would end it again."""


class Store:
    """Base of the gateway's parts. ``batch_backoff``: how long batch pods that failed wait."""

    def __init__(self, db: Database, clock_ns: Callable[[], int], batch_backoff: Backoff = NO_BACKOFF) -> None:
        self.db = db
        self.clock_ns = clock_ns
        self.batch_backoff = batch_backoff


# -- selecting pods ------------------------------------------------------------------------------------------------


def in_range(job_id: str, start: int, count: int) -> sa.ColumnElement[bool]:
    """Instances ``start .. start+count-1`` of a job."""
    return sa.and_(POD.c.job_id == job_id, POD.c.instance_id >= start, POD.c.instance_id < start + count)


def among(conn: sa.Connection, job_id: str, instance_ids: Sequence[int]) -> sa.ColumnElement[bool]:
    """These instances of a job, sent as one parameter."""
    if conn.dialect.name == "sqlite":
        ids = sa.literal(f"[{','.join(map(str, instance_ids))}]")
        listed: sa.ColumnElement[bool] = POD.c.instance_id.in_(
            sa.select(sa.func.json_each(ids).table_valued("value").c.value)
        )
    else:
        listed = POD.c.instance_id == sa.any_(sa.literal(list(instance_ids), postgresql.ARRAY(sa.BigInteger())))
    return sa.and_(POD.c.job_id == job_id, listed)


def chunks(ranges: Iterable[tuple[int, int]], size: int = CHUNK_PODS) -> Iterator[tuple[int, int]]:
    """``(start, count)`` ranges cut to at most ``size``."""
    for start, count in ranges:
        for begin in range(start, start + count, size):
            yield begin, min(size, start + count - begin)


def as_ranges(instance_ids: Iterable[int]) -> list[tuple[int, int]]:
    """Rising instance ids as ``(start, count)``."""
    ranges: list[tuple[int, int]] = []
    for instance_id in instance_ids:
        if ranges and ranges[-1][0] + ranges[-1][1] == instance_id:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((instance_id, 1))
    return ranges


def pod_spans(conn: sa.Connection, job_id: str) -> list[tuple[int, int]]:
    """``(start, count)`` of at most CHUNK_PODS that cover all pods of a job; a service that shrinks has pods beyond its
    count for a while."""
    last = conn.execute(sa.select(sa.func.max(POD.c.instance_id)).where(POD.c.job_id == job_id)).scalar()
    return [] if last is None else list(chunks([(0, last + 1)]))


# -- writing pods --------------------------------------------------------------------------------------------------


def change_pods(
    conn: sa.Connection,
    scope: sa.ColumnElement[bool],
    condition: sa.ColumnElement[bool],
    values: Mapping[str, Any],
    now_ns: int,
) -> int:
    """Write ``values`` to the pods of ``scope`` that meet ``condition``, with their events; returns how many.

    ``scope`` must still hold after the write: it says where the events are taken from.
    """
    changed = conn.execute(
        sa.update(POD).where(scope, condition).values(**values, revision=POD.c.revision + 1, updated_ns=now_ns)
    ).rowcount
    if changed:
        add_events(conn, sa.and_(scope, POD.c.updated_ns == now_ns))
    return changed


_COPIED = [c.name for c in POD_EVENT.columns if c.name != "time_ns"]


def add_events(conn: sa.Connection, scope: sa.ColumnElement[bool], source: sa.FromClause = POD) -> None:
    """An event for each pod of ``scope`` whose revision has none yet: the pods this transaction wrote."""
    pods = sa.select(*(POD.c[name] for name in _COPIED), POD.c.updated_ns).select_from(source).where(scope)
    insert = sqlite.insert if conn.dialect.name == "sqlite" else postgresql.insert
    conn.execute(insert(POD_EVENT).from_select([*_COPIED, "time_ns"], pods).on_conflict_do_nothing())
    note_pods(conn, scope, source)


def forget_earlier_tries(conn: sa.Connection, job_id: str, instances: Sequence[int], reason: str) -> None:
    """Of these rising instances, which have just been queued again for this reason: of all tries in vain of a run the
    events of the last are kept, however many there are."""
    tried = sa.or_(POD_EVENT.c.state == READY, POD_EVENT.c.reason == reason)
    is_earlier = sa.exists().where(
        among(conn, job_id, instances),
        POD.c.instance_id == POD_EVENT.c.instance_id,
        POD.c.run_id == POD_EVENT.c.run_id,
        POD_EVENT.c.revision < POD.c.revision - 1,
    )
    span = POD_EVENT.c.instance_id.between(instances[0], instances[-1])
    conn.execute(sa.delete(POD_EVENT).where(POD_EVENT.c.job_id == job_id, span, tried, is_earlier))


_NEXT_RUN_ID = sa.case((POD.c.desired_run_id > POD.c.run_id, POD.c.desired_run_id), else_=POD.c.run_id + 1)


def new_run(message: Any) -> dict[str, Any]:
    """Values of a pod that starts over; failures, goal, usage and its place in the queue stay."""
    return {
        "prev_run_id": POD.c.run_id,
        "run_id": _NEXT_RUN_ID,
        "desired_run_id": _NEXT_RUN_ID,
        "state": INITIALIZED,
        **NEW_CONFIG,
        "health": POD.c.initial_health,
        "message": message,
        "reason": "",
        "host": "",
        "agent_id": "",
        "ports": "",
        "started_ns": 0,
        "completed_ns": 0,
        **NO_TERMINATION,
        **NO_NEXT_RUN,
    }


NEW_CONFIG: dict[str, Any] = {"config_version": POD.c.desired_config_version}
NO_TERMINATION: dict[str, Any] = {"termination": 0, "exit_code": 0, "signal": ""}
NO_NEXT_RUN: dict[str, Any] = {"next_run": int(NextRun.NONE), "due_ns": 0}


NOT_HELD_BACK: dict[str, Any] = {"vain_count": 0, "held_until_ns": 0}
NO_DESIRED_HOST: dict[str, Any] = {"desired_host": ""}


def terminated(reason: TerminationReason) -> dict[str, Any]:
    return {"termination": TERMINATION_NUMBERS[reason], "exit_code": 0, "signal": ""}


def killed_before_launch(now_ns: int) -> dict[str, Any]:
    """Values of a pod that ends without a host having heard of it."""
    return {
        "state": KILLED,
        "message": NON_RUNNING_KILLED,
        "reason": "",
        "health": HEALTH_NUMBERS[HealthState.INVALID],
        "completed_ns": now_ns,
        "queue_seq": 0,
        **NO_NEXT_RUN,
    }
