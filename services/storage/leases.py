"""Leadership: one row per role, held by one owner until its lease expires."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.model.ids import HOSTMGR_ROLE
from services.storage.engine import Repository, reading
from services.storage.tables import FRAMEWORK, LEASE

# Built once: leases are renewed and read all the time, also in idle systems.
_UNTIL_S, _NOW_S = (sa.bindparam(name, type_=LEASE.c.expires_s.type) for name in ("until_s", "now_s"))
_OF_ROLE, _IS_VALID = LEASE.c.role == sa.bindparam("of_role"), LEASE.c.expires_s > _NOW_S
_RENEWING = (
    sa.update(LEASE)
    .where(_OF_ROLE, LEASE.c.owner == sa.bindparam("of_owner"))
    .values(
        address=sa.bindparam("new_address"),
        expires_s=sa.case((LEASE.c.expires_s > _UNTIL_S, LEASE.c.expires_s), else_=_UNTIL_S),
    )
)
_READING_LEADER = sa.select(LEASE.c.address).where(_OF_ROLE, _IS_VALID)
_READING_CLUSTERS = sa.select(FRAMEWORK.c.cluster)
_READING_HOST_MANAGERS = sa.select(LEASE.c.role, LEASE.c.address).where(
    _IS_VALID, LEASE.c.role.startswith(HOSTMGR_ROLE, autoescape=True)
)


class Leases(Repository):
    def acquire(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        """Take the role when it is free, its lease has expired, or ``owner`` holds it already."""
        values = {"owner": owner, "address": address, "expires_s": now_s + ttl_s}
        insert = self._db.upsert(LEASE).values(role=role, **values)
        statement = insert.on_conflict_do_update(
            index_elements=["role"],
            set_=values,
            where=sa.or_(LEASE.c.owner == owner, LEASE.c.expires_s <= now_s),
        )
        counted = statement.execution_options(preserve_rowcount=True)  # else the count is unknown for inserts
        return self._db.write(lambda conn: conn.execute(counted).rowcount) == 1

    def renew(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        """Extend the lease of ``owner``, even if it has expired. False when another owner has taken the role.

        A delayed renewal that arrives after a later one does not shorten the lease.
        """
        named = {"of_role": role, "of_owner": owner, "new_address": address, "until_s": now_s + ttl_s}
        return self._db.write(lambda conn: conn.execute(_RENEWING, named).rowcount) == 1

    def holds(self, role: str, owner: str) -> bool:
        """Return whether ``owner`` still has the role, even if its lease has expired."""
        query = sa.select(LEASE.c.owner).where(LEASE.c.role == role)
        return self._db.read(lambda conn: conn.execute(query).scalar()) == owner

    def release(self, role: str, owner: str) -> bool:
        """Release the role; False when ``owner`` did not hold it."""
        statement = sa.delete(LEASE).where(LEASE.c.role == role, LEASE.c.owner == owner)
        return self._db.write(lambda conn: conn.execute(statement).rowcount) == 1

    def leader(self, role: str, now_s: float) -> str | None:
        """Return the address of the process that holds the role."""
        named = {"of_role": role, "now_s": now_s}
        return self._db.read(lambda conn: conn.execute(_READING_LEADER, named).scalar())

    @reading
    def clusters(self, conn: sa.Connection, now_s: float) -> dict[str, str]:
        """Return clusters that have run pods or have a leader -> address of the leader, "" without one, by name."""
        known = dict.fromkeys(conn.execute(_READING_CLUSTERS).scalars(), "")
        for role, address in conn.execute(_READING_HOST_MANAGERS, {"now_s": now_s}):
            known[role.removeprefix(HOSTMGR_ROLE)] = address
        return dict(sorted(known.items()))
