"""Recorder of the audit log: a bounded queue, written in batches by one task."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Protocol

from peloton.access.audit import Draft, Entry, Note, clean
from peloton.access.caller import CallerKind
from peloton.errors import Unavailable
from services.telemetry.metrics import counter

log = logging.getLogger(__name__)

QUEUE_MAX = 10_000
"""Maximum number of entries that wait to be written."""
BATCH_MAX = 1_000
BATCH_S = 0.2
"""Longest time for which an entry waits for others of its batch, unless calls wait for theirs."""
WAIT_S = 10.0
"""Longest time for which an answer waits for its entry."""
PAUSE_S, PAUSE_S_MAX = 0.2, 5.0
"""Pause after a failed write, which doubles."""
CLOSE_S = 5.0
UNIDENTIFIED_PER_S = 100
"""Entries per second of calls without valid credentials; further ones are counted."""
_ENTRIES, _LOST = counter("peloton.audit.entries"), counter("peloton.audit.lost")


class AuditMode(StrEnum):
    OFF = "off"
    ON = "on"
    REQUIRED = "required"


class Records(Protocol):
    """The stored log."""

    def append(self, drafts: Sequence[Draft]) -> list[Entry]: ...

    def last_number(self, writer: str, after: int) -> int: ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    draft: Draft
    written: asyncio.Future[None] | None


class Recorder:
    """Queue and writer for one event loop. With mode ``required`` answers wait for their entries, and changes are
    refused while the log cannot be written. ``file`` gets a copy of each written entry as a line of JSON.
    """

    def __init__(
        self,
        records: Records,
        mode: AuditMode,
        file: str = "",
        are_reads_noted: bool = False,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.are_reads_noted = are_reads_noted
        self._records, self._is_required, self._file = records, mode is AuditMode.REQUIRED, file
        self._clock_ns = clock_ns
        self._writer = clean(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
        self._queue: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._number, self._last_seq, self._lost_count = 0, 0, 0
        self._is_failing, self._is_closing = False, False
        self._second, self._in_second = 0, 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._note_itself(Note.STARTED, "OK")
        self._task = asyncio.create_task(self._run(), name="audit log")

    async def close(self) -> None:
        """Write what waits, within CLOSE_S."""
        if self._task is None:
            return
        self._note_itself(Note.STOPPED, "OK")
        self._is_closing = True
        self._wake.set()
        await asyncio.wait({self._task}, timeout=CLOSE_S)
        if not self._task.done():
            log.error("the audit log could not be written: %d entries are lost", len(self._queue))
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def check(self) -> None:
        """Raise Unavailable while a change must not begin, since the log cannot be written."""
        if self._is_required and (self._is_failing or len(self._queue) >= QUEUE_MAX):
            raise Unavailable(
                f"the audit log cannot be written, and PELOTON_AUDIT is required: nothing has been changed; "
                f"{len(self._queue):,} entries wait"
            )

    def note(self, draft: Draft, is_awaited: bool = False) -> asyncio.Future[None] | None:
        """Queue an entry. The result ends when it has been written, if the mode has the caller wait for that."""
        written = None
        if self._is_required and is_awaited:
            written = asyncio.get_running_loop().create_future()
        if len(self._queue) >= QUEUE_MAX:
            self._lost_count += 1
            _LOST.add(1)
            if written is not None:
                written.set_exception(Unavailable("the call was carried out, and its entry in the audit log is lost"))
            return written
        self._queue.append(_Waiting(draft, written))
        self._wake.set()
        return written

    def note_unidentified(self, draft: Draft) -> None:
        """Queue the entry of a call without valid credentials, up to UNIDENTIFIED_PER_S."""
        second = self._clock_ns() // 10**9
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second > UNIDENTIFIED_PER_S:
            self._lost_count += 1
            _LOST.add(1)
            return
        self.note(draft)

    async def wait(self, written: asyncio.Future[None] | None) -> None:
        """Wait until an entry has been written. Raises Unavailable."""
        if written is None:
            return
        try:
            await asyncio.wait_for(asyncio.shield(written), WAIT_S)
        except TimeoutError:
            raise Unavailable(
                f"the call was carried out, and its entry in the audit log has not been written after {WAIT_S:g} s"
            ) from None

    def draft(self, method: str, result: str) -> Draft:
        """Return an entry of now, without caller and object."""
        return Draft(self._clock_ns(), self._writer, 0, clean(method), clean(result))

    def _note_itself(self, note: Note, result: str, is_first: bool = False) -> None:
        draft = replace(self.draft(note, result), caller="peloton", kind=CallerKind.ROLE)
        (self._queue.appendleft if is_first else self._queue.append)(_Waiting(draft, None))
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._is_required and not self._is_closing:
                await asyncio.sleep(BATCH_S)
            while self._queue or self._lost_count:
                await self._write(self._take())
            if self._is_closing:
                return

    def _take(self) -> list[_Waiting]:
        """Take a batch off the queue and number its entries."""
        if self._lost_count:
            self._note_itself(Note.LOST, str(self._lost_count), is_first=True)  # that it has stopped is the last entry
            self._lost_count = 0
        batch: list[_Waiting] = []
        while self._queue and len(batch) < BATCH_MAX:
            self._number += 1
            waiting = self._queue.popleft()
            batch.append(replace(waiting, draft=replace(waiting.draft, number=self._number)))
        return batch

    async def _write(self, batch: list[_Waiting]) -> None:
        """Write a batch, as often as it takes."""
        pause_s, drafts, entries = PAUSE_S, [waiting.draft for waiting in batch], None
        while entries is None:
            try:
                entries = await asyncio.to_thread(self._append, drafts, self._is_failing)
            except Exception as error:  # of any kind: entries must not be lost
                if not self._is_failing:
                    log.warning("the audit log cannot be written, retrying: %s", error)
                self._is_failing = True
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
        self._is_failing = False
        self._last_seq = max([self._last_seq, *(entry.seq for entry in entries)])
        _ENTRIES.add(len(batch))
        for waiting in batch:
            if waiting.written is not None and not waiting.written.done():
                waiting.written.set_result(None)

    def _append(self, drafts: Sequence[Draft], is_repeated: bool) -> list[Entry]:
        """Append entries, without those that a write had stored whose answer was lost."""
        if is_repeated:
            last = self._records.last_number(self._writer, self._last_seq)
            drafts = [draft for draft in drafts if draft.number > last]
        entries = self._records.append(drafts) if drafts else []
        if self._file:
            copy(self._file, entries)
        return entries


def copy(path: str, entries: Sequence[Entry]) -> None:
    """Append entries to a file, which is opened each time, so that it may be moved away."""
    lines = "".join(f"{json.dumps({'seq': each.seq, **asdict(each.draft), 'hash': each.hash})}\n" for each in entries)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(fd, "ab", buffering=0) as file:
            file.write(lines.encode())
    except OSError as error:
        log.warning("%d entries of the audit log are not in %s: %s", len(entries), path, error)
