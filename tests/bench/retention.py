"""Months of jobs in minutes: retention holds the size of the database, memory and the time of queries.

Three million jobs a month of one pod each, divided by SCALE. Each simulated day a real job's rows are copied with other
ids and times, then the round of that day deletes and archives what is too old. The clock is simulated, transactions,
archive and queries are real; pauses between transactions are counted and not slept.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from peloton.lifecycle.retention import DAY_NS
from services.retention.archive import Archive
from services.retention.composition import policy_of
from services.retention.runner import Retention
from services.retention.stores import FolderStore
from services.settings import Settings
from services.storage import migrate
from services.storage.jobs.search import JobQuery
from services.storage.retention.sizes import Sizes
from services.storage.storage import Storage
from services.storage.tables import JOB, JOB_CONFIG, POD, POD_EVENT, STATUS_LOG
from tests.bench.figures import rss_mib
from tests.conformance.storage import builders as world
from tests.postgres import running_postgres

JOBS_PER_MONTH, SCALE, DAYS, MONTH = 3_000_000, 100, 120, 30
COPIED = (JOB, JOB_CONFIG, POD, POD_EVENT)
ROWS_PER_WRITE = 5_000
COMMAND = "python -m tool.train --day 2026-11-27 --input s3://bucket/path/to/the/input --part " + "x" * 300
GIB_MAX = 10.0
"""Stated size of the database for three million jobs a month."""


@dataclass(frozen=True)
class Size:
    jobs_per_day: int = JOBS_PER_MONTH // MONTH // SCALE
    days: int = DAYS
    queries: int = 20


@dataclass
class Pace:
    """Simulated clock, and the pauses that were not slept."""

    now_ns: int = world.NOW
    paused_s: float = 0.0

    def clock(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.paused_s += seconds


@dataclass
class Month:
    """Measurements at the end of a month."""

    mib: float = 0.0
    rows: int = 0
    query_ms: float = 0.0
    rss_mib: float = 0.0
    deleted: int = 0
    busy_s: float = 0.0
    longest_ms: float = 0.0
    archived_mib: float = 0.0


@dataclass
class Template:
    """Rows of a job of one pod that has ended, by table."""

    rows: Mapping[sa.Table, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, storage: Storage) -> Template:
        config = world.a_config(1)
        config.defaultConfig.command.value = COMMAND
        job_id = world.create(storage, config)
        storage.pods.create(job_id, lambda _: None)
        storage.jobs.settle(job_id, world.NOW)
        world.run(storage, job_id)
        world.report(storage, job_id, [0], world.S)
        world.settle_all(storage, job_id)

        def work(conn: sa.Connection) -> dict[sa.Table, list[dict[str, Any]]]:
            return {
                table: [dict(row._mapping) for row in conn.execute(sa.select(table).where(table.c.job_id == job_id))]
                for table in COPIED
            }

        found = cls(storage.db.read(work))
        storage.jobs.delete(job_id)
        storage.db.write(lambda conn: conn.execute(sa.delete(STATUS_LOG)))
        return found

    def copies(self, table: sa.Table, ids: list[str], by_ns: int, day_ns: int) -> Iterator[dict[str, Any]]:
        for number, job_id in enumerate(ids):
            later_ns = by_ns + number * day_ns // len(ids)
            for row in self.rows[table]:
                times = {name: row[name] + later_ns for name in row if name.endswith("_ns") and row[name]}
                yield {**row, **times, "job_id": job_id}


def retention(size: Size = Size(), database: str = "") -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        url = database or f"sqlite:///{folder}/jobs.db"
        migrate.upgrade(url)
        pace = Pace()
        with closing(Storage(url, pace.clock)) as storage:
            months = asyncio.run(_live(storage, size, pace, Path(folder)))
    last, steady = months[-1], months[1:]
    scale = JOBS_PER_MONTH / MONTH / size.jobs_per_day
    gib = last.mib * scale / 1024
    return {
        "database": "postgresql" if database else "sqlite",
        "jobs_per_day": size.jobs_per_day,
        "scale": round(scale, 1),
        "months": [{name: round(value, 2) for name, value in vars(month).items()} for month in months],
        "gib_at_three_million_a_month": round(gib, 2),
        "growth_after_first_month": round(last.mib / steady[0].mib, 3),
        "query_growth": round(last.query_ms / steady[0].query_ms, 3),
        "memory_growth_mib": round(last.rss_mib - steady[0].rss_mib, 1),
        "paused_s": round(pace.paused_s, 1),
        "ratio_to_target": round(gib / GIB_MAX, 3),
    }


def retention_postgres(size: Size = Size()) -> dict[str, Any]:
    with running_postgres() as server:
        return retention(size, server.create_database())


async def _live(storage: Storage, size: Size, pace: Pace, folder: Path) -> list[Month]:
    template, sizes = Template.read(storage), Sizes(storage.db)
    archive = Archive(FolderStore(folder / "archive"))
    runner = Retention(storage, policy_of(Settings()), archive, pace.clock, pace.sleep)
    months, month = list[Month](), Month()
    with _watching(storage) as writes:
        for day in range(1, size.days + 1):
            begin_ns, pace.now_ns = pace.now_ns, pace.now_ns + DAY_NS
            _fill(storage, template, size.jobs_per_day, begin_ns - world.NOW)
            writes.clear()
            began_s = time.perf_counter()
            month.deleted += sum((await runner.once()).values())
            month.busy_s += time.perf_counter() - began_s
            month.longest_ms = max(month.longest_ms, *(seconds * 1_000 for seconds in writes), 0)
            _vacuum(storage)
            if day % MONTH == 0:
                months.append(_end(month, storage, sizes, size, folder))
                month = Month()
    return months


def _end(month: Month, storage: Storage, sizes: Sizes, size: Size, folder: Path) -> Month:
    found = sizes.read()
    month.rows = sum(max(one.row_count, 0) for one in found.values())
    if storage.db.is_sqlite:
        path = Path(storage.db.engine.url.database or "")
        month.mib = path.stat().st_size / 2**20
    else:
        month.mib = sum(max(one.byte_count, 0) for one in found.values()) / 2**20
    month.query_ms = statistics.median(_query_ms(storage) for _ in range(size.queries))
    month.rss_mib = rss_mib()
    month.archived_mib = sum(path.stat().st_size for path in (folder / "archive").rglob("*.zst")) / 2**20
    return month


def _vacuum(storage: Storage) -> None:
    """Stand in for autovacuum, which would have a day for what takes seconds here."""
    if not storage.db.is_sqlite:
        with storage.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.exec_driver_sql("VACUUM ANALYZE")


def _query_ms(storage: Storage) -> float:
    began_s = time.perf_counter()
    storage.search.query_jobs(JobQuery())
    return (time.perf_counter() - began_s) * 1_000


def _fill(storage: Storage, template: Template, count: int, by_ns: int) -> None:
    ids = [str(uuid.uuid4()) for _ in range(count)]
    for table in COPIED:
        rows = list(template.copies(table, ids, by_ns, DAY_NS))
        for start in range(0, len(rows), ROWS_PER_WRITE):
            some = rows[start : start + ROWS_PER_WRITE]
            storage.db.write(lambda conn, table=table, some=some: conn.execute(table.insert(), some))  # type: ignore[misc]


@contextmanager
def _watching(storage: Storage) -> Iterator[list[float]]:
    """Yield the seconds of each transaction that writes."""
    taken, original = list[float](), storage.db.write

    def write(work: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return original(work)
        finally:
            taken.append(time.perf_counter() - began_s)

    storage.db.write = write  # type: ignore[method-assign]
    try:
        yield taken
    finally:
        storage.db.write = original  # type: ignore[method-assign]
