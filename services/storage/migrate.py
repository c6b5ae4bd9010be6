"""The schema's versions: bring a database to the newest one, or say that it is not there."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from peloton.errors import Unavailable
from services.storage.engine import Database

_UPGRADE_LOCK = 7_305_012
"""Number of the advisory lock under which PostgreSQL is upgraded; any fixed number would do."""


def upgrade(url: str) -> None:
    """Create or upgrade the schema. Safe to call from several processes at once."""
    db = Database(url)

    def work(conn: sa.Connection) -> None:
        if not db.is_sqlite:
            conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        command.upgrade(configuration(conn), "head")

    try:
        db.write(work)
    finally:
        db.close()


def check(url: str) -> None:
    """Raises Unavailable when the schema is not the one this program needs."""
    db = Database(url)
    try:
        found = db.read(lambda conn: MigrationContext.configure(conn).get_current_revision())
    finally:
        db.close()
    wanted = ScriptDirectory.from_config(configuration()).get_current_head()
    if found != wanted:
        raise Unavailable(f"database schema is at {found or 'nothing'}, needed is {wanted}: run the migration first")


def configuration(conn: sa.Connection | None = None) -> Config:
    """For alembic's commands, without a file; ``conn`` is the open transaction they are to work in."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = conn
    return config
