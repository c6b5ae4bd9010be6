"""Subjects of rules that creators of jobs are: their groups and roles, which a job does not have."""

from __future__ import annotations

import json
from collections.abc import Sequence

import sqlalchemy as sa

from services.storage.engine import Repository, reading, writing
from services.storage.tables import CREATOR


class Creators(Repository):
    @writing
    def put(self, conn: sa.Connection, name: str, subjects: Sequence[str]) -> None:
        """Replace the subjects of a user."""
        text = json.dumps(subjects)
        insert = self._db.upsert(CREATOR).values(name=name, subjects=text)
        changed = CREATOR.c.subjects != text
        conn.execute(insert.on_conflict_do_update(index_elements=["name"], set_={"subjects": text}, where=changed))

    @reading
    def find(self, conn: sa.Connection, name: str) -> tuple[str, ...]:
        """Return the subjects of a user; none if they were never stored."""
        found = conn.execute(sa.select(CREATOR.c.subjects).where(CREATOR.c.name == name)).scalar_one_or_none()
        return tuple(json.loads(found)) if found is not None else ()
