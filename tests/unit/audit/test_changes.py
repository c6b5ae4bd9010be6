"""Entries of changes that a role makes by itself: written at once, kept while storage is down, none without a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.access.audit import Draft, Note, Verification
from peloton.errors import Unavailable
from services.audit.changes import ChangeNotes
from services.audit.recorder import AuditMode
from tests.unit.audit.test_recorder import Log

METHOD = "peloton.api.respool.ResourceManager/CreateResourcePool"


class Stored(Log):
    def ends(self) -> tuple[int, str, int]:
        return 0, "", len(self.entries)

    def verify(self) -> list[str]:
        """Check the chain; return its methods."""
        check = Verification()
        for entry in self.entries:
            check.add(entry)
        assert ("", []) == (check.fault, check.find_running())
        return self.methods()


def test_changes_are_written_at_once(tmp_path: Path) -> None:
    """Entries name role and object, are copied to the file, and end with the process."""
    stored, file = Stored(), tmp_path / "audit.jsonl"
    notes = ChangeNotes(stored, AuditMode.ON, "kubernetes/a", str(file))
    notes.close()
    notes.note(METHOD, "pool /eng, object eng")

    assert [Note.STARTED, METHOD] == stored.methods()
    draft = stored.entries[-1].draft
    assert ("kubernetes/a", "role", "pool /eng, object eng", "OK") == (
        draft.caller,
        draft.kind,
        draft.object,
        draft.result,
    )
    notes.close()
    assert [Note.STARTED, METHOD, Note.STOPPED] == stored.verify()
    assert 3 == len(file.read_text().splitlines())


def test_entries_wait_while_storage_is_down() -> None:
    """The next change waits for them, and an answer that was lost repeats none."""
    stored = Stored()
    notes = ChangeNotes(stored, AuditMode.REQUIRED, "kubernetes/a")
    stored.is_down = True
    notes.note(METHOD, "pool /a")
    with pytest.raises(Unavailable, match="the audit log cannot be written: the database is down"):
        notes.settle()
    stored.is_down, stored.loses_answer = False, True
    with pytest.raises(Unavailable):
        notes.settle()
    notes.settle()
    notes.settle()
    notes.close()

    assert [Note.STARTED, METHOD, Note.STOPPED] == stored.verify()


def test_entries_follow_the_log_of_the_api() -> None:
    """There are none when it is off, and otherwise from the first entry of the api on."""
    stored = Stored()
    for mode in (AuditMode.OFF, None):
        notes = ChangeNotes(stored, mode, "kubernetes/a")
        notes.note(METHOD, "pool /a")
        notes.close()
    assert [] == stored.methods()
    api = Draft(1, "api", 1, Note.STARTED, "OK")
    stored.append([api, Draft(2, "api", 2, Note.STOPPED, "OK")])
    notes.note(METHOD, "pool /b")
    notes.close()

    assert [Note.STARTED, METHOD, Note.STOPPED] == stored.verify()[2:]
