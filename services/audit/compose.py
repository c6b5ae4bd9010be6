"""The audit log that the settings describe."""

from __future__ import annotations

from services.audit.changes import ChangeNotes, ChangeRecords
from services.audit.recorder import AuditMode, Recorder, Records
from services.settings import Settings


def make_recorder(settings: Settings, records: Records, is_enforced: bool) -> Recorder | None:
    """Return the recorder of the audit log; None when it is off. ``is_enforced``: the cluster asks for credentials."""
    mode = AuditMode(settings.audit or (AuditMode.ON if is_enforced else AuditMode.OFF))
    return None if mode is AuditMode.OFF else Recorder(records, mode, settings.audit_file, settings.audit_reads)


def make_change_notes(settings: Settings, records: ChangeRecords, caller: str) -> ChangeNotes:
    """Return the notes of changes that a role makes by itself, under the name ``caller``."""
    mode = AuditMode(settings.audit) if settings.audit else None
    return ChangeNotes(records, mode, caller, settings.audit_file)
