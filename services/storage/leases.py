"""Leases of leadership: one row for each role, with the owner and the time at which the lease expires."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from peloton.model.ids import HOSTMGR_ROLE
from services.fence import Fence
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
_RELEASE = (
    sa.update(LEASE)
    .where(_HAS_ROLE, LEASE.c.owner == sa.bindparam("with_owner"))
    .values(owner="", address="", expires_s=0.0)
)
_SELECT_LEADER = sa.select(LEASE.c.address).where(_HAS_ROLE, _IS_VALID)
_SELECT_CLUSTERS = sa.select(FRAMEWORK.c.cluster)
_SELECT_HOST_MANAGERS = sa.select(LEASE.c.role, LEASE.c.address).where(
    _IS_VALID, LEASE.c.role.startswith(HOSTMGR_ROLE, autoescape=True)
)


class Leases(Repository):
    def acquire(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> int:
        """Acquire the role if it is free, if its lease has expired, or if ``owner`` holds it already. Return the epoch,
        which rises with each new owner; 0 if another owner has the role.
        """
        may_take = sa.or_(LEASE.c.owner == owner, LEASE.c.expires_s <= now_s)
        # The lock waits for the transactions under the epoch before, so that none commits under the next.
        lock = sa.select(LEASE.c.owner, LEASE.c.epoch).where(LEASE.c.role == role, may_take).with_for_update()
        values = {"owner": owner, "address": address, "expires_s": now_s + ttl_s}
        first = self._db.upsert(LEASE).values(role=role, epoch=1, **values).on_conflict_do_nothing()

        def take(conn: sa.Connection) -> int:
            _limit_idle(conn, ttl_s)
            held = conn.execute(lock).one_or_none()
            if held is None:
                return int(conn.execute(first.returning(LEASE.c.epoch)).scalar() or 0)
            epoch: int = held.epoch + (held.owner != owner)
            conn.execute(sa.update(LEASE).where(LEASE.c.role == role).values(epoch=epoch, **values))
            return epoch

        return self._db.write(take)

    def epoch(self, role: str) -> int:
        """Return the epoch of the last leader; 0 if there was none."""
        query = sa.select(LEASE.c.epoch).where(LEASE.c.role == role)
        return self._db.read(lambda conn: conn.execute(query).scalar()) or 0

    def succeed(self, role: str, owner: str, address: str, ttl_s: float, now_s: float, *, epoch: int) -> int:
        """Acquire the role after this epoch, also from an owner that holds it: another election has decided. Return the
        next epoch; 0 if another leader was before.
        """
        lock = sa.select(LEASE.c.epoch).where(LEASE.c.role == role).with_for_update()
        values = {"owner": owner, "address": address, "expires_s": now_s + ttl_s, "epoch": epoch + 1}
        first = self._db.upsert(LEASE).values(role=role, **values).on_conflict_do_nothing()

        def take(conn: sa.Connection) -> int:
            _limit_idle(conn, ttl_s)
            found = conn.execute(lock).scalar()
            if (found or 0) != epoch:
                return 0
            if found is None:
                return conn.execute(first.returning(LEASE.c.epoch)).scalar() or 0
            conn.execute(sa.update(LEASE).where(LEASE.c.role == role).values(**values))
            return epoch + 1

        return self._db.write(take)

    def renew(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        """Extend the lease of ``owner``, even if it has expired. Return False if another owner has acquired the role.

        A delayed renewal that arrives after a later one does not shorten the lease.
        """
        parameters = {"with_role": role, "with_owner": owner, "new_address": address, "until_s": now_s + ttl_s}

        def extend(conn: sa.Connection) -> int:
            _limit_idle(conn, ttl_s)
            return conn.execute(_RENEW, parameters).rowcount

        return self._db.write(extend) == 1

    def holds(self, role: str, owner: str) -> bool:
        """Return whether ``owner`` still has the role, even if its lease has expired."""
        query = sa.select(LEASE.c.owner).where(LEASE.c.role == role)
        return self._db.read(lambda conn: conn.execute(query).scalar()) == owner

    def release(self, role: str, owner: str) -> bool:
        """Release the role. Return False if ``owner`` does not hold it. The row stays, with its epoch."""
        parameters = {"with_role": role, "with_owner": owner}
        return self._db.write(lambda conn: conn.execute(_RELEASE, parameters).rowcount) == 1

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


def check_epoch(fence: Fence, conn: sa.Connection) -> None:
    """Check in a write transaction that no other process has acquired the role, and lock its row until the commit: the
    next leader begins after it. Raises LeadershipLost.

    The server ends a transaction of a frozen process, with its locks, after the time of a lease.
    """
    held = (fence.role, fence.owner, fence.epoch)
    if conn.dialect.name == "sqlite":
        raw: Any = conn.connection.driver_connection
        is_held = raw.execute(_HOLDS_IN_SQLITE, held).fetchone() is not None
    else:
        row = conn.exec_driver_sql(_HOLDS_IN_POSTGRES, (str(int(fence.ttl_s * 1_000)), *held)).first()
        is_held = row is not None
    if not is_held:
        raise fence.fail(f"{fence.role}: another process leads, epoch {fence.epoch} is over; nothing was written")


def _limit_idle(conn: sa.Connection, ttl_s: float) -> None:
    """Have the server end this transaction if its process freezes: it locks the row that a successor needs."""
    if conn.dialect.name != "sqlite":
        conn.exec_driver_sql(_LIMIT_IDLE, (str(int(ttl_s * 1_000)),))


_LIMIT_IDLE = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"
# Texts: every write transaction of a leader begins with one, and SQLAlchemy takes ten times the time of SQLite, which
# has one writer at a time, and needs no lock.
_HOLDS_IN_SQLITE = "SELECT 1 FROM lease WHERE role = ? AND owner = ? AND epoch = ?"
_HOLDS_IN_POSTGRES = (
    "SELECT set_config('idle_in_transaction_session_timeout', %s, true) FROM lease "
    "WHERE role = %s AND owner = %s AND epoch = %s FOR KEY SHARE"
)
