"""Entries of the audit log, and the chain of hashes that shows whether one was changed, removed or added later."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from hashlib import sha256

TEXT_CHARS_MAX = 200
"""Characters of each text of an entry; a reason has more."""
REASON_CHARS_MAX = 300
WRITERS_MAX = 10_000
"""Writers that a verification remembers."""
OK = "OK"


class Note(StrEnum):
    """Entries about the log itself, in place of a method."""

    STARTED = "audit/Started"
    STOPPED = "audit/Stopped"
    LOST = "audit/Lost"


@dataclass(frozen=True, slots=True)
class Draft:
    """A call: time, caller, method, object, result. ``number`` counts the entries of one writer, from 1."""

    at_ns: int
    writer: str
    number: int
    method: str
    result: str
    caller: str = ""
    kind: str = ""
    issuer: str = ""
    via: str = ""
    token_id: str = ""
    peer: str = ""
    object: str = ""
    reason: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A draft with its place in the log. The hash covers the draft, the number and the hash of the entry before."""

    seq: int
    draft: Draft
    hash: str


def clean(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return a text that both databases store as it is, of bounded length."""
    short = text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"
    return short.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def compute_hash(before: str, seq: int, draft: Draft) -> str:
    """Return the hash of an entry. ``before``: that of the entry before it, "" for the first one."""
    content = json.dumps([before, seq, *astuple(draft)], ensure_ascii=False, separators=(",", ":"))
    return sha256(content.encode()).hexdigest()


def link(before: str, first_seq: int, drafts: Iterable[Draft]) -> list[Entry]:
    """Return the entries that follow the one with the hash ``before``."""
    entries = []
    for seq, draft in enumerate(drafts, first_seq):
        before = compute_hash(before, seq, draft)
        entries.append(Entry(seq, draft, before))
    return entries


@dataclass(frozen=True, slots=True)
class Writer:
    """Entries of one process that have been seen."""

    first: int
    last: int
    has_stopped: bool = False


@dataclass(slots=True)
class Verification:
    """Checks entries in the order of their numbers. ``seq`` and ``hash`` begin with the anchor."""

    seq: int = 0
    hash: str = ""
    fault: str = ""
    """The first broken entry, and what is wrong with it; empty: none."""
    lost_count: int = 0
    """Calls that the log says it could not record."""
    writers: dict[str, Writer] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Check the next entry. Entries after the first broken one change nothing."""
        if self.fault:
            return
        if entry.seq != self.seq + 1:
            self.fault = f"entry {self.seq + 1} is missing: the next one is {entry.seq}"
        elif entry.hash != compute_hash(self.hash, entry.seq, entry.draft):
            self.fault = f"entry {entry.seq} is not what was written: its hash does not match"
        else:
            self._count(entry)
            self.seq, self.hash = entry.seq, entry.hash

    def finish(self, head_seq: int) -> None:
        """Check that the last entry is the last one that was written."""
        if not self.fault and self.seq < head_seq:
            self.fault = f"entry {self.seq + 1} is missing: {head_seq} have been written"

    def _count(self, entry: Entry) -> None:
        draft = entry.draft
        known = self.writers.get(draft.writer)
        if draft.method == Note.LOST:
            self.lost_count += int(draft.result) if draft.result.isdecimal() else 1
        if known is None:
            if len(self.writers) >= WRITERS_MAX:
                del self.writers[next(iter(self.writers))]
            known = Writer(draft.number, draft.number - 1)
        if draft.number != known.last + 1:
            self.fault = (
                f"entry {entry.seq} is number {draft.number} of process {draft.writer}, after its number {known.last}"
            )
        self.writers[draft.writer] = replace(known, last=draft.number, has_stopped=draft.method == Note.STOPPED)

    def find_running(self) -> list[str]:
        """Return the processes that run, or ended without an entry that says so."""
        return [name for name, writer in self.writers.items() if not writer.has_stopped]
