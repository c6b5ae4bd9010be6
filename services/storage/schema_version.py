"""The schema's version: which one a database has, and whether this program works on it.

A version is the revision of its last migration. Migrations only expand what the release before uses, so that its
processes go on while those of the next one take their places: ``0012_from_0009`` is the twelfth version, on which
programs work that need any version from the ninth on.

The version is recorded in the table ``schema_version``. Release 0.1 reads alembic's own ``alembic_version``, and starts
only if it finds exactly the version that it needs: that table says so for as long as 0.1 works on the schema.

Each process looks at it when it starts, so it is read without alembic, which takes a tenth of such a start to load.
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
    """The version of the schema of a database; empty when it has none. Raises Unavailable."""
    db = opened(url)
    try:
        return db.read(found)
    except (sa.exc.OperationalError, Unavailable) as error:
        raise unreachable(url, error) from error
    finally:
        db.close()


def check(url: str) -> None:
    """Raises Unavailable when this program does not work on the schema."""
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
    """The version that this program makes: its last migration's."""
    last = max((MIGRATIONS / "versions").glob("[0-9]*.py"))
    revision = _REVISION.search(last.read_text(encoding="utf-8"))
    assert revision, f"{last} names no revision"
    return revision[1]


def works_on(found: str, wanted: str) -> bool:
    """Whether a program that needs the version ``wanted`` works on ``found``."""
    have, need = _VERSION.fullmatch(found), _VERSION.fullmatch(wanted)
    if have is None or need is None:
        return False
    return int(have["oldest"] or have["number"]) <= int(need["number"]) <= int(have["number"])


def found(conn: sa.Connection) -> str:
    """The database's; empty when it has none."""
    inspector = sa.inspect(conn)
    for table in (TABLE, TABLE_OF_0_1):
        if inspector.has_table(table):
            version = sa.select(sa.column("version_num", sa.Text)).select_from(sa.table(table))
            return conn.execute(version).scalar() or ""
    return ""


def shown_to_0_1(version: str) -> str:
    """What release 0.1 finds: the version that it needs, or another one if it does not work on ``version``."""
    return _VERSION_OF_0_1 if works_on(version, _VERSION_OF_0_1) else version


def opened(url: str) -> Database:
    """Raises InvalidArgument for a URL of no database."""
    try:
        return Database(url)
    except (sa.exc.ArgumentError, ImportError) as error:  # ArgumentError includes unknown dialects
        raise InvalidArgument(f"database URL {url!r}: {error}") from error


def unreachable(url: str, error: sa.exc.OperationalError | Unavailable) -> Unavailable:
    why = error.message if isinstance(error, Unavailable) else str(error.orig)
    return Unavailable(f"database {_shown(url)} cannot be used: {' '.join(why.split())}")


def _shown(url: str) -> str:
    """Without the password."""
    return sa.make_url(url).render_as_string()
