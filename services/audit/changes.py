"""Entries of the audit log about changes that a role makes by itself, without a call to the api."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from peloton.access.audit import OK, Draft, Entry, Note, clean
from peloton.access.caller import CallerKind
from peloton.errors import Unavailable
from services.audit.recorder import AuditMode, copy

log = logging.getLogger(__name__)


class ChangeRecords(Protocol):
    """The stored log."""

    def append(self, drafts: Sequence[Draft]) -> list[Entry]: ...

    def last_number(self, writer: str, after: int) -> int: ...

    def ends(self) -> tuple[int, str, int]: ...


class ChangeNotes:
    """Entries of one thread, each written at once. ``mode`` None: on where the log has begun, since the api begins it
    when it starts.
    """

    def __init__(
        self,
        records: ChangeRecords,
        mode: AuditMode | None,
        caller: str,
        file: str = "",
    ) -> None:
        self._records, self._mode, self._file = records, mode, file
        self._caller = clean(caller)
        self._writer = clean(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
        self._number, self._last_seq = 0, 0
        self._waiting: list[Draft] = []

    def settle(self) -> None:
        """Write what could not be written before. Raises Unavailable: no change may follow."""
        if self._waiting:
            try:
                self._write()
            except Exception as error:  # of any kind: entries must not be lost
                raise Unavailable(f"the audit log cannot be written: {error}") from error

    def note(self, method: str, object: str) -> None:
        """Write the entry of a change that was made; one that cannot be written waits for ``settle``."""
        if self._mode is AuditMode.OFF:
            return
        if not self._number:
            self._add(Note.STARTED, "")
        self._add(method, object)
        try:
            self._write()
        except Exception as error:  # of any kind: the change is made
            log.warning("the audit log cannot be written, retrying: %s", error)

    def close(self) -> None:
        """Note that no entry follows."""
        if self._number:
            self.note(Note.STOPPED, "")

    def _add(self, method: str, object: str) -> None:
        self._number += 1
        draft = Draft(time.time_ns(), self._writer, self._number, clean(method), OK)
        named = replace(draft, caller=self._caller, kind=str(CallerKind.ROLE), object=clean(object))
        self._waiting.append(named)

    def _write(self) -> None:
        if self._mode is None and not self._records.ends()[2]:
            self._waiting, self._number = [], 0
            return
        last = self._records.last_number(self._writer, self._last_seq)  # a write may have lost its answer
        drafts = [draft for draft in self._waiting if draft.number > last]
        entries = self._records.append(drafts) if drafts else []
        self._waiting = []
        self._last_seq = max([self._last_seq, *(each.seq for each in entries)])
        if self._file:
            copy(self._file, entries)
