"""Connections of clients: one that sends its request or reads its answer too slowly is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 64 * 2**10
REQUEST_S_MAX = 40.0
"""Time from the first byte of a request to its last, in seconds; a little more than that of its body."""
ANSWER_S_MAX = 60.0
"""Time in which a client must read what is sent to it, in seconds."""


class Connection(HttpToolsProtocol):
    """Protocol of one connection, with the bounds that uvicorn leaves to a proxy."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_bytes: int | None = 0  # None: the head has been read
        self._requested: asyncio.TimerHandle | None = None
        self._answered: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._requested = self.loop.call_later(REQUEST_S_MAX, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._requested, self._answered):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._requested is None:
            self._requested = self.loop.call_later(REQUEST_S_MAX, self.transport.abort)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > HEAD_BYTES_MAX:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_bytes = 0
        if self._requested is not None:
            self._requested.cancel()
            self._requested = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answered = self.loop.call_later(ANSWER_S_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answered is not None:
            self._answered.cancel()
            self._answered = None
