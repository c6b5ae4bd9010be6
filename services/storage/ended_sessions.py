"""Sessions of the web pages that were ended before they expire."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.errors import ResourceExhausted
from peloton.model.times import NS_PER_S
from services.storage.engine import Repository, reading, writing
from services.storage.tables import ENDED_SESSION

OF_CALLER_MAX = 1_000
"""Maximum number of sessions of a caller that ended, until they expire."""
KEPT_NS = 3_600 * NS_PER_S
"""Time for which rows are kept after the expiry, since clocks of processes differ."""
EXPIRED_MAX = 1_000
"""Maximum number of expired rows that a write deletes."""


class EndedSessions(Repository):
    @writing
    def put(self, conn: sa.Connection, caller: str, session: str, expires_ns: int, now_ns: int) -> None:
        """Note that a session has ended, and delete rows of sessions that have expired. Raises ResourceExhausted."""
        key = sa.tuple_(ENDED_SESSION.c.caller, ENDED_SESSION.c.session)
        old = sa.select(ENDED_SESSION.c.caller, ENDED_SESSION.c.session).where(
            ENDED_SESSION.c.expires_ns <= now_ns - KEPT_NS
        )
        conn.execute(
            sa.delete(ENDED_SESSION).where(key.in_(old.order_by(ENDED_SESSION.c.expires_ns).limit(EXPIRED_MAX)))
        )
        of_caller = sa.select(sa.func.count()).where(
            ENDED_SESSION.c.caller == caller, ENDED_SESSION.c.session != session
        )
        if conn.execute(of_caller).scalar_one() >= OF_CALLER_MAX:
            raise ResourceExhausted(f"{OF_CALLER_MAX:,} sessions of the caller are kept as ended, as many as may be")
        insert = self._db.upsert(ENDED_SESSION).values(caller=caller, session=session, expires_ns=expires_ns)
        conn.execute(insert.on_conflict_do_nothing())

    @reading
    def has(self, conn: sa.Connection, caller: str, session: str) -> bool:
        """Return whether a session of the caller was ended."""
        query = sa.select(ENDED_SESSION.c.session).where(
            ENDED_SESSION.c.caller == caller, ENDED_SESSION.c.session == session
        )
        return conn.execute(query).first() is not None
