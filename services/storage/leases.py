"""Leases of leadership: one row for each role, with the owner and the time at which the lease expires."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.model.ids import HOSTMGR_ROLE
from services.storage.engine import Repository, reading
from services.storage.tables import FRAMEWORK, LEASE

# Statements are built once: leases are renewed and read all the time, even in idle systems.
_UNTIL_S, _NOW_S = (sa.bindparam(name, type_=LEASE.c.expires_s.type) for name in ("until_s", "now_s"))
_HAS_ROLE, _IS_VALID = LEASE.c.role == sa.bindparam("with_role"), LEASE.c.expires_s > _NOW_S
_RENEW = (
    sa.update(LEASE)
    .where(_HAS_ROLE, LEASE.c.owner == sa.bindparam("with_owner"))
    .values(
        address=sa.bindparam("new_address"),
        expires_s=sa.case((LEASE.c.expires_s > _UNTIL_S, LEASE.c.expires_s), else_=_UNTIL_S),
    )
)
_SELECT_LEADER = sa.select(LEASE.c.address).where(_HAS_ROLE, _IS_VALID)
_SELECT_CLUSTERS = sa.select(FRAMEWORK.c.cluster)
_SELECT_HOST_MANAGERS = sa.select(LEASE.c.role, LEASE.c.address).where(
    _IS_VALID, LEASE.c.role.startswith(HOSTMGR_ROLE, autoescape=True)
)


class Leases(Repository):
    def acquire(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        """Acquire the role if it is free, if its lease has expired, or if ``owner`` holds it already."""
        values = {"owner": owner, "address": address, "expires_s": now_s + ttl_s}
        insert = self._db.upsert(LEASE).values(role=role, **values)
        statement = insert.on_conflict_do_update(
            index_elements=["role"],
            set_=values,
            where=sa.or_(LEASE.c.owner == owner, LEASE.c.expires_s <= now_s),
        )
        counted = statement.execution_options(preserve_rowcount=True)  # without it inserts report no count
        return self._db.write(lambda conn: conn.execute(counted).rowcount) == 1

    def renew(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        """Extend the lease of ``owner``, even if it has expired. Return False if another owner has acquired the role.

        A delayed renewal that arrives after a later one does not shorten the lease.
        """
        parameters = {"with_role": role, "with_owner": owner, "new_address": address, "until_s": now_s + ttl_s}
        return self._db.write(lambda conn: conn.execute(_RENEW, parameters).rowcount) == 1

    def holds(self, role: str, owner: str) -> bool:
        """Return whether ``owner`` still has the role, even if its lease has expired."""
        query = sa.select(LEASE.c.owner).where(LEASE.c.role == role)
        return self._db.read(lambda conn: conn.execute(query).scalar()) == owner

    def release(self, role: str, owner: str) -> bool:
        """Release the role. Return False if ``owner`` does not hold it."""
        statement = sa.delete(LEASE).where(LEASE.c.role == role, LEASE.c.owner == owner)
        return self._db.write(lambda conn: conn.execute(statement).rowcount) == 1

    def leader(self, role: str, now_s: float) -> str | None:
        """Return the address of the process that holds the role."""
        parameters = {"with_role": role, "now_s": now_s}
        return self._db.read(lambda conn: conn.execute(_SELECT_LEADER, parameters).scalar())

    @reading
    def clusters(self, conn: sa.Connection, now_s: float) -> dict[str, str]:
        """Return cluster -> address of its leader, or "" without a leader, for clusters that have run pods or have a
        leader."""
        known = dict.fromkeys(conn.execute(_SELECT_CLUSTERS).scalars(), "")
        for role, address in conn.execute(_SELECT_HOST_MANAGERS, {"now_s": now_s}):
            known[role.removeprefix(HOSTMGR_ROLE)] = address
        return dict(sorted(known.items()))
