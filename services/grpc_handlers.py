"""Handlers of gRPC methods, as interceptors change them."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import grpc

Around = Callable[[Any, Any], AbstractAsyncContextManager[Any]]
"""Of a request, or the iterator of a stream of them, and its context: lasts as long as the call, and gives what the
method is to see as its request."""

_MAKERS: dict[tuple[bool, bool], Any] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def single_response(handler: Any) -> Any:
    """What gives the one response of a method; None for a method that streams them."""
    return handler.unary_unary or handler.stream_unary


def rewrap_handler(handler: Any, answer: Any = None, stream: Any = None) -> Any:
    """A handler of the same kind that does this instead: ``answer`` for one response, ``stream`` for many."""
    make = _MAKERS[handler.request_streaming, handler.response_streaming]
    behaviour = stream if handler.response_streaming else answer
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


def within(handler: Any, around: Around, read: Any) -> Any:
    """A handler of the same kind that does what it does within ``around``, on requests that ``read`` makes."""
    behaviour = single_response(handler) or handler.unary_stream or handler.stream_stream

    async def answer(request: Any, context: Any) -> Any:
        async with around(request, context) as seen:
            return await behaviour(seen, context)

    async def stream(request: Any, context: Any) -> AsyncGenerator[Any, None]:
        async with around(request, context) as seen, aclosing(behaviour(seen, context)) as responses:
            async for response in responses:
                yield response

    make = _MAKERS[handler.request_streaming, handler.response_streaming]
    does = stream if inspect.isasyncgenfunction(behaviour) else answer
    return make(does, read, handler.response_serializer)
