"""Words of Aurora about an update, from its opaque data."""

from __future__ import annotations

import json

import pytest

from peloton.model.aurora_update import AuroraUpdate, aurora_update
from peloton.model.update import UpdateRecord, UpdateSpec, UpdateState, UpdateType
from peloton.model.update_text import update_wait_text
from tests.unit.lifecycle.pods import JOB


def opaque(*actions: str, message: str = "") -> str:
    return json.dumps({"update_id": "u-1", "update_actions": actions, "start_job_update_msg": message})


@pytest.mark.parametrize(
    ("data", "expected", "text"),
    [
        (opaque(), AuroraUpdate("u-1"), "Aurora's update u-1"),
        (
            opaque("start_pulsed", message="deploy 42"),
            AuroraUpdate("u-1", "deploy 42", awaits_pulse=True),
            "Aurora's update u-1 'deploy 42'",
        ),
        (opaque("start_pulsed", "pulse"), AuroraUpdate("u-1"), "Aurora's update u-1"),
        ('{"update_id":"a\\u001b"}', AuroraUpdate("a\\x1b"), "Aurora's update a\\x1b"),
        (
            '{"update_id":"u","update_actions":"start_pulsed","start_job_update_msg":3}',
            AuroraUpdate("u"),
            "Aurora's update u",
        ),
    ],
)
def test_updates_of_a_bridge(data: str, expected: AuroraUpdate, text: str) -> None:
    """An update has its id, its message, and whether it waits for a first pulse."""
    assert (expected, text) == (aurora_update(data), str(expected))


@pytest.mark.parametrize(
    "data", ["", "note", '"update_id"', '{"update_id":7}', '{"update_id"', "[" * 100_000 + '"update_id"']
)
def test_other_opaque_data(data: str) -> None:
    """Opaque data of other clients is no update of Aurora, whatever it looks like."""
    assert aurora_update(data) is None


@pytest.mark.parametrize(
    ("state", "data", "waits_for"),
    [
        (UpdateState.PAUSED, opaque("start_pulsed"), "the first pulse of Aurora's update u-1"),
        (UpdateState.PAUSED, opaque("start_pulsed", "pulse"), "an operator to resume it"),
        (UpdateState.PAUSED, opaque(), "an operator to resume it"),
        (UpdateState.ROLLING_FORWARD, opaque("start_pulsed"), ""),
        (UpdateState.ABORTED, opaque("start_pulsed"), ""),
    ],
)
def test_pause_until_the_first_pulse(state: UpdateState, data: str, waits_for: str) -> None:
    """A paused update that starts with a pulse waits for Aurora's client, and not for an operator."""
    update = UpdateRecord("u", JOB, UpdateType.UPDATE, UpdateSpec(), state, 2, 1, opaque_data=data)
    assert waits_for == update_wait_text(update)
