"""Mapping between dataclasses and rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import sqlalchemy as sa

from peloton.model.job import JobState
from peloton.model.maintenance import Blocker, DrainProgress
from peloton.model.update import UpdateState
from services.storage.mapper import Form, Mapper, Part, from_json, json_form, not_stored, spread


@dataclass(frozen=True)
class Size:
    width: int
    height: int


@dataclass(frozen=True)
class Box:
    name: str
    state: JobState
    size: Size
    update: UpdateState = UpdateState.PAUSED
    tags: tuple[str, ...] = ()
    made_ns: int = 0
    seen_count: int = 0  # not stored
    drain: DrainProgress | None = None


TABLE = sa.Table(
    "box",
    sa.MetaData(),
    *(sa.Column(name, sa.Text) for name in ("tags", "name", "update", "drain")),
    *(sa.Column(name, sa.BigInteger) for name in ("height", "state", "width", "created_ns")),
)
BOXES = Mapper(
    Box,
    TABLE,
    size=spread(Size),
    tags=Form(",".join, lambda text: tuple(text.split(","))),
    made_ns=Part(("created_ns",), int, lambda made_ns: [made_ns]),
    seen_count=not_stored(0),
    drain=json_form(DrainProgress, empty=None),
)
DRAIN = DrainProgress(3, 1, (Blocker("job", 2, "SLA"),), "its pods")
BOX = Box("a\x00b", JobState.RUNNING, Size(2, 3), tags=("x", "y"), made_ns=7, seen_count=9, drain=DRAIN)


@pytest.fixture
def conn() -> sa.Connection:
    connection = sa.create_engine("sqlite://").connect()
    TABLE.create(connection)
    return connection


def test_records_are_read_as_they_were_written(conn: sa.Connection) -> None:
    """Columns are found by their names, in any order. NUL is removed, and fields that are not stored are unset."""
    conn.execute(TABLE.insert(), [BOXES.values(BOX), BOXES.values(replace(BOX, drain=None))])

    found = [BOXES.record(row) for row in conn.execute(sa.select(TABLE, sa.literal("more")))]

    wanted = replace(BOX, name="ab", seen_count=0)
    assert [wanted, replace(wanted, drain=None)] == found
    state, update = conn.execute(sa.select(TABLE.c.state, TABLE.c.update)).first() or (0, "")
    assert (1, "PAUSED") == (isinstance(state, int), update)


def test_some_fields_are_written_under_other_names() -> None:
    """The parameters of an update have a prefix, which distinguishes them from columns."""
    write = BOXES.writer(["state", "size", "update"], "new_")

    assert {"new_state", "new_update", "new_width", "new_height"} == write(BOX).keys()
    assert ("PAUSED", 2, 3) == tuple(write(BOX)[name] for name in ("new_update", "new_width", "new_height"))


def test_a_field_without_a_form_is_refused() -> None:
    """The mapper of a class is built when its module is imported, which fails for a type that no column has."""
    with pytest.raises(TypeError, match=r"field tags of table box is of type .*: give its form"):
        Mapper(Box, TABLE, size=spread(Size), made_ns=not_stored(0), seen_count=not_stored(0), drain=not_stored(None))
    with pytest.raises(KeyError, match="seen_count"):
        Mapper(Box, TABLE, size=spread(Size), tags=Form(), made_ns=not_stored(0), drain=not_stored(None))


def test_fields_of_the_next_release_are_ignored() -> None:
    """Processes of two releases share a database during an upgrade."""
    parsed = {"pod_count": 3, "blockers": [{"job_id": "job", "pod_count": 2, "reason": "SLA", "color": "red"}]}

    assert DrainProgress(3, blockers=(Blocker("job", 2, "SLA"),)) == from_json(DrainProgress, {**parsed, "new": [1]})
