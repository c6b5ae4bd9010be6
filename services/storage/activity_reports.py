"""Reports of repeatedly failing workflow activities, one row per worker that has any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa

from peloton.model.times import NS_PER_S
from peloton.model.workflow_trouble import FailingActivity
from services.storage.engine import Repository, writing
from services.storage.mapper import from_json
from services.storage.tables import ACTIVITY_REPORT

KEPT_NS = 3_600 * NS_PER_S
"""Age after which any worker deletes a report."""
REPORTS_MAX = 100
"""Maximum number of reports per read, newest first."""


class ActivityReports(Repository):
    @writing
    def put(
        self, conn: sa.Connection, worker: str, activities: Sequence[FailingActivity], count: int, now_ns: int
    ) -> None:
        """Replace the report of a worker; ``activities`` are the first of ``count`` failing ones."""
        values = {
            "told_ns": now_ns,
            "activity_count": count,
            "activities": json.dumps([asdict(one) for one in activities]),
        }
        insert = self._db.upsert(ACTIVITY_REPORT).values(worker=worker, **values)
        statement = insert.on_conflict_do_update(index_elements=["worker"], set_=values)
        old = sa.delete(ACTIVITY_REPORT).where(ACTIVITY_REPORT.c.told_ns < now_ns - KEPT_NS)
        own = sa.delete(ACTIVITY_REPORT).where(ACTIVITY_REPORT.c.worker == worker)
        conn.execute(statement if count else own)
        conn.execute(old)

    def since(self, told_ns: int) -> tuple[list[list[FailingActivity]], int]:
        """Return the reports written at ``told_ns`` or later, and the number of activities that they cover."""
        query = (
            sa.select(ACTIVITY_REPORT.c.activities, ACTIVITY_REPORT.c.activity_count)
            .where(ACTIVITY_REPORT.c.told_ns >= told_ns)
            .order_by(ACTIVITY_REPORT.c.told_ns.desc())
            .limit(REPORTS_MAX)
        )
        rows = self._db.read(lambda conn: conn.execute(query).all())
        reports = [[from_json(FailingActivity, one) for one in json.loads(row.activities)] for row in rows]
        return reports, sum(row.activity_count for row in rows)
