"""Sizes of the tables: rows, and bytes with all indexes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from peloton.errors import ResourceExhausted
from services.storage.engine import Repository
from services.storage.tables import METADATA

COUNTING_S_MAX = 1.0
"""Time for which the rows of one table are counted, or the pages of a file of SQLite."""
_POSTGRES = sa.text(
    "SELECT relname, CAST(reltuples AS BIGINT), pg_total_relation_size(oid) FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = CAST(current_schema() AS regnamespace)"
)
_SQLITE_BYTES = sa.text(
    "SELECT tbl_name, pgsize FROM dbstat JOIN sqlite_schema USING (name) WHERE dbstat.aggregate = TRUE"
)


@dataclass(frozen=True, slots=True)
class TableSize:
    """Size of a table; -1: unknown."""

    row_count: int
    byte_count: int


class Sizes(Repository):
    def read(self) -> dict[str, TableSize]:
        """Return the sizes by table: estimates on PostgreSQL, and on SQLite only what is counted within a second."""
        if not self._db.is_sqlite:
            rows = self._db.read(lambda conn: conn.execute(_POSTGRES).all())
            return {name: TableSize(max(count, -1), size) for name, count, size in rows if name in METADATA.tables}
        sizes = self._count_bytes()
        return {
            name: TableSize(self._count_rows(table), sizes.get(name, -1)) for name, table in METADATA.tables.items()
        }

    def _count_rows(self, table: sa.Table) -> int:
        query = sa.select(sa.func.count()).select_from(table)
        try:
            return int(self._db.read(lambda conn: conn.execute(query).scalar_one(), COUNTING_S_MAX))
        except ResourceExhausted:
            return -1

    def _count_bytes(self) -> Counter[str]:
        """Count pages by table; nothing where SQLite lacks the table dbstat."""
        found = Counter[str]()
        try:
            rows = self._db.read(lambda conn: conn.execute(_SQLITE_BYTES).all(), COUNTING_S_MAX)
        except (ResourceExhausted, OperationalError):
            return found
        for table, size in rows:
            found[table] += size
        return found
