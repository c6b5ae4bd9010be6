"""Figures of services by the stored events of their pods, commit by commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.model.pod import PodState
from services.storage.engine import Database
from services.storage.tables import POD_EVENT

RUNNING = POD_STATE_NUMBERS[PodState.RUNNING]


@dataclass
class Lives:
    """Figures of services since a moment."""

    away_most: int = 0  # instances of one service that did not serve, or were asked to end, at the same time
    moves_s: list[float] = field(default_factory=list)  # from the request to end an instance until it runs again
    chain_s: float = 0.0  # the most seconds in all that instances of one service were down, one after the other

    @property
    def move_s(self) -> float:
        """Return the median seconds of a move."""
        return sorted(self.moves_s)[len(self.moves_s) // 2] if self.moves_s else 0.0


def lives(database: str, job_ids: Sequence[str], since_ns: int) -> Lives:
    db, found = Database(database), Lives()
    try:
        for job_id in job_ids:
            _add(db, job_id, since_ns, found)
    finally:
        db.close()
    return found


def _add(db: Database, job_id: str, since_ns: int, found: Lives) -> None:
    event = POD_EVENT.c
    is_current = sa.and_(event.desired_run_id <= event.run_id, event.desired_config_version == event.config_version)
    serves = sa.case((sa.and_(event.state == RUNNING, event.goal == RUNNING, is_current), 1), else_=0)
    query = sa.select(event.time_ns, event.instance_id, serves).where(event.job_id == job_id)
    rows = db.read(lambda conn: conn.execute(query.order_by(event.time_ns, event.instance_id, event.revision)).all())
    away_since_ns: dict[int, int] = {}
    mine_s: list[float] = []
    for index, (time_ns, instance, is_serving) in enumerate(rows):
        if not is_serving:
            away_since_ns.setdefault(instance, time_ns)
        elif (left_ns := away_since_ns.pop(instance, 0)) > since_ns:
            mine_s.append((time_ns - left_ns) / 1e9)
        is_moment = index + 1 == len(rows) or rows[index + 1][0] != time_ns  # a transaction writes many with one time
        if is_moment and time_ns > since_ns:
            found.away_most = max(found.away_most, len(away_since_ns))
    found.moves_s += mine_s
    found.chain_s = max(found.chain_s, sum(mine_s))
