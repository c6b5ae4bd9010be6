"""The HTTP endpoint that Prometheus scrapes: ``GET /metrics``, bounded in connections, time and size."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from peloton.errors import InvalidSettings

log = logging.getLogger(__name__)

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CONNECTIONS_MAX = 8
CONNECTION_S = 10.0
"""Seconds that a read or a write of a connection may take."""
STOP_PERIOD_S = 0.5


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CONNECTION_S
    default_request_version = "HTTP/1.0"

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"metrics are at {PATH}\n".encode())
            return
        with self.server.collecting:  # one collection at a time, however many clients ask
            text = self.server.expose()
        self._answer(HTTPStatus.OK, text)

    def _answer(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], expose: Callable[[], bytes], context: ssl.SSLContext | None) -> None:
        self.expose, self.collecting, self._context = expose, threading.Lock(), context
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        request, client_address = super().get_request()
        if self._context is not None:  # the handshake comes with the first read, in the thread of the connection
            request = self._context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, client_address

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("connection from %s to the metrics ended early", client_address, exc_info=True)


def serve(host: str, port: int, expose: Callable[[], bytes], context: ssl.SSLContext | None = None) -> int:
    """Serve until the process ends, with TLS if there is a ``context``; return the port. Raises InvalidSettings when
    the address cannot be bound.
    """
    try:
        server = _Server((host, port), expose, context)
    except OSError as error:
        raise InvalidSettings(f"PELOTON_METRICS_PORT={port}: cannot listen on {host}:{port}: {error}") from error
    serving = partial(server.serve_forever, STOP_PERIOD_S)
    threading.Thread(target=serving, name="metrics endpoint", daemon=True).start()
    return int(server.server_address[1])
