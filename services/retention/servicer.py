"""Peloton's RetentionService, which the leading resource manager serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from peloton.api.convert_time import rfc3339_seconds
from peloton.api.v0.retention import retention_pb2 as pb
from peloton.lifecycle.retention import CLASSES, RecordClass
from services.retention.runner import Retention
from services.storage.retention.records import Progress
from services.storage.retention.sizes import Sizes, TableSize

UNKNOWN = TableSize(-1, -1)


class RetentionService:
    def __init__(self, retention: Retention, sizes: Sizes, archive: str) -> None:
        self._retention, self._sizes, self._archive = retention, sizes, archive

    async def GetRetention(self, request: pb.GetRetentionRequest, context: Any) -> pb.GetRetentionResponse:
        return await asyncio.to_thread(self._read)

    def _read(self) -> pb.GetRetentionResponse:
        sizes, due, progress = self._sizes.read(), self._retention.count_due(), self._retention.read_progress()
        return pb.GetRetentionResponse(
            classes=[self._class(each, sizes, due.get(each.name, 0), progress.get(each.name)) for each in CLASSES],
            archive=self._archive,
            period_s=self._retention.policy.period_s,
        )

    def _class(
        self, each: RecordClass, sizes: Mapping[str, TableSize], due: int, progress: Progress | None
    ) -> pb.RecordClass:
        own = [sizes.get(table, UNKNOWN) for table in each.tables]
        progress = progress or Progress()
        return pb.RecordClass(
            name=each.name,
            rule=each.rule,
            days=self._retention.policy.days.get(each.name, 0),
            is_archived=each.is_archived,
            row_count=_sum(one.row_count for one in own),
            byte_count=_sum(one.byte_count for one in own),
            due_count=due,
            deleted_count=progress.deleted_count,
            archived_bytes=progress.archived_bytes,
            last_round_time=rfc3339_seconds(progress.ran_ns),
            note=progress.note,
        )


def _sum(numbers: Any) -> int:
    found = list(numbers)
    return -1 if any(number < 0 for number in found) else sum(found)
