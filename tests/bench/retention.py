"""Months of jobs in minutes: retention holds the size of the database, memory and the time of queries.

Three million jobs a month of one pod each, divided by SCALE. Each simulated day a real job's rows are copied with other
ids and times, then the rounds of that day delete and archive what is too old. The clock is simulated, transactions,
archive and queries are real; pauses between transactions are counted and not slept.

At full size a month would take hours to live, so ``retention_month`` begins with one that stands: three million jobs of
all ages, with as many pods and events as retention has left of them, stored in the order of their ids. Days follow at
full size.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from peloton.lifecycle.retention import DAY_NS, POD_EVENTS, PODS
from services.retention.archive import Archive
from services.retention.composition import policy_of
from services.retention.runner import Retention, RetentionPolicy
from services.retention.stores import FolderStore
from services.settings import Settings
from services.storage import migrate
from services.storage.jobs.search import JobQuery
from services.storage.retention.sizes import Sizes
from services.storage.storage import Storage
from services.storage.tables import JOB, JOB_CONFIG, POD, POD_EVENT, RETENTION_PROGRESS, STATUS_LOG
from tests.bench.figures import rss_mib
from tests.conformance.storage import builders as world
from tests.postgres import running_postgres

JOBS_PER_MONTH, SCALE, DAYS, MONTH = 3_000_000, 100, 120, 30
COPIED = (JOB, JOB_CONFIG, POD, POD_EVENT)
PRUNED = {PODS: POD, POD_EVENTS: POD_EVENT}
"""Tables whose rows go before their jobs."""
ROUNDS_PER_DAY = 144
"""Most rounds of a day; the last one finds nothing."""
JOBS_PER_WRITE = 2_000
SHUFFLE = 2_147_483_647
"""Prime by which the ages of standing jobs are spread over their ids."""
COMMAND = "python -m tool.train --day 2026-11-27 --input s3://bucket/path/to/the/input --part " + "x" * 300
GIB_MAX = 10.0
"""Stated size of the database for three million jobs a month."""


@dataclass(frozen=True)
class Size:
    jobs_per_day: int = JOBS_PER_MONTH // MONTH // SCALE
    days: int = DAYS
    queries: int = 20
    standing_days: int = 0
    days_per_line: int = MONTH


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
    """Measurements at the end of a month, or of another number of days."""

    mib: float = 0.0
    rows: int = 0
    query_ms: float = 0.0
    rss_mib: float = 0.0
    deleted: int = 0
    rounds: int = 0
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

    def copies(self, table: sa.Table, jobs: Iterable[tuple[str, int]]) -> Iterator[dict[str, Any]]:
        """Yield rows of jobs, each with how much later than the template it is."""
        for job_id, later_ns in jobs:
            for row in self.rows[table]:
                times = {name: row[name] + later_ns for name in row if name.endswith("_ns") and row[name]}
                yield {**row, **times, "job_id": job_id}


def retention(size: Size = Size(), database: str = "") -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        url = database or f"sqlite:///{folder}/jobs.db"
        migrate.upgrade(url)
        pace = Pace(world.NOW + size.standing_days * DAY_NS)
        with closing(Storage(url, pace.clock)) as storage:
            months = asyncio.run(_live(storage, size, pace, Path(folder)))
    last, steady = months[-1], months[1:]
    scale = JOBS_PER_MONTH / MONTH / size.jobs_per_day
    gib = last.mib * scale / 1024
    return {
        "database": "postgresql" if database else "sqlite",
        "jobs_per_day": size.jobs_per_day,
        "scale": round(scale, 1),
        "months" if size.days_per_line == MONTH else "days": [
            {name: round(value, 2) for name, value in vars(month).items()} for month in months
        ],
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


def retention_month() -> dict[str, Any]:
    """Three million jobs on SQLite, and two days more."""
    return retention(Size(JOBS_PER_MONTH // MONTH, days=2, standing_days=MONTH, days_per_line=1))


async def _live(storage: Storage, size: Size, pace: Pace, folder: Path) -> list[Month]:
    template, sizes = Template.read(storage), Sizes(storage.db)
    archive, policy = Archive(FolderStore(folder / "archive")), policy_of(Settings())
    runner = Retention(storage, policy, archive, pace.clock, pace.sleep)
    _stand(storage, template, size, policy)
    months, month = list[Month](), Month()
    if size.standing_days:
        months.append(_end(month, storage, sizes, size, folder))
        month = Month()
    with _watching(storage) as writes:
        for day in range(1, size.days + 1):
            begin_ns, pace.now_ns = pace.now_ns, pace.now_ns + DAY_NS
            _fill(storage, template, size.jobs_per_day, begin_ns - world.NOW)
            writes.clear()
            began_s = time.perf_counter()
            for _ in range(ROUNDS_PER_DAY):
                deleted = sum((await runner.once()).values())
                month.deleted += deleted
                month.rounds += 1
                if not deleted:
                    break
            month.busy_s += time.perf_counter() - began_s
            month.longest_ms = max(month.longest_ms, *(seconds * 1_000 for seconds in writes), 0)
            _vacuum(storage)
            if day % size.days_per_line == 0:
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
    """Store the jobs of a day."""
    for start in range(0, count, JOBS_PER_WRITE):
        numbers = range(start, min(start + JOBS_PER_WRITE, count))
        jobs = [(str(uuid.uuid4()), by_ns + number * DAY_NS // count) for number in numbers]
        for table in COPIED:
            _insert(storage, table, template.copies(table, jobs))


def _stand(storage: Storage, template: Template, size: Size, policy: RetentionPolicy) -> None:
    """Store jobs of all ages up to ``standing_days``, in the order of their ids, with what retention leaves of them."""
    count, span_ns = size.jobs_per_day * size.standing_days, size.standing_days * DAY_NS
    before_ns = {table: span_ns - policy.days[name] * DAY_NS for name, table in PRUNED.items()}
    for start in range(0, count, JOBS_PER_WRITE):
        numbers = range(start, min(start + JOBS_PER_WRITE, count))
        jobs = [(id_of(number, count), number * SHUFFLE % count * span_ns // count) for number in numbers]
        for table in COPIED:
            _insert(storage, table, template.copies(table, [one for one in jobs if one[1] >= before_ns.get(table, 0)]))
    if count:
        done = {"job_id": "", "instance_id": 0, "deleted_count": 0, "archived_bytes": 0, "ran_ns": 0, "note": ""}
        cursors = [{**done, "name": name, "ended_ns": world.NOW + before_ns[table]} for name, table in PRUNED.items()]
        _insert(storage, RETENTION_PROGRESS, cursors)


def id_of(number: int, count: int) -> str:
    """Return one of ``count`` ids that rise with their numbers."""
    return str(uuid.UUID(int=number * (2**128 // count)))


def _insert(storage: Storage, table: sa.Table, rows: Iterable[dict[str, Any]]) -> None:
    if some := list(rows):
        storage.db.write(lambda conn: conn.execute(table.insert(), some))


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
