"""Handlers of gRPC methods, wrapped by interceptors."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import grpc

Around = Callable[[Any, Any], AbstractAsyncContextManager[Any]]
"""Context manager that lasts as long as the call. It receives the request (or the iterator of a stream of requests) and
the context, and yields the request that is passed to the method.
"""

METHODS_MAX = 2_000
"""Maximum number of methods whose wrapped handlers are kept."""
MAKERS: dict[tuple[bool, bool], Any] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
"""Makers of handlers by two facts: requests are a stream, answers are a stream."""


class AroundCalls(grpc.aio.ServerInterceptor):
    """Interceptor that runs each call inside a context manager. Handlers are wrapped once for each method."""

    _wrapped: dict[str, tuple[Any, Any]] | None = None

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        if self._wrapped is None:
            self._wrapped = {}
        method = handler_call_details.method
        inner, wrapped = self._wrapped.get(method, (None, None))
        if inner is not handler:
            wrapped = self.wrap(method, handler)
            if len(self._wrapped) < METHODS_MAX:
                self._wrapped[method] = handler, wrapped
        found: grpc.RpcMethodHandler[Any, Any] = wrapped
        return found

    def wrap(self, method: str, handler: Any) -> Any:
        """Return the handler of a method, unchanged or wrapped by ``within``; equal for each call of the method."""
        raise NotImplementedError


class AroundCallsOnThreads(grpc.ServerInterceptor):
    """The same for a server with threads, whose methods are all unary."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = continuation(handler_call_details)
        wrapped: grpc.RpcMethodHandler[Any, Any] | None = None
        if handler is not None:
            wrapped = self.wrap(handler_call_details.method, handler)
        return wrapped

    def wrap(self, method: str, handler: Any) -> Any:
        """Return the handler of a method, unchanged or wrapped."""
        raise NotImplementedError


def within(handler: Any, around: Around, read: Any) -> Any:
    """Return a handler of the same kind that runs inside ``around``, on requests that ``read`` deserializes."""
    behaviour = handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream

    async def answer(request: Any, context: Any) -> Any:
        async with around(request, context) as seen:
            return await behaviour(seen, context)

    async def stream(request: Any, context: Any) -> AsyncGenerator[Any, None]:
        async with around(request, context) as seen, aclosing(behaviour(seen, context)) as responses:
            async for response in responses:
                yield response

    make = MAKERS[handler.request_streaming, handler.response_streaming]
    does = stream if inspect.isasyncgenfunction(behaviour) else answer
    return make(does, read, handler.response_serializer)
