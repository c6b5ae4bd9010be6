"""Processes of this control plane, one row each."""

from __future__ import annotations

import json

import sqlalchemy as sa

from peloton.errors import ResourceExhausted
from peloton.model.diagnosis import ProcessRecord
from peloton.model.times import NS_PER_S
from services.storage.engine import Repository, reading, writing
from services.storage.tables import PROCESS

KEPT_NS = 120 * NS_PER_S
"""Age after which any process deletes a row, and from which it is not read."""
PROCESSES_MAX = 1_000
"""Maximum number of processes per read, the last seen first, and of rows up to which a process may be announced."""


class Processes(Repository):
    @writing
    def announce(self, conn: sa.Connection, process: ProcessRecord, now_ns: int) -> None:
        """Do the same for a process without a database, whose row replaces none of another role. Raises
        ResourceExhausted.
        """
        self._delete_gone(conn, now_ns)
        others = sa.select(sa.func.count()).where(PROCESS.c.process_id != process.process_id)
        if conn.execute(others).scalar_one() >= PROCESSES_MAX:
            raise ResourceExhausted(f"{PROCESSES_MAX:,} processes have reported, as many as may be")
        self._put(conn, process, now_ns, PROCESS.c.role == process.role)

    @writing
    def put(self, conn: sa.Connection, process: ProcessRecord, now_ns: int) -> None:
        """Replace the row of a process, and delete those of processes that are gone."""
        self._put(conn, process, now_ns)
        self._delete_gone(conn, now_ns)

    def _put(
        self, conn: sa.Connection, process: ProcessRecord, now_ns: int, where: sa.ColumnElement[bool] | None = None
    ) -> None:
        values = {
            "role": process.role,
            "version": process.version,
            "seen_ns": now_ns,
            "settings": json.dumps(dict(process.settings)),
        }
        insert = self._db.upsert(PROCESS).values(process_id=process.process_id, **values)
        conn.execute(insert.on_conflict_do_update(index_elements=["process_id"], set_=values, where=where))

    def _delete_gone(self, conn: sa.Connection, now_ns: int) -> None:
        conn.execute(sa.delete(PROCESS).where(PROCESS.c.seen_ns < now_ns - KEPT_NS))

    @writing
    def remove(self, conn: sa.Connection, process_id: str, role: str) -> None:
        conn.execute(sa.delete(PROCESS).where(PROCESS.c.process_id == process_id, PROCESS.c.role == role))

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
