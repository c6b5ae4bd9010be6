"""Rows of updates: the wait is stored as text, which the previous release shows, and read as a value."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from peloton.lifecycle import rollout
from peloton.lifecycle.rollout_pods import AtHand
from peloton.model.ids import JobId
from peloton.model.reason import SlaRefusal
from peloton.model.update import UpdateRecord, UpdateSpec, UpdateState, UpdateType
from services.storage.tables import COUNTER, UPDATE
from services.storage.updates.rows import insert_update, read_update, write_update
from services.storage.watch_log import WATCH_SEQ
from tests.unit.lifecycle.pods import service_pod

JOB = JobId("00000000-0000-4000-8000-000000000001")
ROLLING = UpdateRecord(
    "00000000-0000-4000-8000-000000000002",
    JOB,
    UpdateType.UPDATE,
    UpdateSpec(),
    UpdateState.ROLLING_FORWARD,
    2,
    1,
    updated=frozenset(range(3)),
)


@pytest.fixture
def conn() -> sa.Connection:
    engine = sa.create_engine("sqlite://")
    UPDATE.metadata.create_all(engine)
    conn = engine.connect()
    conn.execute(COUNTER.insert().values(name=WATCH_SEQ, value=0))
    return conn


def read_wait(conn: sa.Connection) -> str:
    return str(conn.execute(sa.select(UPDATE.c.waiting_for)).scalar_one())


@pytest.mark.parametrize("maximum", [1, 2])
def test_a_refused_step_is_taken_once(conn: sa.Connection, maximum: int) -> None:
    """The stored update after a step that the SLA refuses equals the one in memory, so that counts ask for no other."""
    insert_update(conn, ROLLING)
    pods = {i: service_pod(i) for i in range(3)} | {7: service_pod(7, desired_run_id=2), 8: service_pod(8)}
    step = rollout.next_step(ROLLING, pods, maximum)
    write_update(conn, ROLLING, step.update, now_ns=5)
    stored = read_update(conn, ROLLING.update_id)

    assert stored is not None
    assert SlaRefusal(maximum, 1, 2 if maximum == 2 else 0) == stored.refusal == step.update.refusal
    assert read_wait(conn).startswith("the SLA: ")
    if maximum == 1:
        assert not rollout.may_move(stored, AtHand(pods).count, maximum)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("the SLA: 4 of at most 3 instances are unavailable already", SlaRefusal(3, 4, 0)),
        ("the SLA: no more than 3 instances may be unavailable, 1 are, 5 must wait", SlaRefusal(3, 1, 5)),
        ("instances 0-1 to run and be healthy", None),
        ("", None),
    ],
)
def test_a_row_of_the_previous_release_is_read(conn: sa.Connection, text: str, refusal: SlaRefusal | None) -> None:
    """The stored texts of the previous release lead to the same value; other waits follow from the rest of the row."""
    insert_update(conn, ROLLING)
    conn.execute(sa.update(UPDATE).values(waiting_for=text))
    found = read_update(conn, ROLLING.update_id)
    assert found is not None
    assert refusal == found.refusal
