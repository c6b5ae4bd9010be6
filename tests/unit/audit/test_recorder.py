"""The recorder of the audit log: batches, outages of storage, a full queue, the copy in a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from peloton.access.audit import Draft, Entry, Note, link
from peloton.errors import Unavailable
from services.audit import recorder as recorders
from services.audit.recorder import AuditMode, Recorder


class Log:
    """A stored log in memory, which is down while ``is_down``, and may lose answers."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.batches: list[int] = []
        self.is_down, self.loses_answer = False, False

    def append(self, drafts: Sequence[Draft]) -> list[Entry]:
        if self.is_down:
            raise Unavailable("the database is down")
        before = self.entries[-1].hash if self.entries else ""
        added = link(before, len(self.entries) + 1, drafts)
        self.entries += added
        self.batches.append(len(added))
        if self.loses_answer:
            self.loses_answer = False
            raise Unavailable("the answer of the database is lost")
        return added

    def last_number(self, writer: str, after: int) -> int:
        return max((each.draft.number for each in self.entries[after:] if each.draft.writer == writer), default=0)

    def methods(self) -> list[str]:
        return [entry.draft.method for entry in self.entries]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "BATCH_S", 0.01)
    monkeypatch.setattr(recorders, "PAUSE_S", 0.01)


def note(recorder: Recorder, method: str) -> asyncio.Future[None] | None:
    return recorder.note(recorder.draft(method, "OK"), is_awaited=True)


async def test_calls_are_written_in_batches(tmp_path: Path) -> None:
    """Entries that wait together are written together, with numbers in their order, and copied to the file."""
    stored, file = Log(), tmp_path / "audit.jsonl"
    recorder = Recorder(stored, AuditMode.ON, str(file))
    recorder.start()
    assert [None] * 50 == [note(recorder, f"s/{number}") for number in range(50)]
    await recorder.close()

    assert [Note.STARTED, *(f"s/{number}" for number in range(50)), Note.STOPPED] == stored.methods()
    assert list(range(1, 53)) == [entry.draft.number for entry in stored.entries]
    assert 3 > len(stored.batches)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [entry.hash for entry in stored.entries] == [line["hash"] for line in lines]


async def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    """The copy is optional: entries are stored without it."""
    stored = Log()
    recorder = Recorder(stored, AuditMode.ON, str(tmp_path))
    recorder.start()
    await recorder.close()
    assert [Note.STARTED, Note.STOPPED] == stored.methods()


async def test_an_answer_waits_for_its_entry_when_the_log_is_required() -> None:
    """Changes are refused while storage is down, and the entries that wait are written later."""
    stored = Log()
    recorder = Recorder(stored, AuditMode.REQUIRED)
    recorder.start()
    await recorder.wait(note(recorder, "s/first"))
    assert "s/first" in stored.methods()
    recorder.check()

    stored.is_down = True
    waiting = note(recorder, "s/second")
    assert waiting is not None
    while not recorder._is_failing:
        await asyncio.sleep(0.01)
    with pytest.raises(Unavailable, match="nothing has been changed"):
        recorder.check()
    stored.is_down = False
    await recorder.wait(waiting)
    recorder.check()
    await recorder.close()
    assert [Note.STARTED, "s/first", "s/second", Note.STOPPED] == stored.methods()


async def test_an_answer_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller learns that the call was carried out and is not in the log."""
    monkeypatch.setattr(recorders, "WAIT_S", 0.05)
    monkeypatch.setattr(recorders, "CLOSE_S", 0.05)
    stored = Log()
    stored.is_down = True
    recorder = Recorder(stored, AuditMode.REQUIRED)
    recorder.start()
    with pytest.raises(Unavailable, match="was carried out"):
        await recorder.wait(note(recorder, "s/first"))
    await recorder.close()


async def test_a_call_whose_entry_is_lost_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue may become full between the beginning of a change and its entry."""
    monkeypatch.setattr(recorders, "QUEUE_MAX", 0)
    recorder = Recorder(Log(), AuditMode.REQUIRED)
    with pytest.raises(Unavailable, match="was carried out, and its entry in the audit log is lost"):
        await recorder.wait(note(recorder, "s/first"))


async def test_an_entry_whose_answer_was_lost_is_not_written_twice() -> None:
    """The recorder asks which of its entries are stored before it repeats a write."""
    stored = Log()
    stored.loses_answer = True
    recorder = Recorder(stored, AuditMode.ON)
    recorder.start()
    note(recorder, "s/first")
    await recorder.close()
    assert [1, 2, 3] == [entry.draft.number for entry in stored.entries]


async def test_calls_beyond_the_bounds_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue, and a flood of invalid credentials, leave an entry with the number of lost ones."""
    monkeypatch.setattr(recorders, "QUEUE_MAX", 10)
    stored = Log()
    recorder = Recorder(stored, AuditMode.ON, clock_ns=lambda: 1)
    recorder.start()
    for number in range(19):
        note(recorder, f"s/{number}")
    await recorder.close()
    lost = [entry.draft for entry in stored.entries if entry.draft.method == Note.LOST]
    assert ["10"] == [draft.result for draft in lost]

    monkeypatch.setattr(recorders, "QUEUE_MAX", 10_000)
    recorder = Recorder(stored, AuditMode.ON, clock_ns=lambda: 1)
    recorder.start()
    for _ in range(recorders.UNIDENTIFIED_PER_S + 7):
        recorder.note_unidentified(replace(recorder.draft("s/x", "UNAUTHENTICATED"), peer="p"))
    await recorder.close()
    assert ["10", "7"] == [entry.draft.result for entry in stored.entries if entry.draft.method == Note.LOST]
