"""Names of jobs, for messages that mention them."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS
from peloton.model.ids import parse_job_id
from peloton.model.job import JobState
from services.storage.tables import JOB

NAMES_MAX = 1_000
"""Maximum number of jobs per lookup; messages show the ids of the others."""


def job_names(conn: sa.Connection, job_ids: Iterable[str]) -> dict[str, str]:
    """Return id -> name of the existing jobs; skips texts that are no ids, which PostgreSQL would refuse."""
    wanted = sorted(filter(_is_id, set(job_ids)))[:NAMES_MAX]
    if not wanted:
        return {}
    is_there = sa.and_(JOB.c.job_id.in_(wanted), JOB.c.state != JOB_STATE_NUMBERS[JobState.DELETED])
    return {row.job_id: row.name for row in conn.execute(sa.select(JOB.c.job_id, JOB.c.name).where(is_there))}


def _is_id(text: str) -> bool:
    try:
        parse_job_id(text)
    except ValueError:
        return False
    return True
