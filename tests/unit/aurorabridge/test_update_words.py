"""Settings and opaque data of updates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.aurorabridge.mapping import opaque
from services.aurorabridge.mapping.opaque import Opaque
from services.aurorabridge.mapping.update_spec import create_spec, job_update_settings, update_spec
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {"max_instance_retries": 1, "max_tolerable_instance_failures": 1}),
    "group": ({"updateGroupSize": 3}, {"batch_size": 3}),
    "failures": (
        {"maxPerInstanceFailures": 2, "maxFailedInstances": 4},
        {"max_instance_retries": 3, "max_tolerable_instance_failures": 5},
    ),
    "rollback": ({"rollbackOnFailure": True}, {"rollback_on_failure": True}),
    "pulses": ({"blockIfNoPulsesAfterMs": 1}, {"start_paused": True}),
    "no pulses": ({"blockIfNoPulsesAfterMs": 0}, {"start_paused": False}),
    "ignored": ({"minWaitInInstanceRunningMs": 5, "waitForBatchCompletion": True}, {"batch_size": 0}),
}


@pytest.mark.parametrize(("given", "expected"), SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("in_place", [False, True])
def test_settings(given: dict[str, Any], expected: dict[str, Any], in_place: bool) -> None:
    """Settings of an update are those of its spec, with each number of failures one higher."""
    settings = api.JobUpdateSettings(**given)
    updated, created = update_spec(settings, in_place), create_spec(settings)

    assert expected == {name: getattr(updated, name) for name in expected}
    assert (True, in_place) == (updated.start_pods, updated.in_place)
    assert {name: value for name, value in expected.items() if name != "rollback_on_failure"} == {
        name: getattr(created, name) for name in expected if name != "rollback_on_failure"
    }


def test_settings_are_read_back() -> None:
    """The spec of an update has the settings that clients read."""
    settings = api.JobUpdateSettings(
        updateGroupSize=3, maxPerInstanceFailures=1, maxFailedInstances=2, rollbackOnFailure=True
    )

    assert settings == job_update_settings(update_spec(settings, False))


def test_a_request_without_settings_updates_all_instances_at_once() -> None:
    """Missing settings are empty ones."""
    assert update_spec(None, False) == update_spec(api.JobUpdateSettings(), False)


@pytest.mark.parametrize("name", ["updateGroupSize", "maxPerInstanceFailures", "maxFailedInstances"])
def test_negative_numbers_are_refused(name: str) -> None:
    """The refusal names the field."""
    with pytest.raises(Refusal, match=f"{name} is -1"):
        create_spec(api.JobUpdateSettings(**{name: -1}))


def test_opaque_data_are_the_json_of_the_original() -> None:
    """The original reads these data, and this bridge those of the original; empty fields are left out."""
    full = Opaque("u-1", ("start_pulsed",), (("k", "v"),), "deploy", "d1")

    assert {
        "update_id": "u-1",
        "update_actions": ["start_pulsed"],
        "update_metadata": [{"key": "k", "value": "v"}],
        "start_job_update_msg": "deploy",
        "start_job_update_request": "d1",
    } == json.loads(full.encode())
    assert full == opaque.decode(full.encode())
    assert {"update_id": "u-1"} == json.loads(Opaque("u-1").encode())


def test_an_update_begins_with_the_words_of_its_request() -> None:
    """Metadata are in order, and a pulsed update says so."""
    metadata = [api.Metadata(key=key, value="é") for key in "ba"]
    request = api.JobUpdateRequest(settings=api.JobUpdateSettings(blockIfNoPulsesAfterMs=1), metadata=metadata)

    made = opaque.begin("u-1", request, "deploy", "d1")

    assert Opaque("u-1", ("start_pulsed",), (("a", "é"), ("b", "é")), "deploy", "d1") == made
    assert "é" in made.encode()


def test_words_that_are_not_unicode_are_refused() -> None:
    """Readers of the update could not be answered with them."""
    with pytest.raises(Refusal, match="not Unicode"):
        opaque.begin("u-1", api.JobUpdateRequest(), "\ud800", "d1")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"update_id": 3, "update_actions": {}, "update_metadata": [1]}', "[" * 100_000]
)
def test_other_opaque_data_say_nothing(text: str) -> None:
    """Data of clients of v1alpha are no words of Aurora."""
    assert Opaque() == opaque.decode(text)


@pytest.mark.parametrize(
    ("actions", "awaits", "is_rollback"),
    [
        ((), False, False),
        (("start_pulsed",), True, False),
        (("start_pulsed", "pulse"), False, False),
        (("start_pulsed", "rollback"), True, True),
        (("rollback",), False, True),
    ],
)
def test_actions(actions: tuple[str, ...], awaits: bool, is_rollback: bool) -> None:
    """Actions tell whether an update awaits a pulse and whether it is a rollback."""
    data = Opaque(actions=actions)

    assert (awaits, is_rollback) == (data.awaits_pulse, data.is_rollback)
