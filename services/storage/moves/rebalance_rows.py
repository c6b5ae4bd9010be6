"""Rows of rebalancing: the state of each cluster, and its moves. Writers hold the counter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from peloton.lifecycle.pod_terms import RUNNING
from peloton.lifecycle.rebalance import HOUR_S, NS_PER_S, move_state, move_text
from peloton.model.ids import PodId
from peloton.model.rebalance import (
    Goal,
    Move,
    MoveRecord,
    MoveState,
    PodAfter,
    Rebalance,
    RebalanceProgress,
    RebalanceSpec,
)
from services.storage.engine import key_table, key_values, take_numbers
from services.storage.mapper import Mapper, Part, json_form, spread
from services.storage.pods.sql import GOAL_ALIVE, where
from services.storage.tables import IS_ACTIVE, JOB, POD, REBALANCE, REBALANCE_MOVE

SEQ = "rebalance"
MOVES_KEPT = 1_000
"""Number of moves kept per cluster, in addition to all moves of the last hour."""
_MOVING = REBALANCE_MOVE.c.state == MoveState.MOVING
_REBALANCES = Mapper(
    Rebalance,
    REBALANCE,
    spec=Part(
        ("goals", "moves_per_hour"),
        lambda goals, per_hour: RebalanceSpec(tuple(map(Goal, goals.split(","))), per_hour),
        lambda spec: (",".join(spec.goals), spec.moves_per_hour),
    ),
    progress=json_form(RebalanceProgress),
)
_MOVES = Mapper(MoveRecord, REBALANCE_MOVE, pod_id=spread(PodId))


def read_rebalance(conn: sa.Connection, cluster: str) -> Rebalance | None:
    row = conn.execute(sa.select(REBALANCE).where(REBALANCE.c.cluster == cluster)).one_or_none()
    return None if row is None else _REBALANCES.record(row)


def read_rebalances(conn: sa.Connection) -> list[Rebalance]:
    """Read all rebalancings, by cluster."""
    return [_REBALANCES.record(row) for row in conn.execute(sa.select(REBALANCE).order_by(REBALANCE.c.cluster))]


def write_rebalance(conn: sa.Connection, one: Rebalance) -> None:
    values = _REBALANCES.values(one)
    if not conn.execute(sa.update(REBALANCE).where(REBALANCE.c.cluster == one.cluster).values(**values)).rowcount:
        conn.execute(REBALANCE.insert().values(**values))


# -- moves -----------------------------------------------------------------------------------------------------------


def insert_moves(conn: sa.Connection, cluster: str, moves: Sequence[Move], now_ns: int) -> None:
    """Insert new moves, and delete the oldest."""
    first = take_numbers(conn, SEQ, len(moves))
    begun = [
        MoveRecord(
            one.pod_id,
            one.source,
            one.target,
            one.why.goal,
            reason=move_text(one),
            state=MoveState.MOVING,
            begun_ns=now_ns,
        )
        for one in moves
    ]
    rows = [{"cluster": cluster, "seq": seq, **_MOVES.values(one)} for seq, one in enumerate(begun, first)]
    conn.execute(REBALANCE_MOVE.insert(), rows)
    own = REBALANCE_MOVE.c.cluster == cluster
    kept = sa.select(REBALANCE_MOVE.c.seq).where(own).order_by(REBALANCE_MOVE.c.seq.desc()).offset(MOVES_KEPT).limit(1)
    if (oldest := conn.execute(kept).scalar()) is not None:
        is_old = sa.and_(REBALANCE_MOVE.c.seq <= oldest, REBALANCE_MOVE.c.begun_ns < now_ns - HOUR_S * NS_PER_S)
        conn.execute(sa.delete(REBALANCE_MOVE).where(own, is_old, ~_MOVING))


def hour_count(conn: sa.Connection, cluster: str, now_ns: int) -> int:
    """Count the moves of the last hour."""
    is_new = REBALANCE_MOVE.c.begun_ns > now_ns - HOUR_S * NS_PER_S
    query = sa.select(sa.func.count()).select_from(REBALANCE_MOVE).where(REBALANCE_MOVE.c.cluster == cluster, is_new)
    return int(conn.execute(query).scalar_one())


def last_ended_ns(conn: sa.Connection, cluster: str) -> int:
    query = sa.select(sa.func.max(REBALANCE_MOVE.c.ended_ns)).where(REBALANCE_MOVE.c.cluster == cluster)
    return int(conn.execute(query).scalar() or 0)


def read_moves(conn: sa.Connection, cluster: str, limit: int) -> list[MoveRecord]:
    """Read moves, newest first."""
    query = sa.select(REBALANCE_MOVE).where(REBALANCE_MOVE.c.cluster == cluster)
    return [_MOVES.record(row) for row in conn.execute(query.order_by(REBALANCE_MOVE.c.seq.desc()).limit(limit))]


def settle_moves(conn: sa.Connection, cluster: str, now_ns: int) -> list[MoveRecord]:
    """Record the outcome of unfinished moves; returns the moves that are still under way."""
    query = sa.select(REBALANCE_MOVE).where(REBALANCE_MOVE.c.cluster == cluster, _MOVING)
    under_way = {row.seq: _MOVES.record(row) for row in conn.execute(query.order_by(REBALANCE_MOVE.c.seq))}
    pods = _pods_after(conn, [(move.pod_id.job_id, move.pod_id.instance_id) for move in under_way.values()])
    left: list[MoveRecord] = []
    for seq, move in under_way.items():
        state = move_state(move, pods.get((move.pod_id.job_id, move.pod_id.instance_id)), now_ns)
        if state is MoveState.MOVING:
            left.append(move)
            continue
        mine = sa.and_(REBALANCE_MOVE.c.cluster == cluster, REBALANCE_MOVE.c.seq == seq)
        conn.execute(sa.update(REBALANCE_MOVE).where(mine).values(state=state, ended_ns=now_ns))
    return left


def _pods_after(conn: sa.Connection, keys: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], PodAfter]:
    """Read the pods of unfinished jobs among the keys."""
    table = key_table(conn.dialect.name)
    same = sa.and_(POD.c.job_id == table.c.job_id, POD.c.instance_id == table.c.instance_id)
    columns = (POD.c.job_id, POD.c.instance_id, POD.c.run_id, POD.c.host)
    query = (
        sa.select(*columns, where(RUNNING).label("is_running"), GOAL_ALIVE.label("is_wanted"))
        .select_from(table.join(POD, same).join(JOB, JOB.c.job_id == POD.c.job_id))
        .where(IS_ACTIVE)
    )
    rows = conn.execute(query, key_values(conn.dialect.name, keys)) if keys else ()
    return {
        (row.job_id, row.instance_id): PodAfter(row.run_id, row.host, bool(row.is_running), bool(row.is_wanted))
        for row in rows
    }
