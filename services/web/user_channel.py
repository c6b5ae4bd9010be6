"""A channel to the api whose calls carry the credentials of the viewer, in place of those of role web."""

from __future__ import annotations

from typing import Any

from services.web.viewer import VIEWER


class UserChannel:
    """Adds headers where calls begin. It has no interceptors, which would hide how a stream is sent."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def unary_unary(self, *words: Any, **named: Any) -> Any:
        return _with_headers(self._channel.unary_unary(*words, **named))

    def unary_stream(self, *words: Any, **named: Any) -> Any:
        return _with_headers(self._channel.unary_stream(*words, **named))

    def stream_unary(self, *words: Any, **named: Any) -> Any:
        return _with_headers(self._channel.stream_unary(*words, **named))

    def stream_stream(self, *words: Any, **named: Any) -> Any:
        return _with_headers(self._channel.stream_stream(*words, **named))

    async def close(self) -> None:
        await self._channel.close()


def _with_headers(method: Any) -> Any:
    def call(*words: Any, **named: Any) -> Any:
        if headers := VIEWER.get().headers:
            named["metadata"] = (*(named.get("metadata") or ()), *headers)
        return method(*words, **named)

    return call
