"""AuditService: reads the audit log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Protocol

from peloton.access.audit import Entry
from peloton.api.v0.audit import audit_pb2 as pb
from peloton.errors import InvalidArgument
from services.storage.audit.audit_log import PAGE_MAX, AuditFilter, AuditLog

LIMIT = 100


class RunsCalls(Protocol):
    """Threads for blocking calls."""

    async def run(self, call: Any, *args: Any, **named: Any) -> Any: ...


class AuditService:
    def __init__(self, records: AuditLog, calls: RunsCalls) -> None:
        self._records, self._calls = records, calls

    async def Query(self, request: pb.AuditQueryRequest, context: Any) -> pb.AuditQueryResponse:
        if not 0 <= request.limit <= PAGE_MAX:
            raise InvalidArgument(f"limit {request.limit}: want 0 to {PAGE_MAX:,}")
        wanted = AuditFilter(
            request.user, request.method, request.object, request.result, request.since_ns, request.until_ns
        )
        anchor_seq, anchor_hash, head_seq = await self._calls.run(self._records.ends)
        entries: list[Entry] = await self._calls.run(
            self._records.page,
            wanted,
            after=request.after_seq,
            before=request.before_seq,
            limit=request.limit or LIMIT,
            is_newest_first=request.is_newest_first,
        )
        return pb.AuditQueryResponse(
            entries=[pb.AuditEntry(seq=each.seq, hash=each.hash, **asdict(each.draft)) for each in entries],
            anchor_seq=anchor_seq,
            anchor_hash=anchor_hash,
            head_seq=head_seq,
        )
