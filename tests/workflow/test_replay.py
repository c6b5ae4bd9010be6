"""Recorded histories replay offline with today's workflow code, in the worker's sandbox."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.workflow import NondeterminismError

from tests.workflow.record_histories import FOLDER, RECIPES
from tests.workflow.server import replayer

HISTORIES = sorted(FOLDER.glob("*.json.gz"))

HARMLESS = {"look_again_s": 77.0, "retry_s": 3.0, "retry_max_s": 9.0, "count_s": 20.0, "place_pods_max": 17}
"""Policies that change numbers inside commands, never which commands come, while none of the waits becomes longer than
another one that was longer: they may change while jobs run."""


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(path.read_bytes())))


async def replay(events: dict[str, Any]) -> None:
    await replayer().replay_workflow(WorkflowHistory.from_json("recorded", events))


def test_every_recipe_is_recorded() -> None:
    """Each recipe has a history, and each history a recipe."""
    assert {recipe.__name__ for recipe in RECIPES} == {path.name.rpartition("-")[0] for path in HISTORIES}


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.name.removesuffix(".json.gz"))
async def test_history_replays(path: Path) -> None:
    """The code gives the commands that were recorded."""
    await replay(read(path))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.name.removesuffix(".json.gz"))
async def test_history_replays_under_other_policies(path: Path) -> None:
    """The same with other numbers of patience and batch size."""
    events = read(path)
    (payload,) = events["events"][0]["workflowExecutionStartedEventAttributes"]["input"]["payloads"]
    input = json.loads(base64.b64decode(payload["data"]))
    assert set(input["policies"]) >= set(HARMLESS)
    input["policies"].update(HARMLESS)
    payload["data"] = base64.b64encode(json.dumps(input).encode()).decode()

    await replay(events)


async def test_replay_notices_another_step() -> None:
    """The proof that these tests can fail: a history in which another activity came first is refused."""
    events = read(FOLDER / "job_with_failing_calls-1.json.gz")
    scheduled = next(e for e in events["events"] if "activityTaskScheduledEventAttributes" in e)
    scheduled["activityTaskScheduledEventAttributes"]["activityType"]["name"] = "kill_queued"

    with pytest.raises(NondeterminismError):
        await replay(events)
