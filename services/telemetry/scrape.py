"""The HTTP endpoint that Prometheus scrapes: ``GET /metrics``, bounded in connections, time and size."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from peloton.errors import InvalidSettings
from services.servers.bounded_http import BoundedHandler, BoundedHttpServer

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CONNECTIONS_MAX = 8
REQUEST_S = 10.0
STOP_PERIOD_S = 0.5


class _Handler(BoundedHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"metrics are at {PATH}\n".encode())
            return
        with self.working(), self.server.collecting:  # one collection at a time, however many clients ask
            text = self.server.expose()
        self._answer(HTTPStatus.OK, text)

    def _answer(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(BoundedHttpServer):
    def __init__(self, address: tuple[str, int], expose: Callable[[], bytes], context: ssl.SSLContext | None) -> None:
        self.expose, self.collecting = expose, threading.Lock()
        super().__init__(address, _Handler, CONNECTIONS_MAX, REQUEST_S, context)


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
