"""Components that an administrator has locked."""

from __future__ import annotations

import sqlalchemy as sa

from services.storage.engine import Repository
from services.storage.tables import LOCKDOWN

_READING = sa.select(LOCKDOWN.c.component)


def refusal_text(kind: str) -> str:
    return f"All {kind.lower()} APIs are locked down"


class Lockdowns(Repository):
    def read_locked(self) -> set[str]:
        return self._db.read(lambda conn: set(conn.execute(_READING).scalars()))

    def refusal(self, kind: str) -> str:
        """Return the reason why calls of this kind, Read or Write, are rejected now; "" if they are not."""
        return refusal_text(kind) if kind in self.read_locked() else ""

    def set(self, component: str, locked: bool) -> None:
        mine = LOCKDOWN.c.component == component
        statement = self._db.upsert(LOCKDOWN).values(component=component).on_conflict_do_nothing()
        self._db.write(lambda conn: conn.execute(statement if locked else sa.delete(LOCKDOWN).where(mine)))
