"""The audit log: appended in batches that continue one chain of hashes, deleted from its beginning only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import sqlalchemy as sa

from peloton.access.audit import Draft, Entry, link
from services.storage.engine import Repository, reading, take_numbers, writing
from services.storage.tables import AUDIT, AUDIT_ANCHOR, COUNTER

AUDIT_SEQ = "audit"
PAGE_MAX = 1_000
_FIELDS = tuple(each.name for each in fields(Draft))
_ROW = AUDIT.c
_APPENDING = AUDIT.insert()


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Entries that are wanted. Empty texts and zeros select all; methods and objects match in part."""

    user: str = ""
    method: str = ""
    object: str = ""
    result: str = ""
    since_ns: int = 0
    until_ns: int = 0


class AuditLog(Repository):
    @writing
    def append(self, conn: sa.Connection, drafts: Sequence[Draft]) -> list[Entry]:
        """Append entries and return them with their hashes; other processes wait until the end of the transaction."""
        first = take_numbers(conn, AUDIT_SEQ, len(drafts))
        entries = link(_hash_of(conn, first - 1), first, drafts)
        conn.execute(_APPENDING, [{"seq": each.seq, "hash": each.hash, **asdict(each.draft)} for each in entries])
        return entries

    def page(
        self, wanted: AuditFilter, after: int = 0, before: int = 0, limit: int = PAGE_MAX, is_newest_first: bool = False
    ) -> list[Entry]:
        """Return entries with numbers above ``after`` and below ``before`` (0: no bound)."""
        order = _ROW.seq.desc() if is_newest_first else _ROW.seq
        query = sa.select(AUDIT).where(_ROW.seq > after, *_conditions(wanted)).order_by(order).limit(limit)
        if before:
            query = query.where(_ROW.seq < before)
        return self._db.read(lambda conn: [_entry(row) for row in conn.execute(query)])

    @reading
    def ends(self, conn: sa.Connection) -> tuple[int, str, int]:
        """Return number and hash of the last deleted entry (0 and "": none), and the number of the last entry."""
        head = conn.execute(sa.select(COUNTER.c.value).where(COUNTER.c.name == AUDIT_SEQ)).scalar_one()
        return *_anchor(conn), int(head)

    def last_number(self, writer: str, after: int) -> int:
        """Return the number of a process's last entry above ``after``; 0: it has none there."""
        query = sa.select(_ROW.number).where(_ROW.seq > after, _ROW.writer == writer).order_by(_ROW.seq.desc()).limit(1)
        return self._db.read(lambda conn: conn.execute(query).scalar()) or 0

    @writing
    def prune(self, conn: sa.Connection, before_ns: int, limit: int) -> int:
        """Delete the oldest entries of an earlier time, and return their number. The last one deleted stays as the
        anchor of the chain."""
        oldest = sa.select(_ROW.seq, _ROW.at_ns, _ROW.hash).order_by(_ROW.seq).limit(limit)
        old = []
        for row in conn.execute(oldest):
            if row.at_ns >= before_ns:
                break
            old.append(row)
        if old:
            conn.execute(sa.delete(AUDIT_ANCHOR))
            conn.execute(AUDIT_ANCHOR.insert(), {"seq": old[-1].seq, "hash": old[-1].hash})
            conn.execute(sa.delete(AUDIT).where(_ROW.seq <= old[-1].seq))
        return len(old)


def _hash_of(conn: sa.Connection, seq: int) -> str:
    """Return the hash of an entry; "" before the first one, and where it is missing."""
    found: str | None = conn.execute(sa.select(_ROW.hash).where(_ROW.seq == seq)).scalar()
    if found is None:
        anchor_seq, anchor_hash = _anchor(conn)
        found = anchor_hash if anchor_seq == seq else ""
    return found


def _anchor(conn: sa.Connection) -> tuple[int, str]:
    row = conn.execute(sa.select(AUDIT_ANCHOR).order_by(AUDIT_ANCHOR.c.seq.desc()).limit(1)).first()
    return (row.seq, row.hash) if row is not None else (0, "")


def _entry(row: sa.Row[tuple[object, ...]]) -> Entry:
    values = row._mapping
    return Entry(values["seq"], Draft(**{name: values[name] for name in _FIELDS}), values["hash"])


def _conditions(wanted: AuditFilter) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if wanted.user:
        found.append(sa.or_(_ROW.caller == wanted.user, _ROW.via == wanted.user))
    if wanted.method:
        found.append(_ROW.method.contains(wanted.method, autoescape=True))
    if wanted.object:
        found.append(_ROW.object.contains(wanted.object, autoescape=True))
    if wanted.result:
        found.append(_ROW.result == wanted.result)
    if wanted.since_ns:
        found.append(_ROW.at_ns >= wanted.since_ns)
    if wanted.until_ns:
        found.append(_ROW.at_ns < wanted.until_ns)
    return found
