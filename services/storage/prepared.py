"""Statements of many rows, compiled once: their parameters and results are tuples of the driver.

SQLAlchemy makes a dict of the parameters of each row, and a tuple of it again, which takes longer than the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import psycopg

IDS_KEPT = 10_000
"""Limit of ids whose other form is cached."""


_MAKE: Mapping[str, Callable[..., Any]] = {
    "sqlite": sqlite.dialect,
    "postgresql": partial(psycopg.dialect, paramstyle="format"),
}


class Prepared:
    """Statement for a dialect. ``names`` are the parameters of each row, in their order."""

    def __init__(self, statement: sa.ClauseElement, dialect: str, names: Sequence[str] = ()) -> None:
        compiled: Any = statement.compile(dialect=_MAKE[dialect]())
        self._text = str(compiled)
        self._parameters: list[str] = compiled.positiontup
        self._constants: Mapping[str, Any] = compiled.params
        others = [name for name in dict.fromkeys(self._parameters) if name not in names]
        self._rest = [self._constants[name] for name in others]
        places = {name: at for at, name in enumerate([*names, *others])}
        self._order = [places[name] for name in self._parameters]
        is_id = [name for name in names if name in compiled.binds and isinstance(compiled.binds[name].type, sa.Uuid)]
        self._ids = [places[name] for name in is_id] if dialect == "sqlite" else []

    def fetch(self, conn: sa.Connection, named: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return all rows as the driver has them; see ``id_from_driver``."""
        values = {**self._constants, **named}
        given = tuple([values[name] for name in self._parameters])
        cursor: Any = conn.exec_driver_sql(self._text, given).cursor
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found

    def execute(self, conn: sa.Connection, rows: Iterable[list[Any]]) -> None:
        """Execute the statement for each row of values, as columns hold them; ids are texts."""
        given: list[tuple[Any, ...]] = []
        for row in rows:
            for at in self._ids:
                row[at] = id_to_sqlite(row[at])
            row += self._rest
            given.append(tuple([row[at] for at in self._order]))
        conn.exec_driver_sql(self._text, given)


id_to_sqlite: Callable[[str], str] = lru_cache(IDS_KEPT)(lambda text: text.replace("-", ""))
"""Returns an id in the form that SQLite stores."""
id_from_driver: Callable[[str | UUID], str] = lru_cache(IDS_KEPT)(
    lambda found: str(UUID(found)) if isinstance(found, str) else str(found)
)
"""Returns an id of a row of SQLite or PostgreSQL."""
