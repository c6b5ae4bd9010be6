"""The schema's versions: bring a database to the newest one, or say that it is not there."""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from peloton.errors import InvalidArgument, Unavailable
from services.storage.engine import Database

_UPGRADE_LOCK = 7_305_012
"""Number of the advisory lock under which PostgreSQL is upgraded; any fixed number would do."""
_one_at_a_time = threading.Lock()  # alembic keeps the migration that runs in variables of its modules


def upgrade(url: str) -> None:
    """Create or upgrade the schema. Safe to call from several processes and threads at once."""
    db = _open(url)

    def work(conn: sa.Connection) -> None:
        if not db.is_sqlite:
            conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        command.upgrade(configuration(conn), "head")

    try:
        with _one_at_a_time:
            db.write(work)
    except (sa.exc.OperationalError, Unavailable) as error:
        raise _unreachable(url, error) from error
    finally:
        db.close()


def check(url: str) -> None:
    """Raises Unavailable when the schema is not the one this program needs."""
    db = _open(url)
    try:
        found = db.read(lambda conn: MigrationContext.configure(conn).get_current_revision())
    except (sa.exc.OperationalError, Unavailable) as error:
        raise _unreachable(url, error) from error
    finally:
        db.close()
    wanted = ScriptDirectory.from_config(configuration()).get_current_head()
    if found != wanted:
        raise Unavailable(
            f"schema of database {_shown(url)} is at {found or 'nothing'}, needed is {wanted}: migrate it first "
            f"(peloton serve --migrate)"
        )


def configuration(conn: sa.Connection | None = None) -> Config:
    """For alembic's commands, without a file; ``conn`` is the open transaction they are to work in."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
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
