"""Version of the schema: the one of a database, and whether this program is compatible with it.

A version is the revision of its last migration. Migrations only add to the schema of the release before, so its
processes continue while the next release replaces them: ``0012_from_0009`` is the twelfth version, with which programs
that require any version from the ninth on are compatible.

The version is recorded in the table ``schema_version``. Release 0.1 reads alembic's own ``alembic_version``, and starts
only if it finds exactly its own version: that table shows that version as long as 0.1 is compatible.

Each process checks the version at its start, so it is read without alembic, whose import takes a tenth of the start.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from peloton.errors import InvalidArgument, Unavailable
from services.storage.engine import Database

log = logging.getLogger(__name__)

TABLE = "schema_version"
TABLE_OF_0_1 = "alembic_version"
MIGRATIONS = Path(__file__).parent / "migrations"
_VERSION = re.compile(r"(?P<number>\d{4})(_from_(?P<oldest>\d{4}))?")
_REVISION = re.compile(r'^revision = "(.+)"$', re.MULTILINE)
_VERSION_OF_0_1 = "0009"


def of(url: str) -> str:
    """Return the version of the schema of a database; empty when it has none. Raises Unavailable.

    A file of SQLite that does not exist is not created.
    """
    if is_missing_file(url):
        return ""
    db = open_database(url)
    try:
        return db.read(read_version)
    except (sa.exc.OperationalError, Unavailable) as error:
        raise unreachable(url, error) from error
    finally:
        db.close()


def check(url: str) -> None:
    """Check that this program works on the schema of the database. Raises Unavailable when it does not."""
    have, wanted = of(url), newest()
    if have != wanted and works_on(have, wanted):
        log.info("schema of database %s is at %s, newer than the %s of this program", _shown(url), have, wanted)
    elif have != wanted:
        raise Unavailable(
            f"schema of database {_shown(url)} is at {have or 'nothing'}, needed is {wanted}: upgrade it first "
            f"(peloton admin upgrade-schema)"
        )


@cache
def newest() -> str:
    """Return the version that this program creates, which is its last migration's."""
    last = max((MIGRATIONS / "versions").glob("[0-9]*.py"))
    revision = _REVISION.search(last.read_text(encoding="utf-8"))
    assert revision, f"{last} names no revision"
    return revision[1]


def works_on(found: str, wanted: str) -> bool:
    """Return whether a program that requires the version ``wanted`` is compatible with ``found``."""
    have, need = _VERSION.fullmatch(found), _VERSION.fullmatch(wanted)
    if have is None or need is None:
        return False
    return int(have["oldest"] or have["number"]) <= int(need["number"]) <= int(have["number"])


def read_version(conn: sa.Connection) -> str:
    """Return the version of the database; "" when it has none. Raises Unavailable for one that is not UTF-8."""
    if conn.dialect.name == "postgresql":
        _check_encoding(conn)
    inspector = sa.inspect(conn)
    for table in (TABLE, TABLE_OF_0_1):
        if inspector.has_table(table):
            version = sa.select(sa.column("version_num", sa.Text)).select_from(sa.table(table))
            return conn.execute(version).scalar() or ""
    return ""


def _check_encoding(conn: sa.Connection) -> None:
    encoding = conn.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise Unavailable(
            f"its encoding is {encoding}, and texts of jobs need UTF8: create it by "
            "CREATE DATABASE ... TEMPLATE template0 ENCODING 'UTF8'"
        )


def shown_to_0_1(version: str) -> str:
    """Return the version to show to release 0.1: its own, or ``version`` if 0.1 is not compatible with that."""
    return _VERSION_OF_0_1 if works_on(version, _VERSION_OF_0_1) else version


def is_missing_file(url: str) -> bool:
    """Return whether the URL names a file of SQLite that does not exist."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        return False  # refused, with its reason, where it is opened
    path = (parsed.database or "") if parsed.get_backend_name() == "sqlite" else ""
    return bool(path) and path != ":memory:" and not Path(path).exists()


def open_database(url: str) -> Database:
    """Open a database. Raises InvalidArgument for an invalid URL."""
    try:
        return Database(url)
    except (sa.exc.ArgumentError, ImportError) as error:  # ArgumentError includes unknown dialects
        raise InvalidArgument(f"database URL {url!r}: {error}") from error


def unreachable(url: str, error: sa.exc.OperationalError | Unavailable) -> Unavailable:
    why = error.message if isinstance(error, Unavailable) else str(error.orig)
    return Unavailable(f"database {_shown(url)} cannot be used: {' '.join(why.split())}")


def _shown(url: str) -> str:
    """Return the URL without its password."""
    return sa.make_url(url).render_as_string()
