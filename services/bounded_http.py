"""A threaded HTTP server with a bound on its connections, for endpoints that must not wait for the role's own work."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

log = logging.getLogger(__name__)


class BoundedHttpServer(ThreadingHTTPServer):
    """Serves each connection in a thread of its own, with TLS if there is a ``context``."""

    daemon_threads = True

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        connections_max: int,
        context: ssl.SSLContext | None,
    ) -> None:
        """Raises OSError when the address cannot be bound."""
        self._context = context
        self._free = threading.BoundedSemaphore(connections_max)
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        request, client_address = super().get_request()
        if self._context is not None:  # the handshake comes with the first read, in the thread of the connection
            request = self._context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, client_address

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.refuse(request)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def refuse(self, request: Any) -> None:
        """Answer a connection beyond the bound, before it is closed."""

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("connection from %s closed early", client_address, exc_info=True)
