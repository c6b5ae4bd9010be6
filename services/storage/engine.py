"""Access to SQLite and PostgreSQL: connections, transactions, locks, and the few statements that differ.

A transaction that writes pods of a job locks the job first: its row on PostgreSQL, the whole file on SQLite, which
allows one writer at a time. The transaction can therefore read, decide in Python and write its decision.
"""

from __future__ import annotations

import copy
import fcntl
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import ref

import orjson
import sqlalchemy as sa
from opentelemetry.metrics import CallbackOptions, Observation
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, OperationalError

from peloton.errors import ResourceExhausted, Unavailable
from peloton.extras import require_extra
from services.storage.prepared import id_to_sqlite
from services.storage.sqlite_files import fault_of
from services.storage.tables import COUNTER, JOB
from services.telemetry.metrics import counter, histogram, register_gauge, timing

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R", bound="Repository")

ATTEMPTS_MAX = 6
"""Attempts of a transaction that conflicts with others."""
BUSY_TIMEOUT_MS = 30_000
POOL_SIZE = 16
_STEPS_PER_CHECK = 10_000
"""Steps of SQLite between two looks at the clock."""
_CANCELLED_STATE = "57014"  # by statement_timeout
_LOST_RACE_STATES = frozenset({"40001", "40P01"})  # serialization failure, deadlock
_UNAVAILABLE_STATES = frozenset({"57P01", "57P02", "57P03", "53300"})  # stopping, crashed, starting, full


_DURATIONS = histogram("peloton.db.duration")
_ERRORS = counter("peloton.db.errors")
_RETRIES = counter("peloton.db.retries")


class WriterTurn:
    """Fair lock for the writers of an SQLite file, across processes.

    SQLite makes a waiting writer poll with growing pauses of up to 100 ms, so a busy process can starve the others for
    seconds and leaders lose their leases. These file locks queue writers in the kernel instead. Only the holder of the
    gate waits for the turn, so a process that has just written cannot overtake one that waits.
    """

    def __init__(self, path: str) -> None:
        self._gate = open(f"{path}-gate", "ab")  # noqa: SIM115, open as long as this
        self._turn = open(f"{path}-turn", "ab")  # noqa: SIM115
        self._in_process = threading.Lock()

    def close(self) -> None:
        self._gate.close()
        self._turn.close()

    @contextmanager
    def hold(self) -> Iterator[None]:
        with self._in_process:
            fcntl.flock(self._gate, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._turn, fcntl.LOCK_EX)
            finally:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
            try:
                yield
            finally:
                fcntl.flock(self._turn, fcntl.LOCK_UN)


class Database:
    """Thread-safe database access shared by all repositories.

    ``url`` is ``sqlite:///file`` or ``postgresql://...``. ``clock_ns`` dates writes whose callers pass no time.
    """

    def __init__(self, url: str, pool_size: int = POOL_SIZE, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.clock_ns = clock_ns
        self.engine = make_engine(url, pool_size)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._path = (self.engine.url.database or "") if self.is_sqlite else ""
        self._turn = WriterTurn(self._path) if self.is_sqlite else None
        self._labels = {"database": self.engine.dialect.name}
        self._reads, self._writes = {**self._labels, "work": "read"}, {**self._labels, "work": "write"}
        register_gauge("peloton.db.connections", partial(_count_connections, ref(self.engine), self._labels))
        self._check: Callable[[sa.Connection], None] | None = None

    def with_fence(self, check: Callable[[sa.Connection], None]) -> Database:
        """Return the same database, whose write transactions begin with ``check`` and end if that raises."""
        fenced = copy.copy(self)
        fenced._check = check
        return fenced

    def close(self) -> None:
        self.engine.dispose()
        if self._turn is not None:
            self._turn.close()

    @contextmanager
    def reading(self, timeout_s: float = 0) -> Iterator[sa.Connection]:
        """Open a read transaction on one consistent snapshot. Raises Unavailable.

        ``timeout_s`` bounds the transaction on SQLite and each statement on PostgreSQL. Raises ResourceExhausted.
        """
        with timing(_DURATIONS, self._reads), self._translating(), self.engine.connect() as conn:
            if not self.is_sqlite:
                conn.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            if not timeout_s:
                yield conn
                return
            with _limit_time(conn, timeout_s):
                yield conn

    def read(self, work: Callable[[sa.Connection], T], timeout_s: float = 0) -> T:
        with self.reading(timeout_s) as conn:
            return work(conn)

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run ``work`` in a write transaction and commit; retries after conflicts. Raises Unavailable."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                with timing(_DURATIONS, self._writes), self._translating():
                    return self._write_once(work)
            except DBAPIError as error:
                if not is_lost_race(error):
                    raise
                _RETRIES.add(1, self._labels)
                if attempt == ATTEMPTS_MAX:
                    raise Unavailable(
                        f"storage is busy: gave up after {ATTEMPTS_MAX} attempts: {error.orig}"
                    ) from error
        raise AssertionError("unreachable")

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            with _translate_errors(self._path):
                yield
        except (Unavailable, DBAPIError) as error:
            _ERRORS.add(1, {**self._labels, "error": _kind_of(error)})
            raise

    def _write_once(self, work: Callable[[sa.Connection], T]) -> T:
        if self._turn is None:
            with self.engine.begin() as conn:
                return self._do(work, conn)
        with self._turn.hold(), self.engine.connect() as conn:
            conn.execution_options(peloton_writes=True)
            with conn.begin():
                return self._do(work, conn)

    def _do(self, work: Callable[[sa.Connection], T], conn: sa.Connection) -> T:
        if self._check is not None:
            self._check(conn)
        return work(conn)

    def upsert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """Return an insert that supports ON CONFLICT."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)


class Repository:
    """Base of repositories, whose methods are transactions."""

    def __init__(self, db: Database) -> None:
        self._db = db


def reading(method: Callable[Concatenate[R, sa.Connection, P], T]) -> Callable[Concatenate[R, P], T]:
    """Decorate a method that reads in one transaction, whose connection it receives first."""

    @wraps(method)
    def transaction(self: R, /, *args: P.args, **named: P.kwargs) -> T:
        return self._db.read(lambda conn: method(self, conn, *args, **named))

    return transaction


def writing(method: Callable[Concatenate[R, sa.Connection, P], T]) -> Callable[Concatenate[R, P], T]:
    """Decorate a method that writes in one transaction, and runs again after a conflict."""

    @wraps(method)
    def transaction(self: R, /, *args: P.args, **named: P.kwargs) -> T:
        return self._db.write(lambda conn: method(self, conn, *args, **named))

    return transaction


def make_engine(url: str, pool_size: int = POOL_SIZE) -> sa.Engine:
    """Create an engine; ``pool_size`` PostgreSQL connections stay open, and as many again open on demand."""
    parsed = sa.make_url(url)
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername == "postgresql+psycopg":
        require_extra("postgres", "psycopg", "PostgreSQL")
    if parsed.get_backend_name() != "sqlite":
        return sa.create_engine(
            parsed,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"client_encoding": "utf8"},  # texts are bytes otherwise, if the database has no encoding
        )
    engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}, hide_parameters=True)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite
    for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "journal_mode=WAL", "synchronous=NORMAL", "cache_size=-65536"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(conn: sa.Connection) -> None:
    # A transaction that reads first and writes later would fail instead of waiting for the lock.
    writes = conn.get_execution_options().get("peloton_writes", False)
    conn.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _limit_time(conn: sa.Connection, timeout_s: float) -> Iterator[None]:
    """Interrupt queries that take longer. Raises ResourceExhausted."""
    raw: Any = conn.connection.driver_connection
    if conn.dialect.name == "sqlite":
        deadline_s = time.monotonic() + timeout_s
        raw.set_progress_handler(lambda: time.monotonic() > deadline_s, _STEPS_PER_CHECK)
    else:
        conn.exec_driver_sql(f"SET LOCAL statement_timeout = {int(timeout_s * 1_000)}")
    try:
        yield
    except DBAPIError as error:
        code = getattr(error.orig, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_INTERRUPT or getattr(error.orig, "sqlstate", None) == _CANCELLED_STATE:
            raise ResourceExhausted(
                f"query took longer than {timeout_s:g} s: add conditions that fewer rows meet"
            ) from error
        raise
    finally:
        if conn.dialect.name == "sqlite":
            raw.set_progress_handler(None, 0)


def _count_connections(engine: ref[sa.Engine], labels: Mapping[str, str], _: CallbackOptions) -> Iterable[Observation]:
    """Yield the connections in use, while the database is open."""
    if (found := engine()) is not None and isinstance(found.pool, sa.QueuePool):
        yield Observation(found.pool.checkedout(), labels)


def _kind_of(error: Exception) -> str:
    if isinstance(error, DBAPIError):
        return "conflict" if is_lost_race(error) else "other"
    return "unavailable"


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Raise Unavailable when the database is unreachable, disconnects, or its file is unusable."""
    try:
        yield
    except sqlite3.DatabaseError as error:  # raised while connecting
        if fault := fault_of(error, path):
            raise Unavailable(f"storage file {fault}") from error
        raise
    except DBAPIError as error:
        if fault := fault_of(error.orig, path):
            raise Unavailable(f"storage file {fault}") from error
        if error.connection_invalidated or _is_unavailable(error):
            raise Unavailable(f"storage does not answer: {error.orig}") from error
        raise


def _is_unavailable(error: DBAPIError) -> bool:
    """Return whether PostgreSQL is unreachable (no error state), starting, stopping, or out of connections."""
    state = getattr(error.orig, "sqlstate", "")
    return isinstance(error, OperationalError) and (state is None or state in _UNAVAILABLE_STATES)


def is_lost_race(error: DBAPIError) -> bool:
    """Return whether the transaction lost a conflict: it changed nothing and can be retried."""
    if isinstance(error.orig, sqlite3.OperationalError):
        return "locked" in str(error.orig) or "busy" in str(error.orig)
    return getattr(error.orig, "sqlstate", None) in _LOST_RACE_STATES


# Statements of nearly every transaction are built once: building one takes longer than running it.
_LOCKING_JOBS = (
    sa.select(JOB)
    .where(JOB.c.job_id.in_(sa.bindparam("of_jobs", expanding=True)))
    .order_by(JOB.c.job_id)
    .with_for_update(key_share=True)
)
_LOCKING_JOB = sa.select(JOB).where(JOB.c.job_id == sa.bindparam("of_job")).with_for_update(key_share=True)
_READING_JOB = sa.select(JOB).where(JOB.c.job_id == sa.bindparam("of_job"))
_OF_COUNTER = COUNTER.c.name == sa.bindparam("of_name")
_COUNTING = sa.update(COUNTER).where(_OF_COUNTER).values(value=COUNTER.c.value + sa.bindparam("taken"))
_READING_COUNTER = sa.select(COUNTER.c.value).where(_OF_COUNTER)


def lock_jobs(conn: sa.Connection, job_ids: Sequence[str]) -> list[sa.Row[Any]]:
    """Lock these jobs until the commit and return the rows of existing ones; locking in id order prevents deadlocks."""
    return list(conn.execute(_LOCKING_JOBS, {"of_jobs": sorted(set(job_ids))}))


def lock_job(conn: sa.Connection, job_id: str) -> sa.Row[Any] | None:
    return conn.execute(_LOCKING_JOB, {"of_job": job_id}).one_or_none()


def read_job_row(conn: sa.Connection, job_id: str) -> sa.Row[Any] | None:
    return conn.execute(_READING_JOB, {"of_job": job_id}).one_or_none()


@cache
def key_table(dialect: str) -> sa.FromClause:
    """Return a table ``k(job_id, instance_id)`` of keys that are sent as one or two parameters, see ``key_values``."""
    if dialect == "sqlite":
        each = sa.func.json_each(sa.bindparam("k_rows", type_=sa.Text)).table_valued("value")
        return sa.select(
            sa.func.json_extract(each.c.value, "$[0]").label("job_id"),
            sa.func.json_extract(each.c.value, "$[1]").label("instance_id"),
        ).subquery("k")
    jobs = sa.bindparam("k_jobs", type_=postgresql.ARRAY(sa.Uuid(as_uuid=False)))
    instances = sa.bindparam("k_instances", type_=postgresql.ARRAY(sa.BigInteger()))
    return (
        sa.func.unnest(jobs, instances)
        .table_valued(sa.column("job_id", sa.Uuid(as_uuid=False)), sa.column("instance_id", sa.BigInteger()))
        .render_derived("k")
    )


def key_values(dialect: str, keys: Sequence[tuple[str, int]]) -> dict[str, Any]:
    if dialect == "sqlite":
        return {"k_rows": orjson.dumps([(id_to_sqlite(job), instance) for job, instance in keys]).decode()}
    return {"k_jobs": [job for job, _ in keys], "k_instances": [instance for _, instance in keys]}


def take_numbers(conn: sa.Connection, name: str, count: int) -> int:
    """Take ``count`` numbers in the order of commits and return the first; others wait until this transaction ends."""
    conn.execute(_COUNTING, {"of_name": name, "taken": count})
    return int(conn.execute(_READING_COUNTER, {"of_name": name}).scalar_one()) - count + 1
