"""Connections of HTTP clients: one that sends its request or reads its answer too slowly is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.servers.bounded_listener import BoundedListener, Place

HEAD_BYTES_MAX = 64 * 2**10
HEAD_S_MAX = 10.0
"""Time from the first byte of a request, or the handshake, to the end of its headers, in seconds."""
ANSWER_S_MAX = 60.0
"""Time in which a client must read what is sent to it, in seconds."""


class Connection(HttpToolsProtocol):
    """Protocol of one connection, with the bounds that uvicorn leaves to a proxy."""

    def __init__(self, listener: BoundedListener, request_s: float, **named: Any) -> None:
        """``request_s``: time from the first byte of a request to its last, in seconds."""
        super().__init__(**named)
        self._listener, self._request_s = listener, request_s
        self._place: Place | None = None
        self._head_bytes: int | None = 0  # None: the head has been read
        self._head: asyncio.TimerHandle | None = None
        self._requested: asyncio.TimerHandle | None = None
        self._answered: asyncio.TimerHandle | None = None
        self._is_answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place = self._listener.place_of(transport.get_extra_info("socket").fileno(), transport.abort)
        self._begin_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel_timers()

    def data_received(self, data: bytes) -> None:
        if self._requested is None:
            self._begin_request()
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > HEAD_BYTES_MAX:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        if self._head is not None:
            self._head.cancel()
            self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_bytes = 0
        if self._requested is not None:
            self._requested.cancel()
            self._requested = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._work()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.cycle.response_complete:  # of the next request, which was sent before the answer
            return
        self._is_answering = False
        if self._place is not None:
            self._place.wait()

    def handle_websocket_upgrade(self) -> None:
        self._cancel_timers()
        self._work()
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answered = self.loop.call_later(ANSWER_S_MAX, self.transport.abort)
        if self._place is not None:
            self._place.wait()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answered is not None:
            self._answered.cancel()
            self._answered = None
        if self._is_answering:
            self._work()

    def _begin_request(self) -> None:
        self._head = self.loop.call_later(HEAD_S_MAX, self.transport.abort)
        self._requested = self.loop.call_later(self._request_s, self.transport.abort)

    def _work(self) -> None:
        self._is_answering = True
        if self._place is not None:
            self._place.work()

    def _cancel_timers(self) -> None:
        for timer in (self._head, self._requested, self._answered):
            if timer is not None:
                timer.cancel()
