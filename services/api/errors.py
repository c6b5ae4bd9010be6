"""From exceptions to gRPC statuses: one interceptor round every method."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from peloton.api.limits import RETRY_AFTER
from peloton.errors import PelotonError, ResourceExhausted
from services.api.handlers import answering, changed

log = logging.getLogger(__name__)

RETRY_KEYS = (RETRY_AFTER, "grpc-retry-pushback-ms")
"""Trailing metadata that say when to try again: ours, and what gRPC's own retries heed."""


class ErrorsToStatus(grpc.aio.ServerInterceptor):
    """PelotonError becomes the status that it names; the unexpected becomes INTERNAL and is logged with its stack."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        guarded: Any = handler
        if (one := answering(handler)) is not None:
            guarded = changed(handler, answer=_answer(one, method))
        elif inspect.isasyncgenfunction(handler.unary_stream):
            guarded = changed(handler, stream=_stream(handler.unary_stream, method))
        return guarded  # type: ignore[no-any-return]


def _answer(behaviour: Callable[[Any, Any], Awaitable[Any]], method: str) -> Any:
    async def guarded(request: Any, context: Any) -> Any:
        try:
            return await behaviour(request, context)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:
            await _abort(context, method, error)

    return guarded


def _stream(behaviour: Callable[[Any, Any], AsyncGenerator[Any, None]], method: str) -> Any:
    async def guarded(request: Any, context: Any) -> AsyncGenerator[Any, None]:
        try:
            async with aclosing(behaviour(request, context)) as responses:
                async for response in responses:
                    yield response
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:
            await _abort(context, method, error)

    return guarded


async def _abort(context: Any, method: str, error: Exception) -> None:
    match error:
        case ResourceExhausted(retry_after_s=float(seconds)):
            trailing = tuple((key, str(round(seconds * 1000))) for key in RETRY_KEYS)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message, trailing)
        case PelotonError():
            await context.abort(grpc.StatusCode[error.code], error.message)
        case _:
            log.error("%s failed", method, exc_info=error)
            text = f"internal error in {method}: {type(error).__name__}; see the log of the api"
            await context.abort(grpc.StatusCode.INTERNAL, text)
