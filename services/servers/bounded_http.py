"""A threaded HTTP server with a bound on its connections, for endpoints that must not wait for the role's own work.

When all connections are taken, the oldest gives way to the next, unless the server works on its answer.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

log = logging.getLogger(__name__)

ANSWER_S = 10.0
"""Time in which a client must read its answer, in seconds."""
GIVE_WAY_S = 1.0
"""Longest wait for the thread of a connection that gives way, in seconds."""


class _Incoming(io.RawIOBase):
    """The input of a connection, with a deadline for the whole however slowly it arrives."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection = connection
        self._until_s = time.monotonic() + timeout_s
        self._has_begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        if not self._has_begun and isinstance(self._connection, ssl.SSLSocket):
            self._connection.do_handshake()  # which a read would do without checks of the context's class
        self._has_begun = True
        return self._connection.recv_into(buffer)


class BoundedHandler(BaseHTTPRequestHandler):
    """Handler of a connection, for one request, whose bytes all come within the time of the server."""

    server: BoundedHttpServer
    default_request_version = "HTTP/1.0"  # an answer to a malformed request has a status, too

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Incoming(self.connection, self.server.request_s))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work on an answer, whose request is complete. The connection does not give way meanwhile."""
        self.server.note_working(self.connection)
        try:
            yield
        finally:
            self.server.note_waiting(self.connection)
            self.connection.settimeout(ANSWER_S)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


class BoundedHttpServer(ThreadingHTTPServer):
    """Serves each connection in a thread of its own, with TLS if there is a ``context``."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BoundedHandler],
        connections_max: int,
        request_s: float,
        context: ssl.SSLContext | None,
    ) -> None:
        """``request_s``: time for a handshake and a request, in seconds. Raises OSError when the address cannot be
        bound.
        """
        self.request_s, self._context = request_s, context
        self._free = threading.BoundedSemaphore(connections_max)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Any, None] = OrderedDict()  # for their client; the oldest first
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        request, client_address = super().get_request()
        if self._context is not None:  # the handshake comes with the first read, in the thread of the connection
            request = self._context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, client_address

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._has_place():
            self.refuse(request)
            self.shutdown_request(request)
            return
        self.note_waiting(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self.note_working(request)
            self._free.release()
            raise

    def note_waiting(self, request: Any) -> None:
        """Note that a connection waits for its client, and may give way."""
        with self._lock:
            self._waiting[request] = None

    def note_working(self, request: Any) -> None:
        """Note that a connection does not give way, or has ended."""
        with self._lock:
            self._waiting.pop(request, None)

    def refuse(self, request: Any) -> None:
        """Answer a connection beyond the bound, before it is closed."""

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.note_working(request)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("connection from %s closed early", client_address, exc_info=True)

    def _has_place(self) -> bool:
        """Take a place, if need be that of the oldest connection that waits for its client."""
        if self._free.acquire(blocking=False):
            return True
        with self._lock:
            if not self._waiting:
                return False
            oldest, _ = self._waiting.popitem(last=False)
            with contextlib.suppress(OSError):  # a TLS connection is shut down below TLS: its thread is in there
                socket.socket.shutdown(oldest, socket.SHUT_RDWR)
        return self._free.acquire(timeout=GIVE_WAY_S)
