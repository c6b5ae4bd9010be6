"""Bounds of the connections and calls of a gRPC server against clients that hold them: floods, half-open connections,
and requests that never come.

Requests are received by the interceptors here after the caller is known, so that a refused call holds no more than the
window of its connection, and within a time.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial
from typing import Any

import grpc

from peloton.errors import Cancelled, InvalidArgument
from services.servers.grpc_handlers import MAKERS, AroundCalls, AroundCallsOnThreads

CONNECTIONS_MAX = 8_000
"""Connections of a port. The process needs a file descriptor for each."""
STREAMS_OF_CONNECTION_MAX = 4_000
PENDING_CALLS_MAX = 10_000
"""Calls of a port that gRPC has received and that no handler has begun: those of a burst while the process is busy. By
default gRPC cancels some beyond 1,000, and all beyond 3,000.
"""
CALLS_OF_ROLE_MAX = 4_000
"""Calls in progress at a resource manager or host manager."""
HANDSHAKE_S = 10.0
"""Time for the handshakes of TLS and HTTP/2 of a new connection, in seconds."""
IDLE_S = 300.0
"""Time after which a connection without calls is closed, in seconds; clients open another one for the next call."""
KEEPALIVE_S, KEEPALIVE_TIMEOUT_S = 60.0, 20.0
"""A connection whose client does not answer a ping in the second time is closed."""
REQUEST_S = 300.0
"""Time for the first message of a call, in seconds: the largest one takes it at 7 Mb/s."""
CHECK_S = 1.0
"""Seconds between checks of calls that wait for their request, on a server with threads."""


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


CONNECTION_OPTIONS = (
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ("grpc.max_concurrent_streams", STREAMS_OF_CONNECTION_MAX),
    ("grpc.server.max_pending_requests", PENDING_CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", PENDING_CALLS_MAX),
    ("grpc.server_handshake_timeout_ms", _ms(HANDSHAKE_S)),
    ("grpc.max_connection_idle_ms", _ms(IDLE_S)),
    ("grpc.keepalive_time_ms", _ms(KEEPALIVE_S)),
    ("grpc.keepalive_timeout_ms", _ms(KEEPALIVE_TIMEOUT_S)),
)


class Incoming:
    """Messages of a call. The first one is awaited for ``wait_s`` at most, and while ``place`` is held."""

    def __init__(self, messages: AsyncIterator[bytes]) -> None:
        self._messages = messages
        self._has_first = False
        self.wait_s = REQUEST_S
        self.place: Callable[[], AbstractContextManager[None]] = nullcontext
        self.first_bytes: int | None = None  # None: it has not come

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> bytes:
        if self._has_first:
            return await anext(self._messages)
        self._has_first = True
        try:
            async with asyncio.timeout(self.wait_s):
                with self.place():
                    message = await anext(self._messages)
        except TimeoutError:
            raise Cancelled(f"the request has not come within {self.wait_s:g} s") from None
        self.first_bytes = len(message)
        return message

    async def read(self) -> bytes:
        """Return the request of a call that has one. Raises Cancelled, and InvalidArgument."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise InvalidArgument("the call has ended without a request") from None


class Receive(AroundCalls):
    """Outermost interceptor: methods below it receive Incoming, which ``Requests`` reads."""

    def wrap(self, method: str, handler: Any) -> Any:
        behaviour = handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream

        async def answer(messages: AsyncIterator[bytes], context: Any) -> Any:
            return await behaviour(Incoming(messages), context)

        async def stream(messages: AsyncIterator[bytes], context: Any) -> AsyncGenerator[Any, None]:
            async with aclosing(behaviour(Incoming(messages), context)) as responses:
                async for response in responses:
                    yield response

        make = MAKERS[True, handler.response_streaming]
        does = stream if inspect.isasyncgenfunction(behaviour) else answer
        return make(does, handler.request_deserializer, handler.response_serializer)


class ReceiveOnThreads(AroundCallsOnThreads):
    """The same for a server with threads, whose methods are all unary: they receive a function that reads the request.

    A call whose request does not come in time is cancelled, so that its thread is free.
    """

    def __init__(self, wait_s: float = REQUEST_S) -> None:
        self._overdue = Overdue(wait_s)

    def wrap(self, method: str, handler: Any) -> Any:
        def answer(messages: Iterator[bytes], context: Any) -> Any:
            return handler.unary_unary(partial(self._read, messages, context), context)

        make: Any = grpc.stream_unary_rpc_method_handler
        return make(answer, handler.request_deserializer, handler.response_serializer)

    def _read(self, messages: Iterator[bytes], context: Any) -> bytes:
        with self._overdue.cancelling(context):
            message = next(messages, None)
        if message is None:
            raise InvalidArgument("the call has ended without a request")
        return message


class Overdue:
    """Cancels calls whose request has not come in time; a thread checks them while there are some."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._waiting: dict[object, tuple[float, Any]] = {}  # in the order of their deadlines
        self._lock = threading.Lock()
        self._is_watched = False

    def cancelling(self, context: Any) -> _Waiting:
        return _Waiting(self, context)

    def add(self, key: object, context: Any) -> None:
        with self._lock:
            self._waiting[key] = (time.monotonic() + self._wait_s, context)
            if self._is_watched:
                return
            self._is_watched = True
        threading.Thread(target=self._watch, name="overdue requests", daemon=True).start()

    def remove(self, key: object) -> None:
        with self._lock:
            self._waiting.pop(key, None)

    def _watch(self) -> None:
        while True:
            time.sleep(CHECK_S)
            with self._lock:
                now_s = time.monotonic()
                late = [key for key, (until_s, _) in self._waiting.items() if until_s <= now_s]
                contexts = [self._waiting.pop(key)[1] for key in late]
                is_done = not self._waiting
                self._is_watched = not is_done
            for context in contexts:
                context.cancel()
            if is_done:
                return


class _Waiting:
    """Block in which a call waits for its request."""

    def __init__(self, overdue: Overdue, context: Any) -> None:
        self._overdue, self._context = overdue, context

    def __enter__(self) -> None:
        self._overdue.add(self, self._context)

    def __exit__(self, *exc: object) -> None:
        self._overdue.remove(self)
