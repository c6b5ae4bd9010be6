"""Tiny servers on ephemeral ports."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable

TIMEOUT_S = 180.0
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Server:
    """A server that handles each connection by ``serve`` on its own thread; the connection ends when it returns."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self.connections = 0
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in (self._acceptor, *self._threads):
            thread.join(TIMEOUT_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(connection)
            thread = threading.Thread(target=self._one, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _one(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._serve(connection)


class Requests:
    """The bodies of the requests of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = b""
        self.head = b""

    def next(self) -> bytes | None:
        """Return the next body, or None when the client has closed."""
        while b"\r\n\r\n" not in self._pending:
            if not self._receive():
                return None
        self.head, _, self._pending = self._pending.partition(b"\r\n\r\n")
        found = _LENGTH.search(self.head)
        assert found
        while len(self._pending) < int(found[1]):
            if not self._receive():
                return None
        body, self._pending = self._pending[: int(found[1])], self._pending[int(found[1]) :]
        return body

    def _receive(self) -> bool:
        data = self._connection.recv(1 << 20)
        self._pending += data
        return bool(data)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def record(data: bytes) -> bytes:
    return b"%d\n%s" % (len(data), data)


def stream_head(status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nMesos-Stream-Id: s-1\r\nTransfer-Encoding: chunked\r\n\r\n"


def answer(status: bytes, text: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text)
