"""Pending wake-ups of job workflows.

Each transaction that changes a job from outside its workflow stores one, the settle that counts the change clears it,
and a sweep repeats lost signals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from peloton.api.convert import JOB_STATE_NUMBERS
from peloton.lifecycle.wake import Wake
from peloton.model.ids import JobId
from peloton.model.job import JobState
from peloton.model.update import UPDATE_TERMINAL
from services.storage.engine import Repository, key_table, key_values
from services.storage.tables import FINISHED_STATES, IS_ACTIVE, JOB, JOB_WAKE, UPDATE

_MINE = JOB_WAKE.c.job_id == sa.bindparam("of_job", type_=JOB_WAKE.c.job_id.type)
_READING = sa.select(JOB_WAKE.c.noted_ns, JOB_WAKE.c.due_ns).where(_MINE)
_READING_MANY = sa.select(JOB_WAKE).where(JOB_WAKE.c.job_id.in_(sa.bindparam("of_jobs", expanding=True)))
_SEEN = _MINE & (JOB_WAKE.c.noted_ns == sa.bindparam("noted", type_=sa.BigInteger))
_FORGETTING = sa.delete(JOB_WAKE).where(_SEEN)
_SETTING = sa.update(JOB_WAKE).where(_SEEN).values(due_ns=sa.bindparam("due", type_=sa.BigInteger))
_DELETED = JOB_STATE_NUMBERS[JobState.DELETED]
IS_UPDATING = JOB.c.job_id.in_(sa.select(UPDATE.c.job_id).where(UPDATE.c.state.not_in(UPDATE_TERMINAL)))
"""Condition: the job has an active update, and therefore a workflow even when it has ended."""
_HAS_WORKFLOW = IS_ACTIVE | (JOB.c.update_id != "")
_IS_STORED = sa.select(JOB.c.job_id).where(JOB.c.job_id == JOB_WAKE.c.job_id).exists()
_IS_AWAITED = sa.select(JOB.c.job_id).where(JOB.c.job_id == JOB_WAKE.c.job_id, _HAS_WORKFLOW).exists()
_FORGETTING_SIGNALLED = sa.delete(JOB_WAKE).where(
    JOB_WAKE.c.job_id.in_(sa.bindparam("of_jobs", expanding=True)), ~_IS_AWAITED
)


class JobWakes(Repository):
    def due(self, until_ns: int, limit: int, after: tuple[int, str] = (0, "")) -> list[tuple[int, JobId]]:
        """Return up to ``limit`` jobs whose wake-up was due by ``until_ns``, as ordered ``(due_ns, job)`` after
        ``after``."""
        due_ns, job_id = JOB_WAKE.c.due_ns, JOB_WAKE.c.job_id
        query = sa.select(due_ns, job_id).where(due_ns <= until_ns, due_ns >= after[0])
        if after[1]:
            query = query.where((due_ns > after[0]) | (job_id > after[1]))
        query = query.order_by(due_ns, job_id).limit(limit)
        return self._db.read(lambda conn: [(due, JobId(job)) for due, job in conn.execute(query)])

    def forget_ended(self, until_ns: int, limit: int) -> int:
        """Delete up to ``limit`` wakes of jobs that have ended or are gone; returns the number.

        Their workflows process no wakes; late reports of pods store them. The wake of a job that ended without its
        workflow stays until the workflow is signalled.
        """
        old = sa.and_(JOB_WAKE.c.due_ns <= until_ns, JOB_WAKE.c.noted_ns <= until_ns)
        is_unsignalled = _IS_STORED & (JOB_WAKE.c.due_ns > JOB_WAKE.c.noted_ns)
        ended = (
            sa.select(JOB_WAKE.c.job_id)
            .where(old, ~_IS_AWAITED, ~is_unsignalled)
            .order_by(JOB_WAKE.c.due_ns)
            .limit(limit)
        )
        # The age is checked again: a job started meanwhile has a younger wake.
        statement = sa.delete(JOB_WAKE).where(JOB_WAKE.c.job_id.in_(ended), JOB_WAKE.c.noted_ns <= until_ns)
        return self._db.write(lambda conn: conn.execute(statement).rowcount)

    def forget_signalled(self, job_ids: Sequence[JobId]) -> None:
        """Delete the wakes of jobs that have ended, and whose workflows are signalled or gone. The wakes of active jobs
        stay: a job may have been created again under its id.
        """
        self._db.write(lambda conn: conn.execute(_FORGETTING_SIGNALLED, {"of_jobs": sorted(job_ids)}))

    def count_settled(self) -> int:
        """Count active jobs whose workflows have processed the last change; each should have a workflow."""
        is_unseen = JOB_WAKE.c.due_ns <= JOB_WAKE.c.noted_ns
        unseen = sa.select(JOB_WAKE.c.job_id).where(JOB_WAKE.c.job_id == JOB.c.job_id, is_unseen).exists()
        has_ended = JOB.c.state.in_(FINISHED_STATES) & (JOB.c.state != _DELETED)
        counting = sa.select(sa.func.count()).select_from(JOB).where(~unseen)
        # Two counts, as the index of active jobs serves no OR: ended jobs may be many.
        kinds = (IS_ACTIVE, has_ended & IS_UPDATING)
        return self._db.read(lambda conn: sum(conn.execute(counting.where(kind)).scalar_one() for kind in kinds))


# -- within a transaction ----------------------------------------------------------------------------------------------


def note_wakes(conn: sa.Connection, job_ids: Iterable[str], now_ns: int) -> None:
    """Store wakes for the workflows of these jobs, which the caller holds, because of changes in this transaction."""
    keys = [(job_id, 0) for job_id in sorted(set(job_ids))]
    if keys:
        dialect = conn.dialect.name
        conn.execute(_build_note_statement(dialect), {**key_values(dialect, keys), "now_ns": now_ns})


@cache
def _build_note_statement(dialect: str) -> Any:
    keys, now_ns = key_table(dialect), sa.bindparam("now_ns", type_=sa.BigInteger)
    at = sa.cast(now_ns, sa.BigInteger)
    insert: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    # The condition is required: without it SQLite parses ON CONFLICT as part of the join.
    rows = sa.select(keys.c.job_id, at, at).select_from(keys).where(sa.true() if dialect != "sqlite" else sa.text("1"))
    noted = insert(JOB_WAKE).from_select(["job_id", "noted_ns", "due_ns"], rows)
    newer = sa.case(
        (JOB_WAKE.c.noted_ns < noted.excluded.noted_ns, noted.excluded.noted_ns), else_=JOB_WAKE.c.noted_ns + 1
    )
    return noted.on_conflict_do_update(index_elements=[JOB_WAKE.c.job_id], set_={"noted_ns": newer, "due_ns": at})


def read_wake(conn: sa.Connection, job_id: str) -> Wake | None:
    row = conn.execute(_READING, {"of_job": job_id}).one_or_none()
    return None if row is None else Wake(row.noted_ns, row.due_ns)


def read_wakes(conn: sa.Connection, job_ids: Sequence[str]) -> dict[str, Wake]:
    rows = conn.execute(_READING_MANY, {"of_jobs": job_ids})
    return {row.job_id: Wake(row.noted_ns, row.due_ns) for row in rows}


def mark_seen(conn: sa.Connection, job_id: str, wake: Wake, due_ns: int) -> None:
    """Set ``due_ns`` of a wake, or delete the wake if that is 0; a wake renewed since is kept."""
    values: dict[str, Any] = {"of_job": job_id, "noted": wake.noted_ns}
    if due_ns:
        conn.execute(_SETTING, {**values, "due": due_ns})
    else:
        conn.execute(_FORGETTING, values)
