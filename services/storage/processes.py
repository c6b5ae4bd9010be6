"""Processes that run with this database, one row each."""

from __future__ import annotations

import json

import sqlalchemy as sa

from peloton.model.diagnosis import ProcessRecord
from peloton.model.times import NS_PER_S
from services.storage.engine import Repository, reading, writing
from services.storage.tables import PROCESS

KEPT_NS = 120 * NS_PER_S
"""Age after which any process deletes a row, and from which it is not read."""
PROCESSES_MAX = 1_000
"""Maximum number of processes per read, the last seen first."""


class Processes(Repository):
    @writing
    def put(self, conn: sa.Connection, process: ProcessRecord, now_ns: int) -> None:
        """Replace the row of a process, and delete those of processes that are gone."""
        values = {
            "role": process.role,
            "version": process.version,
            "seen_ns": now_ns,
            "settings": json.dumps(dict(process.settings)),
        }
        insert = self._db.upsert(PROCESS).values(process_id=process.process_id, **values)
        conn.execute(insert.on_conflict_do_update(index_elements=["process_id"], set_=values))
        conn.execute(sa.delete(PROCESS).where(PROCESS.c.seen_ns < now_ns - KEPT_NS))

    @writing
    def remove(self, conn: sa.Connection, process_id: str) -> None:
        conn.execute(sa.delete(PROCESS).where(PROCESS.c.process_id == process_id))

    @reading
    def list_running(self, conn: sa.Connection, now_ns: int) -> list[ProcessRecord]:
        query = (
            sa.select(PROCESS)
            .where(PROCESS.c.seen_ns >= now_ns - KEPT_NS)
            .order_by(PROCESS.c.seen_ns.desc(), PROCESS.c.process_id)
            .limit(PROCESSES_MAX)
        )
        return [
            ProcessRecord(row.process_id, row.role, row.version, json.loads(row.settings))
            for row in conn.execute(query)
        ]
