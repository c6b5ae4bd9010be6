"""Queries of the archive by DuckDB: object by object, the newest day first, until enough records are found.

One object at a time is fetched into a temporary file, so memory and disk stay small for an archive of any size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from peloton.extras import require_extra
from services.retention.archive import LINES, Archive

LINE_MAX = 64 << 20
"""Maximum size of one record in bytes: a configuration may be large."""
MEMORY = "1GB"
PREFIX_MIN = 4
_KINDS = {"jobs": "job", "pods": "pod", "pod-events": "pod_event", "runs": "pod_event", "host-events": "host_event"}
"""Kind of the records that a query of a class is about."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Wanted records of a class. Empty conditions hold for all. ``is_whole``: records of other kinds that belong to the
    found jobs, such as their configurations, are wanted as well."""

    group: str
    job: str = ""
    pool: str = ""
    owner: str = ""
    states: tuple[str, ...] = ()
    host: str = ""
    since: date | None = None
    until: date | None = None
    is_whole: bool = False


def find_lines(archive: Archive, wanted: Filter, limit: int) -> Iterator[str]:
    """Yield at most ``limit`` records as JSON, without repeated ones, and what belongs to them. Raises Unimplemented
    without the extra."""
    require_extra("archive", "duckdb", "archive query")
    import duckdb

    names = sorted(archive.list_objects(wanted.group, wanted.since, wanted.until), reverse=True)
    seen, count = set[str](), 0
    with tempfile.TemporaryDirectory(prefix="peloton-archive-") as folder, duckdb.connect() as conn:
        conn.execute(f"SET memory_limit = '{MEMORY}'; SET temp_directory = '{folder}'; SET threads = 1")
        path = Path(folder) / f"lines{LINES}"
        for name in names:
            archive.store.fetch(name, path)
            query, values = _select(wanted, path, limit - count)
            for key, is_main, line in conn.execute(query, values).fetchall():
                if key not in seen:
                    seen.add(key)
                    count += is_main
                    yield line
            if count >= limit:
                return


def _select(wanted: Filter, path: Path, limit: int) -> tuple[str, list[Any]]:
    """Return the statement and its values: columns are a key, which repeated records share, and the record."""
    conditions, values = ["json->>'kind' = ?"], list[Any]([_KINDS[wanted.group]])

    def add(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if wanted.job:
        is_id = len(wanted.job) >= PREFIX_MIN
        add(f"(json->>'job_name' = ?{' OR starts_with(json->>$$job_id$$, ?)' if is_id else ''})", wanted.job)
        values += [wanted.job.lower()] if is_id else []
    if wanted.pool:
        add("(json->>'pool' = ? OR starts_with(json->>'pool', ?))", wanted.pool, f"{wanted.pool}/")
    for name, value in (
        ("owner", wanted.owner),
        ("hostname" if wanted.group == "host-events" else "host", wanted.host),
    ):
        if value:
            add(f"json->>'{name}' = ?", value)
    if wanted.states:
        add(f"json->>'state' IN ({', '.join('?' * len(wanted.states))})", *wanted.states)
    matches = " AND ".join(conditions)
    source = f"read_ndjson_objects(?, maximum_object_size = {LINE_MAX}, compression = 'zstd')"
    key = "concat_ws('/', " + ", ".join(f"json->>'{name}'" for name in _KEY) + ")"
    is_main = f"json->>'kind' = '{_KINDS[wanted.group]}'"
    columns = f"SELECT {key}, {is_main}, json"
    if not wanted.is_whole or wanted.group != "jobs":
        return f"{columns} FROM {source} WHERE {matches} LIMIT ?", [str(path), *values, limit]
    mine = f"SELECT json->>'job_id' FROM lines WHERE {matches} LIMIT ?"  # noqa: S608
    query = f"WITH lines AS MATERIALIZED (SELECT json FROM {source}) {columns} FROM lines"  # noqa: S608
    return f"{query} WHERE json->>'job_id' IN ({mine})", [str(path), *values, limit]


_KEY = ("kind", "job_id", "instance_id", "run_id", "revision", "version", "update_id", "seq")
"""Fields that identify a record."""
