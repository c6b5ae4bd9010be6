"""Exceptions as gRPC statuses, by one interceptor round every method."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from peloton.errors import Internal, PelotonError
from services.servers.grpc_errors import details_of, status_of, trailing_of
from services.servers.grpc_handlers import AroundCalls, within

log = logging.getLogger(__name__)


class ErrorsToStatus(AroundCalls):
    """Interceptor that turns a PelotonError into its status. Any other exception becomes INTERNAL and is logged with
    its stack.

    ``role``: the process whose log has the stack, as the client's message names it.
    """

    def __init__(self, role: str) -> None:
        self._role = role

    def wrap(self, method: str, handler: Any) -> Any:
        @asynccontextmanager
        async def around(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                yield request
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except Exception as error:
                await self._abort(context, method, error)

        return within(handler, around, handler.request_deserializer)

    async def _abort(self, context: Any, method: str, error: Exception) -> None:
        match error:
            case PelotonError():
                await context.abort(status_of(error), details_of(error), trailing_of(error))
            case _:
                log.error("%s failed", method, exc_info=error)
                text = f"internal error in {method}: {type(error).__name__}; see the log of the {self._role}"
                await context.abort(grpc.StatusCode.INTERNAL, text, trailing_of(Internal(text)))
