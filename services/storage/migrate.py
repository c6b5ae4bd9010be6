"""Upgrade of a database to the newest version of the schema (``schema_version``)."""

from __future__ import annotations

import threading

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from peloton.errors import Unavailable
from services.storage import schema_version

_UPGRADE_LOCK = 7_305_012
"""Number of the PostgreSQL advisory lock held during an upgrade; any fixed number would do."""
_ALEMBIC_LOCK = threading.Lock()  # alembic keeps the running migration in module variables


def upgrade(url: str) -> None:
    """Create or upgrade the schema, unless it is newer. Safe to call from several processes and threads at once."""
    db = schema_version.open_database(url)

    def work(conn: sa.Connection) -> None:
        if not db.is_sqlite:
            conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        found = schema_version.read_version(conn)
        if not _is_newer(found):
            shown = schema_version.shown_to_0_1(schema_version.newest())
            start = _start_version(found)
            if start != found and sa.inspect(conn).has_table(schema_version.TABLE):
                conn.execute(sa.delete(sa.table(schema_version.TABLE)))  # alembic refuses to replace a version it lacks
            _context(conn, schema_version.TABLE).stamp(_scripts(), start)
            command.upgrade(configuration(conn), "head")
            _context(conn, schema_version.TABLE_OF_0_1).stamp(_scripts(), shown)

    try:
        with _ALEMBIC_LOCK:
            db.write(work)
    except (sa.exc.OperationalError, Unavailable) as error:
        raise schema_version.unreachable(url, error) from error
    finally:
        db.close()


def _is_newer(found: str) -> bool:
    """Return whether the schema is newer than this release, which a process of the release before may also find."""
    newest = schema_version.newest()
    return found != newest and schema_version.works_on(found, newest)


def _start_version(found: str) -> str:
    """Return the version from which to upgrade.

    A version between two releases has no migration: the one of the next release creates what is missing.
    """
    known = {script.revision for script in _scripts().walk_revisions()}
    if not found or found in known:
        return found
    return max((version for version in known if version[:4] < found[:4]), default=found)


def _context(conn: sa.Connection, table: str) -> MigrationContext:
    """Return a context that reads and writes the version in a table of alembic's form."""
    return MigrationContext.configure(conn, opts={"version_table": table})


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(configuration())


def configuration(conn: sa.Connection | None = None) -> Config:
    """Return alembic's configuration without a file; ``conn`` is the open transaction for its commands."""
    config = Config()
    config.set_main_option("script_location", str(schema_version.MIGRATIONS))
    config.attributes["version_table"] = schema_version.TABLE
    config.attributes["connection"] = conn
    return config
