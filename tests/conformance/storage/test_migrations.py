"""The schema that migrations make is the schema that the program is written for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from peloton.api.convert import JOB_STATE_NUMBERS
from peloton.errors import Unavailable
from peloton.model.job import JOB_TERMINAL
from services.storage import migrate
from services.storage.engine import Database
from services.storage.tables import FINISHED_STATES, METADATA
from tests.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.create_database()


def test_migrations_make_the_schema_of_the_tables(url: str) -> None:
    """After all migrations nothing is left that autogeneration would change."""
    db = Database(url)

    differences = db.read(lambda conn: compare_metadata(MigrationContext.configure(conn), METADATA))

    db.close()
    assert [] == differences
    migrate.check(url)


def test_an_old_schema_is_refused(empty: str) -> None:
    """Without its migrations a database is not used."""
    with pytest.raises(Unavailable, match=f"is at nothing, needed is {migrate.newest()}: migrate it first"):
        migrate.check(empty)


@pytest.mark.parametrize(
    ("found", "wanted", "works"),
    [
        ("0012_from_0009", "0009", True),
        ("0012_from_0009", "0011_from_0009", True),
        ("0012_from_0010", "0009", False),
        ("0010", "0009", False),
        ("0009", "0010_from_0009", False),
        ("", "0009", False),
        ("0009", "0009", True),
    ],
)
def test_a_program_works_on_a_newer_schema_that_says_so(found: str, wanted: str, works: bool) -> None:
    """From the oldest version that the newer one names; never on an older one."""
    assert works == migrate.works_on(found, wanted)


@pytest.mark.parametrize(("oldest", "is_refused"), [(0, False), (1, True)])
def test_a_process_of_the_release_before_meets_a_newer_schema(empty: str, oldest: int, is_refused: bool) -> None:
    """It goes on and leaves the schema as it is, or refuses to start when the schema has left out its version."""
    migrate.upgrade(empty)
    number = int(migrate.newest()[:4])
    newer = f"{number + 1:04}_from_{number + oldest:04}"
    db = Database(empty)
    db.write(lambda conn: conn.execute(sa.text(f"UPDATE alembic_version SET version_num = '{newer}'")))

    if is_refused:
        with pytest.raises(Unavailable, match=f"is at {newer}, needed is {migrate.newest()}"):
            migrate.check(empty)
    else:
        migrate.upgrade(empty)
        migrate.check(empty)
        found = db.read(lambda conn: conn.execute(sa.text("SELECT version_num FROM alembic_version")).scalar())
        assert newer == found
    db.close()


def test_upgrades_may_race(empty: str) -> None:
    """Several processes that upgrade at once end with one schema."""
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(migrate.upgrade, empty) for _ in range(3)]:
            done.result()

    migrate.check(empty)


def test_migrations_can_be_taken_back(empty: str) -> None:
    """Down to nothing and up again."""
    migrate.upgrade(empty)
    db = Database(empty)

    db.write(lambda conn: command.downgrade(migrate.configuration(conn), "base"))

    assert ["alembic_version"] == db.read(lambda conn: sa.inspect(conn).get_table_names())
    db.close()
    migrate.upgrade(empty)
    migrate.check(empty)


def test_the_index_of_active_jobs_knows_the_terminal_states() -> None:
    """The numbers in the index are those of the states."""
    assert sorted(FINISHED_STATES) == sorted(JOB_STATE_NUMBERS[state] for state in JOB_TERMINAL)
