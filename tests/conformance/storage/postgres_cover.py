"""The choice of tests that ``make test`` runs on PostgreSQL as well as on SQLite.

Together they run each statement, and meet each error of the server, that all tests of this folder run and meet there.
``postgres_repeats.txt`` names the other ones: their statements on PostgreSQL are a repetition, which is nightly. A new
test is not among them. This command chooses again, from a run of all tests on PostgreSQL:

    .venv/bin/pytest -p tests.conformance.storage.postgres_cover -k postgres tests/conformance/storage
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import sqlalchemy as sa

FILE = Path(__file__).with_name("postgres_repeats.txt")
KEPT = ("test_concurrency.py", "test_interleaved.py", "test_migrations.py")
"""Modules about what databases do differently; none of their tests is a repetition."""
POSTGRES = "postgres"


def name_of(item: pytest.Item) -> str:
    """Return ``file::function``, which stands for the test with all its values."""
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


def is_on_postgres(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    is_chosen = call is not None and call.params.get("url") == POSTGRES
    return is_chosen or POSTGRES in getattr(item, "fixturenames", ())


def load() -> frozenset[str]:
    """Return the names of the tests that are nightly on PostgreSQL."""
    return frozenset(FILE.read_text(encoding="utf-8").split())


def choose(statements: Mapping[str, frozenset[str]], seconds: Mapping[str, float]) -> set[str]:
    """Return tests that run all the statements, by preference the ones that run most of the missing ones per second."""
    chosen = {name for name in statements if name.partition("::")[0] in KEPT}
    missing = frozenset().union(*statements.values()) - frozenset().union(*(statements[name] for name in chosen))
    while missing:
        best = max(sorted(statements), key=lambda name: len(statements[name] & missing) / seconds[name])
        chosen.add(best)
        missing -= statements[best]
    return chosen


def _shape_of(statement: str) -> str:
    """Return the statement without the number of its values and the numbers in the names of its parameters."""
    text = re.sub(r"%\(\w+\)s(::[\w\[\]]+)?", "?", statement)
    text = re.sub(r"\(\?(, \?)*\)(, \(\?(, \?)*\))*", "(?)", text)
    return re.sub(r"_\d+", "_N", text)


class Recorder:
    def __init__(self) -> None:
        self._running: set[str] = set()
        self._statements: dict[str, frozenset[str]] = defaultdict(frozenset)
        self._seconds: dict[str, float] = defaultdict(float)
        sa.event.listen(sa.Engine, "before_cursor_execute", self._record_statement)
        sa.event.listen(sa.Engine, "handle_error", self._record_error)

    def _record_statement(self, connection: sa.Connection, cursor: object, statement: str, *_: object) -> None:
        if connection.dialect.name == "postgresql":
            self._running.add(_shape_of(statement))

    def _record_error(self, context: sa.ExceptionContext) -> None:
        if context.dialect.name == "postgresql" and context.statement is not None:
            self._running.add(f"{type(context.original_exception).__name__}: {_shape_of(context.statement)}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Record what the test itself does, and its fixtures' time, which all of them have, neither."""
        self._running, began_s = set(), time.monotonic()
        yield
        if is_on_postgres(item):
            name = name_of(item)
            self._statements[name] |= self._running
            self._seconds[name] += time.monotonic() - began_s

    def pytest_sessionfinish(self) -> None:
        repeats = sorted(self._statements.keys() - choose(self._statements, self._seconds))
        FILE.write_text("\n".join((*repeats, "")), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder())
