"""The server side of WebSockets on a connection whose HTTP request has been read: handshake, frames and messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from websockets.frames import Frame, Opcode
from websockets.protocol import SERVER, Protocol
from websockets.utils import accept_key

BINARY, CLOSE, PING, PONG = Opcode.BINARY, Opcode.CLOSE, Opcode.PING, Opcode.PONG
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
    accept = accept_key(headers["sec-websocket-key"])
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    ).encode("latin-1")


def frame(kind: Opcode, payload: bytes) -> bytes:
    return Frame(kind, payload).serialize(mask=False)


class Messages:
    """A parser of received bytes into messages; the caller answers them, and pings, itself."""

    def __init__(self) -> None:
        self._protocol = Protocol(SERVER, max_size=MESSAGE_BYTES_MAX)
        self._parts: list[bytes] = []
        self._kind = BINARY

    def feed(self, data: bytes) -> Iterator[tuple[Opcode, bytes]]:
        """Yield kind and payload of each message. Raises WebSocketError."""
        protocol = self._protocol
        protocol.receive_data(data)
        protocol.data_to_send()  # answers of the protocol itself
        for event in protocol.events_received():
            assert isinstance(event, Frame)
            if event.opcode in (CLOSE, PING, PONG):
                yield event.opcode, bytes(event.data)
                continue
            self._kind = self._kind if event.opcode is Opcode.CONT else event.opcode
            self._parts.append(bytes(event.data))
            if event.fin:
                yield self._kind, b"".join(self._parts)
                self._parts.clear()
        if protocol.parser_exc is not None:
            raise WebSocketError(str(protocol.parser_exc))
