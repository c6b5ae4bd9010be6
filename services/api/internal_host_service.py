"""InternalHostService of the original, limited to the known part of its wire format: the call without fields."""

from __future__ import annotations

from typing import Any

from peloton.api.v0.host import internal_pb2
from services.api.calls import Calls
from services.api.servicer import write
from services.api.v1.lockdown import Locks

KILL = "Kill"
"""Component that ends pods."""


class InternalHostService:
    def __init__(self, locks: Locks, calls: Calls) -> None:
        self._locks = locks
        self._calls = calls

    @write
    async def DisableKillTasks(
        self, request: internal_pb2.DisableKillTasksRequest, context: Any
    ) -> internal_pb2.DisableKillTasksResponse:
        await self._locks.set(KILL, True)
        return internal_pb2.DisableKillTasksResponse()
