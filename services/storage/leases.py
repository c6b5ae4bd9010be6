"""Leadership: one row per role, held for a time."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.model.ids import HOSTMGR_ROLE
from services.storage.engine import Database
from services.storage.tables import FRAMEWORK, LEASE


class Leases:
    def __init__(self, db: Database) -> None:
        self._db = db

    def acquire(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        """Take the role when it is free, its lease has run out, or ``owner`` holds it already."""
        values = {"owner": owner, "address": address, "expires_s": now_s + ttl_s}
        insert = self._db.upsert(LEASE).values(role=role, **values)
        statement = insert.on_conflict_do_update(
            index_elements=["role"],
            set_=values,
            where=sa.or_(LEASE.c.owner == owner, LEASE.c.expires_s <= now_s),
        )
        counted = statement.execution_options(preserve_rowcount=True)  # else unknown for an insert on PostgreSQL
        return self._db.write(lambda conn: conn.execute(counted).rowcount) == 1

    def renew(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        """Extend the lease of ``owner``, also one that has run out. False when another owner has taken the role. A
        renewal that is delayed, and comes after a later one, does not shorten the lease."""
        mine = sa.update(LEASE).where(LEASE.c.role == role, LEASE.c.owner == owner)
        expires_s = now_s + ttl_s
        longer_s = sa.case((LEASE.c.expires_s > expires_s, LEASE.c.expires_s), else_=expires_s)
        statement = mine.values(address=address, expires_s=longer_s)
        return self._db.write(lambda conn: conn.execute(statement).rowcount) == 1

    def holds(self, role: str, owner: str) -> bool:
        """Whether the role is still with ``owner``, also when its lease has run out."""
        query = sa.select(LEASE.c.owner).where(LEASE.c.role == role)
        return self._db.read(lambda conn: conn.execute(query).scalar()) == owner

    def release(self, role: str, owner: str) -> bool:
        """False when ``owner`` did not hold it."""
        statement = sa.delete(LEASE).where(LEASE.c.role == role, LEASE.c.owner == owner)
        return self._db.write(lambda conn: conn.execute(statement).rowcount) == 1

    def leader(self, role: str, now_s: float) -> str | None:
        """Address of the process that holds the role."""
        query = sa.select(LEASE.c.address).where(LEASE.c.role == role, LEASE.c.expires_s > now_s)
        return self._db.read(lambda conn: conn.execute(query).scalar())

    def clusters(self, now_s: float) -> dict[str, str]:
        """Clusters that have run pods or have a leader -> address of the leader, empty while there is none. By name."""

        def work(conn: sa.Connection) -> dict[str, str]:
            known = dict.fromkeys(conn.execute(sa.select(FRAMEWORK.c.cluster)).scalars(), "")
            query = sa.select(LEASE.c.role, LEASE.c.address).where(LEASE.c.expires_s > now_s)
            for role, address in conn.execute(query.where(LEASE.c.role.startswith(HOSTMGR_ROLE, autoescape=True))):
                known[role.removeprefix(HOSTMGR_ROLE)] = address
            return dict(sorted(known.items()))

        return self._db.read(work)
