"""Recorded histories replay offline with today's workflow code, in the worker's sandbox."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import History
from temporalio.client import WorkflowHistory
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.converter import DataConverter
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from tests.workflow import server
from tests.workflow.encrypted import encrypt, make_encrypting
from tests.workflow.record_histories import RECIPES, write
from tests.workflow.recorded import CHECKSUMS, FOLDER, NEXT, changes, freeze, histories, story_of
from tests.workflow.server import replay

HISTORIES = histories()

HARMLESS = {"look_again_s": 77.0, "retry_s": 3.0, "retry_max_s": 9.0, "count_s": 20.0, "place_pods_max": 17}
"""Policies that change numbers inside commands, never the order of commands, while the order of the waits by length
remains: they may change while jobs run.
"""


def history(events: dict[str, Any]) -> WorkflowHistory:
    return WorkflowHistory.from_json("recorded", events)


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(path.read_bytes())))


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.name.removesuffix('.json.gz')}"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of all histories, for changes."""
    return Path(shutil.copytree(FOLDER, tmp_path / "histories"))


def test_every_recipe_is_recorded() -> None:
    """Each recipe has a history, and each history that is not frozen a recipe."""
    recipes = {recipe.__name__ for recipe in RECIPES}
    assert recipes <= {story_of(path) for path in HISTORIES}
    assert {story_of(path) for path in HISTORIES if path.parent.name == NEXT} <= recipes


def test_histories_of_a_release_never_change() -> None:
    """Histories of a release are never rewritten: commands of the current code belong to the next one's."""
    assert [] == changes()


def test_a_changed_history_of_a_release_is_noticed(copy: Path) -> None:
    """A history of a release that is rewritten, removed or added is reported."""
    first, second = histories(copy)[:2]
    second.write_bytes(first.read_bytes())
    first.rename(first.with_name("another-1.json.gz"))

    assert changes(copy) == [
        f"0.1/another-1.json.gz: added, belongs to {NEXT}",
        f"0.1/{first.name}: gone",
        f"0.1/{second.name}: rewritten",
    ]


def test_recording_again_leaves_releases_alone(copy: Path) -> None:
    """A recording goes to the next release's folder, and replaces files of the same recipe there."""
    shutil.rmtree(copy / NEXT, ignore_errors=True)
    write({"job_killed-1.json.gz": {"events": []}, "job_killed-2.json.gz": {"events": []}}, copy / NEXT)
    write({"job_killed-1.json.gz": {"events": [1]}}, copy / NEXT)

    assert ["job_killed-1.json.gz"] == [path.name for path in (copy / NEXT).iterdir()]
    assert changes(copy) == []


def test_a_release_freezes_what_is_recorded(copy: Path) -> None:
    """A release freezes its histories once: they are no longer written."""
    shutil.rmtree(copy / NEXT, ignore_errors=True)
    write({"job_killed-1.json.gz": {"events": []}}, copy / NEXT)

    freeze("0.9", copy)

    assert changes(copy) == []
    assert (copy / CHECKSUMS).read_text().splitlines()[-1].endswith("  0.9/job_killed-1.json.gz")
    with pytest.raises(FileExistsError, match=r"release 0\.9"):
        freeze("0.9", copy)


@pytest.fixture(scope="module", params=HISTORIES, ids=name_of)
def recording(request: pytest.FixtureRequest) -> WorkflowHistory:
    """A history that all tests of it share: its JSON takes longer to parse than to replay."""
    return history(read(request.param))


@pytest.fixture
def duplicate(recording: WorkflowHistory) -> WorkflowHistory:
    """A copy of the history, for changes."""
    return replace(recording, events=[*History(events=recording.events).events])


@pytest.fixture(scope="module")
def encrypting(tmp_path_factory: pytest.TempPathFactory) -> DataConverter:
    return make_encrypting(tmp_path_factory.mktemp("keyring"))


async def test_history_replays(recording: WorkflowHistory) -> None:
    """The code gives the commands that were recorded."""
    await replay(recording)


async def test_history_replays_under_other_policies(duplicate: WorkflowHistory) -> None:
    """The same with other numbers of patience and batch size, without the sandbox as in a worker."""
    (payload,) = duplicate.events[0].workflow_execution_started_event_attributes.input.payloads
    input = json.loads(payload.data)
    assert set(input["policies"]) >= set(HARMLESS)
    input["policies"].update(HARMLESS)
    payload.data = json.dumps(input).encode()

    await replay(duplicate, UnsandboxedWorkflowRunner())


async def test_a_traced_history_replays(duplicate: WorkflowHistory) -> None:
    """Traces travel in headers, so that workers may begin and cease to trace while workflows run."""
    carrier = json.dumps({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}).encode()
    header = duplicate.events[0].workflow_execution_started_event_attributes.header
    header.fields["_tracer-data"].CopyFrom(Payload(metadata={"encoding": b"json/plain"}, data=carrier))

    await replay(duplicate, UnsandboxedWorkflowRunner(), [TracingInterceptor(TracerProvider().get_tracer("x"))])


async def test_an_encrypted_history_replays(duplicate: WorkflowHistory, encrypting: DataConverter) -> None:
    """Payloads and headers are decrypted before the workflow sees them, so that its commands are the recorded ones."""
    assert await encrypt(duplicate, encrypting)
    assert b"policies" not in duplicate.events[0].SerializeToString()

    await replay(duplicate, UnsandboxedWorkflowRunner(), converter=encrypting)


async def test_a_run_that_has_only_begun_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's replayer, which would wait without end, does not get a run that was read before its first task."""
    monkeypatch.setattr(server, "Replayer", lambda **_: pytest.fail("it is replayed"))
    events = read(FOLDER / "0.1" / "job_with_failing_calls-1.json.gz")

    await replay(history({"events": events["events"][:1]}))


async def test_replay_notices_another_step() -> None:
    """A history in which another activity came first is refused, which proves that these tests can fail."""
    events = read(FOLDER / "0.1" / "job_with_failing_calls-1.json.gz")
    scheduled = next(e for e in events["events"] if "activityTaskScheduledEventAttributes" in e)
    scheduled["activityTaskScheduledEventAttributes"]["activityType"]["name"] = "kill_queued"

    with pytest.raises(NondeterminismError):
        await replay(history(events))
