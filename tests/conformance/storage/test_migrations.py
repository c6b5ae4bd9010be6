"""Migrations of the schema, whose result is the schema that the program requires."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from peloton.api.convert import JOB_STATE_NUMBERS
from peloton.errors import Unavailable
from peloton.model.job import JOB_TERMINAL
from services.storage import migrate, schema_version
from services.storage.engine import Database
from services.storage.jobs.search import JobQuery
from services.storage.storage import Storage
from services.storage.tables import FINISHED_STATES, METADATA
from tests.conformance.storage.builders import a_config, create
from tests.postgres import Postgres

VERSION_TABLES = ("schema_version", "alembic_version")


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.create_database()


def test_migrations_make_the_schema_of_the_tables(url: str) -> None:
    """Autogeneration finds no difference after all migrations."""
    db = Database(url)
    opts = {"include_name": lambda name, kind, _: kind != "table" or name not in VERSION_TABLES}

    differences = db.read(lambda conn: compare_metadata(MigrationContext.configure(conn, opts=opts), METADATA))

    db.close()
    assert [] == differences
    schema_version.check(url)


def test_the_newest_version_is_that_of_the_last_migration() -> None:
    """The newest version is read without alembic, and equals the one at which alembic ends."""
    assert ScriptDirectory.from_config(migrate.configuration()).get_current_head() == schema_version.newest()


def test_a_database_of_another_encoding_is_refused(postgres: Postgres) -> None:
    """The message says how to create the database; nothing is created in it."""
    url = postgres.create_database("template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'")

    for use in (migrate.upgrade, schema_version.check):
        with pytest.raises(Unavailable, match=r"its encoding is SQL_ASCII, and texts of jobs need UTF8: create it"):
            use(url)


def test_an_old_schema_is_refused(empty: str) -> None:
    """A database without its migrations is refused."""
    with pytest.raises(Unavailable, match=f"is at nothing, needed is {schema_version.newest()}: upgrade it first"):
        schema_version.check(empty)


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
    """The program works on a newer schema from the oldest version that the schema names, and never on an older one."""
    assert works == schema_version.works_on(found, wanted)


@pytest.mark.parametrize(("oldest", "is_refused"), [(0, False), (1, True)])
def test_a_process_of_the_release_before_meets_a_newer_schema(empty: str, oldest: int, is_refused: bool) -> None:
    """The process continues and leaves the schema as it is, or refuses to start when the schema excludes its
    version."""
    migrate.upgrade(empty)
    number = int(schema_version.newest()[:4])
    newer = f"{number + 1:04}_from_{number + oldest:04}"
    db = Database(empty)
    db.write(lambda conn: conn.execute(sa.text(f"UPDATE schema_version SET version_num = '{newer}'")))

    if is_refused:
        with pytest.raises(Unavailable, match=f"is at {newer}, needed is {schema_version.newest()}"):
            schema_version.check(empty)
    else:
        migrate.upgrade(empty)
        schema_version.check(empty)
        assert newer == read_version(db, "schema_version")
    db.close()


def read_version(db: Database, table: str) -> str | None:
    return db.read(lambda conn: conn.execute(sa.text(f"SELECT version_num FROM {table}")).scalar())


@pytest.mark.parametrize(
    ("version", "shown"),
    [("0009", "0009"), ("0012_from_0009", "0009"), ("0013_from_0010", "0013_from_0010"), ("0010", "0010")],
)
def test_release_0_1_finds_its_own_version_for_as_long_as_it_works_on_the_schema(version: str, shown: str) -> None:
    """Release 0.1 starts on no other version. A schema without its tables shows another version."""
    assert shown == schema_version.shown_to_0_1(version)


def test_a_schema_of_0_1_is_upgraded_and_0_1_still_works(empty: str) -> None:
    """All migrations are done, and alembic's table, which 0.1 reads, keeps its version."""
    db = Database(empty)

    def of_0_1(conn: sa.Connection) -> None:
        configuration = migrate.configuration(conn)
        configuration.attributes["version_table"] = "alembic_version"
        command.upgrade(configuration, "0009")

    db.write(of_0_1)
    assert "0009" == read_version(db, "alembic_version")

    migrate.upgrade(empty)

    schema_version.check(empty)
    assert [schema_version.newest(), "0009"] == [
        read_version(db, table) for table in ("schema_version", "alembic_version")
    ]
    db.close()


def test_a_schema_between_two_releases_is_upgraded(empty: str) -> None:
    """Missing tables, columns, indexes and counters are created, and the others keep their rows."""
    migrate.upgrade(empty)
    db = Database(empty)
    wanted = db.read(_schema)
    for statement in (
        "DROP TABLE activity_report",
        "DROP INDEX ix_job_pool",
        "CREATE INDEX ix_job_pool ON job (respool_id, created_ns)",
        "ALTER TABLE job_update DROP COLUMN stall_cause",
        "DELETE FROM counter WHERE name = 'host events'",
        "INSERT INTO cluster_binding (object_id, binding) VALUES ('pool', 'east')",
        "UPDATE schema_version SET version_num = '0022_from_0009'",
    ):
        db.write(partial(_execute, statement=statement))
    assert db.read(_schema) != wanted

    migrate.upgrade(empty)

    assert wanted == db.read(_schema)
    assert ["east"] == db.read(
        lambda conn: list(conn.execute(sa.text("SELECT binding FROM cluster_binding")).scalars())
    )
    schema_version.check(empty)
    db.close()


def test_labels_of_earlier_jobs_are_indexed(empty: str) -> None:
    """The upgrade indexes the labels of existing jobs, and triggers those of jobs that the release before creates."""
    migrate.upgrade(empty)
    storage = Storage(empty)
    earlier = create(storage, a_config())
    storage.db.write(partial(_execute, statement="DROP TABLE job_label"))
    storage.db.write(partial(_execute, statement="UPDATE schema_version SET version_num = '0027_from_0009'"))

    migrate.upgrade(empty)

    later = create(storage, a_config())
    found = storage.search.query_jobs(JobQuery(labels=[("stage", "prod-eu")])).jobs
    assert {earlier, later} == {job.job_id for job in found}
    storage.close()


def _execute(conn: sa.Connection, statement: str) -> None:
    conn.execute(sa.text(statement))


def _schema(conn: sa.Connection) -> tuple[object, ...]:
    inspector = sa.inspect(conn)
    tables = {
        name: (
            {column["name"]: str(column["type"]) for column in inspector.get_columns(name)},
            {index["name"]: index["column_names"] for index in inspector.get_indexes(name)},
        )
        for name in inspector.get_table_names()
    }
    return tables, sorted(conn.execute(sa.text("SELECT name FROM counter")).scalars())


def test_upgrades_may_race(empty: str) -> None:
    """Several processes that upgrade at once end with one schema."""
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(migrate.upgrade, empty) for _ in range(3)]:
            done.result()

    schema_version.check(empty)


def test_migrations_can_be_taken_back(empty: str) -> None:
    """Migrations are reverted to nothing and applied again."""
    migrate.upgrade(empty)
    db = Database(empty)

    db.write(lambda conn: command.downgrade(migrate.configuration(conn), "base"))

    assert set(VERSION_TABLES) == set(db.read(lambda conn: sa.inspect(conn).get_table_names()))
    db.close()
    migrate.upgrade(empty)
    schema_version.check(empty)


def test_the_index_of_active_jobs_knows_the_terminal_states() -> None:
    """The numbers in the index are the numbers of the states."""
    assert sorted(FINISHED_STATES) == sorted(JOB_STATE_NUMBERS[state] for state in JOB_TERMINAL)
