"""The schema's versions: bring a database to the newest one, or say that it is not there.

A version is the revision of its last migration. Migrations only expand what the release before uses, so that its
processes go on while those of the next one take their places: ``0012_from_0009`` is the twelfth version, on which
programs work that need any version from the ninth on.

The version is recorded in the table ``schema_version``. Release 0.1 reads alembic's own ``alembic_version``, and starts
only if it finds exactly the version that it needs: that table says so for as long as 0.1 works on the schema.
"""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from peloton.errors import InvalidArgument, Unavailable
from services.storage.engine import Database

log = logging.getLogger(__name__)

_VERSION = re.compile(r"(?P<number>\d{4})(_from_(?P<oldest>\d{4}))?")
_UPGRADE_LOCK = 7_305_012
"""Number of the advisory lock under which PostgreSQL is upgraded; any fixed number would do."""
_VERSION_OF_0_1 = "0009"
_TABLE_OF_0_1 = "alembic_version"
_TABLE = "schema_version"
_one_at_a_time = threading.Lock()  # alembic keeps the migration that runs in variables of its modules


def upgrade(url: str) -> None:
    """Create or upgrade the schema, unless it is newer. Safe to call from several processes and threads at once."""
    db = _open(url)

    def work(conn: sa.Connection) -> None:
        if not db.is_sqlite:
            conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        found = _found(conn)
        if not _is_newer(found):
            _context(conn, _TABLE).stamp(_scripts(), found)
            command.upgrade(configuration(conn), "head")
            _context(conn, _TABLE_OF_0_1).stamp(_scripts(), shown_to_0_1(newest()))

    try:
        with _one_at_a_time:
            db.write(work)
    except (sa.exc.OperationalError, Unavailable) as error:
        raise _unreachable(url, error) from error
    finally:
        db.close()


def check(url: str) -> None:
    """Raises Unavailable when this program does not work on the schema."""
    db = _open(url)
    try:
        found = db.read(_found)
    except (sa.exc.OperationalError, Unavailable) as error:
        raise _unreachable(url, error) from error
    finally:
        db.close()
    wanted = newest()
    if found != wanted and works_on(found, wanted):
        log.info("schema of database %s is at %s, newer than the %s of this program", _shown(url), found, wanted)
    elif found != wanted:
        raise Unavailable(
            f"schema of database {_shown(url)} is at {found or 'nothing'}, needed is {wanted}: migrate it first "
            f"(peloton serve --migrate)"
        )


def newest() -> str:
    """The version that this program makes."""
    return _scripts().get_current_head() or ""


def works_on(found: str, wanted: str) -> bool:
    """Whether a program that needs the version ``wanted`` works on ``found``."""
    have, need = _VERSION.fullmatch(found), _VERSION.fullmatch(wanted)
    if have is None or need is None:
        return False
    return int(have["oldest"] or have["number"]) <= int(need["number"]) <= int(have["number"])


def _found(conn: sa.Connection) -> str:
    return _context(conn, _TABLE if sa.inspect(conn).has_table(_TABLE) else _TABLE_OF_0_1).get_current_revision() or ""


def shown_to_0_1(version: str) -> str:
    """What release 0.1 finds: the version that it needs, or another one if it does not work on ``version``."""
    return _VERSION_OF_0_1 if works_on(version, _VERSION_OF_0_1) else version


def _context(conn: sa.Connection, table: str) -> MigrationContext:
    """Reads and writes the version in a table of alembic's form."""
    return MigrationContext.configure(conn, opts={"version_table": table})


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(configuration())


def _is_newer(found: str) -> bool:
    """A process of the release before may be told to migrate, too."""
    return found != newest() and works_on(found, newest())


def configuration(conn: sa.Connection | None = None) -> Config:
    """For alembic's commands, without a file; ``conn`` is the open transaction they are to work in."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["version_table"] = _TABLE
    config.attributes["connection"] = conn
    return config


def _open(url: str) -> Database:
    try:
        return Database(url)
    except (sa.exc.ArgumentError, ImportError) as error:  # ArgumentError includes unknown dialects
        raise InvalidArgument(f"database URL {url!r}: {error}") from error


def _unreachable(url: str, error: sa.exc.OperationalError | Unavailable) -> Unavailable:
    why = error.message if isinstance(error, Unavailable) else str(error.orig)
    return Unavailable(f"database {_shown(url)} cannot be used: {' '.join(why.split())}")


def _shown(url: str) -> str:
    """Without the password."""
    return sa.make_url(url).render_as_string()
