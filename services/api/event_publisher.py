"""Private service of the Aurora bridge's publisher: its lease, and how far it has published the log of changes."""

from __future__ import annotations

import time
from typing import Any

from peloton.api.private import publisher_pb2 as pb
from peloton.errors import InvalidArgument, LeadershipLost
from services.api.calls import Calls
from services.fence import Fence
from services.storage.leases import Leases
from services.storage.watch_log import WatchLog

NAME = "peloton.private.publisher.EventPublisher"
ROLE = "publisher"
"""Role of the lease row."""
TTL_MAX_S = 60.0
OWNER_CHARS_MAX = 200
POSITION_MAX = 2**63 - 1


class EventPublisher:
    def __init__(self, leases: Leases, log: WatchLog, calls: Calls) -> None:
        self._leases = leases
        self._log = log
        self._calls = calls

    async def Lease(self, request: pb.LeaseRequest, context: Any) -> pb.LeaseResponse:
        if not 0 < len(request.owner) <= OWNER_CHARS_MAX or "\0" in request.owner:
            raise InvalidArgument(f"the owner of a lease has 1 to {OWNER_CHARS_MAX} characters, without NUL")
        if not 0 <= request.ttl_s <= TTL_MAX_S or request.position > POSITION_MAX:
            raise InvalidArgument(
                f"a lease of {request.ttl_s} s at position {request.position}: want 0 to {TTL_MAX_S:.0f} s, and a "
                f"position up to {POSITION_MAX}"
            )
        return await self._calls.run(self._lease, request)

    def _lease(self, request: pb.LeaseRequest) -> pb.LeaseResponse:
        """Acquire first: a process that lost its lease must not overwrite its successor's position."""
        epoch = self._leases.acquire(ROLE, request.owner, "", request.ttl_s, time.time())
        if epoch and request.HasField("position"):
            try:
                fence = Fence.of(ROLE, request.owner, epoch)
                self._log.with_fence(fence).set_published(request.position)
            except LeadershipLost:
                epoch = 0
        return pb.LeaseResponse(holds=bool(epoch), position=self._log.read_published())
