"""The client side of a WebSocket, for tests."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

from services.lab.shared.http.websocket import BINARY, CLOSE


def mask_frame(kind: int, payload: bytes, is_last: bool = True) -> bytes:
    """Return one frame as a client sends it."""
    size = len(payload)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 1 << 16:
        length = bytes((0x80 | 126,)) + size.to_bytes(2, "big")
    else:
        length = bytes((0x80 | 127,)) + size.to_bytes(8, "big")
    mask = os.urandom(4)
    body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes((kind | (0x80 if is_last else 0),)) + length + mask + body


class Channels:
    """A WebSocket whose messages begin with the number of a channel."""

    def __init__(self, port: int, path: str, protocol: str, accept: str = "*/*") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=180)
        lines = (
            f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            f"Sec-WebSocket-Protocol: {protocol}", f"Accept: {accept}", "", "",
        )  # fmt: skip
        self._socket.sendall("\r\n".join(lines).encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        while self._file.readline().strip():
            pass

    def send(self, channel: int, data: bytes) -> None:
        self._socket.sendall(mask_frame(BINARY, bytes((channel,)) + data))

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield channel and data of each message, until the server ends."""
        while head := self._file.read(2):
            size = head[1] & 0x7F
            if size > 125:
                size = int.from_bytes(self._file.read(2 if size == 126 else 8), "big")
            payload = self._file.read(size)
            if head[0] & 0x0F == CLOSE:
                return
            yield payload[0], payload[1:]

    def rest(self) -> dict[int, bytes]:
        """Return all data until the end, by channel."""
        found: dict[int, bytes] = {}
        for channel, data in self.messages():
            found[channel] = found.get(channel, b"") + data
        return found
