"""Plans of the queries that storage makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from services.storage.storage import Storage


def plans_of(storage: Storage, work: Callable[[], object]) -> list[tuple[str, str]]:
    """Return each query of the work with its plan, with indexes preferred, since tables of tests are small."""
    engine, asked = storage.db.engine, list[tuple[str, Any]]()

    def note(_conn: object, _cursor: object, query: str, parameters: Any, *_: object) -> None:
        asked.append((query, parameters))

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    how = "EXPLAIN QUERY PLAN" if storage.db.is_sqlite else "EXPLAIN"
    queries = [(query, parameters) for query, parameters in asked if query.startswith(("SELECT", "WITH"))]
    with engine.connect() as conn:
        if not storage.db.is_sqlite:
            for way in ("seqscan", "bitmapscan"):
                conn.execute(sa.text(f"SET LOCAL enable_{way} = off"))
        plans = [conn.exec_driver_sql(f"{how} {query}", parameters).all() for query, parameters in queries]
    return [(query, "\n".join(str(row[-1]) for row in plan)) for (query, _), plan in zip(queries, plans, strict=True)]


def steps_of(storage: Storage, work: Callable[[], object]) -> int:
    """Return how many steps SQLite's virtual machine takes for the work: a measure that no load of the machine
    changes."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def watch(raw: Any, *_: object) -> None:
        raw.set_progress_handler(step, 1)

    def leave(raw: Any, *_: object) -> None:
        raw.set_progress_handler(None, 1)

    for name, listener in (("checkout", watch), ("checkin", leave)):
        sa.event.listen(storage.db.engine, name, listener)
    try:
        work()
    finally:
        for name, listener in (("checkout", watch), ("checkin", leave)):
            sa.event.remove(storage.db.engine, name, listener)
    assert steps, "SQLite has done nothing"
    return steps
