"""The server side of WebSockets: the handshake, and frames to messages and back (RFC 6455)."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Sequence

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10
NORMAL_CLOSURE = 1000
MESSAGE_BYTES_MAX = 16 * 1024 * 1024


class WebSocketError(Exception):
    """The error of bytes that are not a client's frame, or of too many."""


def chosen_protocol(headers: dict[str, str], known: Sequence[str]) -> str | None:
    """Return the first known protocol that the client offers; None if there is none, or no WebSocket is requested."""
    if headers.get("upgrade", "").lower() != "websocket" or "sec-websocket-key" not in headers:
        return None
    offered = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",")]
    return next((name for name in known if name in offered), None)


def handshake(headers: dict[str, str], protocol: str) -> bytes:
    accept = b64encode(hashlib.sha1((headers["sec-websocket-key"] + _GUID).encode()).digest()).decode()  # noqa: S324
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    ).encode("latin-1")


def frame(kind: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | kind, size))
    elif size < 1 << 16:
        head = bytes((0x80 | kind, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | kind, 127)) + size.to_bytes(8, "big")
    return head + payload


class Messages:
    """A parser of received bytes into messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._parts = b""
        self._kind = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield kind and payload of each message. Raises WebSocketError."""
        self._rest += data
        while (found := self._frame()) is not None:
            kind, payload, is_last = found
            if kind in (CLOSE, PING, PONG):
                yield kind, payload
                continue
            self._kind = kind or self._kind
            self._parts += payload
            if len(self._parts) > MESSAGE_BYTES_MAX:
                raise WebSocketError(f"a message of more than {MESSAGE_BYTES_MAX} bytes")
            if is_last:
                yield self._kind, self._parts
                self._parts = b""

    def _frame(self) -> tuple[int, bytes, bool] | None:
        rest = self._rest
        if len(rest) < 2:
            return None
        size, at = rest[1] & 0x7F, 2
        if not rest[1] & 0x80:
            raise WebSocketError("frames of clients have to be masked")
        for mark, length in ((126, 2), (127, 8)):
            if size == mark and at == 2:
                if len(rest) < 2 + length:
                    return None
                size, at = int.from_bytes(rest[2 : 2 + length], "big"), 2 + length
        if size > MESSAGE_BYTES_MAX:
            raise WebSocketError(f"a frame of more than {MESSAGE_BYTES_MAX} bytes")
        end = at + 4 + size
        if len(rest) < end:
            return None
        mask = rest[at : at + 4]
        payload = _unmask(rest[at + 4 : end], mask)
        self._rest = rest[end:]
        return rest[0] & 0x0F, payload, bool(rest[0] & 0x80)


def _unmask(payload: bytes, mask: bytes) -> bytes:
    if not payload:
        return b""
    whole = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(whole, "big")).to_bytes(len(payload), "big")
