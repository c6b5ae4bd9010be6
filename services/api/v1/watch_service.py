"""v1alpha WatchService: streams of changes of service jobs and their pods."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as svc
from services.api.v1.watch_changes import filter_of
from services.api.v1.watch_hub import WatchHub


class WatchService:
    def __init__(self, hub: WatchHub) -> None:
        self._hub = hub

    async def Watch(self, request: svc.WatchRequest, context: Any) -> AsyncGenerator[svc.WatchResponse, None]:
        async with aclosing(self._hub.watch(filter_of(request), request.start_revision)) as responses:
            async for response in responses:
                yield response

    async def Cancel(self, request: svc.CancelRequest, context: Any) -> svc.CancelResponse:
        await self._hub.cancel(request.watch_id)
        return svc.CancelResponse()
