"""The mark of a restored database: host managers compare it with their clusters before they launch pods."""

from __future__ import annotations

import sqlalchemy as sa

from services.storage.engine import Database, Repository
from services.storage.tables import COUNTER, LEASE

RESTORED = "restored"
"""Counter with the time of the restoration."""


def note_restoration(db: Database, now_ns: int) -> None:
    """Set the mark, and end the leases of the leaders at the time of the backup."""

    def work(conn: sa.Connection) -> None:
        _set(db, conn, RESTORED, now_ns)
        conn.execute(sa.update(LEASE).values(owner="", address="", expires_s=0.0, epoch=LEASE.c.epoch + 1))

    db.write(work)


class Restorations(Repository):
    def is_compared(self, cluster: str) -> bool:
        """Return whether the database was compared with the cluster after it was restored, or never restored."""
        names = {RESTORED, _of(cluster)}
        query = sa.select(COUNTER.c.name, COUNTER.c.value).where(COUNTER.c.name.in_(names))
        found: dict[str, int] = self._db.read(lambda conn: {row.name: row.value for row in conn.execute(query)})
        return found.get(_of(cluster), 0) >= found.get(RESTORED, 0)

    def note_compared(self, cluster: str, now_ns: int) -> None:
        self._db.write(lambda conn: _set(self._db, conn, _of(cluster), now_ns))


def _of(cluster: str) -> str:
    return f"{RESTORED} {cluster}"


def _set(db: Database, conn: sa.Connection, name: str, value: int) -> None:
    insert = db.upsert(COUNTER).values(name=name, value=value)
    conn.execute(insert.on_conflict_do_update(index_elements=["name"], set_={"value": value}))
