"""Copies of a PostgreSQL as of one moment: each table by COPY, in one read-only transaction.

Unlike pg_dump it needs no client program of the server's release, and a managed server is a server like any other.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from peloton.errors import InvalidArgument
from services.storage.engine import Database

PIECE_BYTES = 1 << 20


def file_of(table: str) -> str:
    return f"{table}.copy.gz"


def export(db: Database, folder: Path) -> dict[str, list[str]]:
    """Write each table to a file; return their columns."""
    with db.reading() as conn:
        tables = _tables(conn)
        raw: Any = conn.connection.driver_connection
        for table, columns in tables.items():
            statement = f"COPY {_quote(table)} ({_list(columns)}) TO STDOUT"
            with (
                gzip.open(folder / file_of(table), "wb", compresslevel=1) as file,
                raw.cursor() as cursor,
                cursor.copy(statement) as rows,
            ):
                for piece in rows:
                    file.write(piece)
    return tables


def load(db: Database, folder: Path, tables: dict[str, list[str]]) -> None:
    """Replace all rows by those of the files, in one transaction. Triggers rest: what they wrote is a table as well."""

    def work(conn: sa.Connection) -> None:
        present = _tables(conn)
        for table, columns in tables.items():
            if missing := set(columns) - set(present.get(table, ())):
                raise InvalidArgument(f"the schema has no {table}.{min(missing)}, which the backup has")
        conn.exec_driver_sql(f"TRUNCATE {', '.join(map(_quote, present))}")
        raw: Any = conn.connection.driver_connection
        for table, columns in tables.items():
            conn.exec_driver_sql(f"ALTER TABLE {_quote(table)} DISABLE TRIGGER USER")
            with (
                gzip.open(folder / file_of(table), "rb") as file,
                raw.cursor() as cursor,
                cursor.copy(f"COPY {_quote(table)} ({_list(columns)}) FROM STDIN") as rows,
            ):
                while piece := file.read(PIECE_BYTES):
                    rows.write(piece)
            conn.exec_driver_sql(f"ALTER TABLE {_quote(table)} ENABLE TRIGGER USER")

    db.write(work)


def _tables(conn: sa.Connection) -> dict[str, list[str]]:
    inspector = sa.inspect(conn)
    return {
        table: [column["name"] for column in inspector.get_columns(table)]
        for table in sorted(inspector.get_table_names())
    }


def _quote(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _list(columns: list[str]) -> str:
    return ", ".join(map(_quote, columns))
