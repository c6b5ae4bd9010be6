"""From exceptions to gRPC statuses: one interceptor round every method."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from peloton.errors import PelotonError, ResourceExhausted
from services.api.calls import RETRY_AFTER_S

log = logging.getLogger(__name__)

RETRY_KEY = "grpc-retry-pushback-ms"
"""Trailing metadata that gRPC clients understand: when to try again."""


class ErrorsToStatus(grpc.aio.ServerInterceptor):
    """PelotonError becomes the status that it names; the unexpected becomes INTERNAL and is logged with its stack."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler  # type: ignore[no-any-return]
        behaviour, method = handler.unary_unary, handler_call_details.method

        async def guarded(request: Any, context: Any) -> Any:
            try:
                return await behaviour(request, context)
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except ResourceExhausted as error:
                pushback = ((RETRY_KEY, str(RETRY_AFTER_S * 1000)),)
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message, pushback)
            except PelotonError as error:
                await context.abort(grpc.StatusCode[error.code], error.message)
            except Exception as error:
                log.exception("%s failed", method)
                text = f"internal error in {method}: {type(error).__name__}; see the log of the api"
                await context.abort(grpc.StatusCode.INTERNAL, text)

        guarded_handler: Any = grpc.unary_unary_rpc_method_handler(
            guarded, handler.request_deserializer, handler.response_serializer
        )
        return guarded_handler  # type: ignore[no-any-return]
