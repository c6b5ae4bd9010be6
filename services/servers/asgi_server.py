"""Server of the HTTP applications of roles, which ends what clients do not end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from peloton.errors import Unavailable
from services.servers.bounded_listener import BoundedListener
from services.servers.http_connection import Connection
from services.tls.transport import PLAINTEXT, Transport

log = logging.getLogger(__name__)

GRACE_S = 2
"""Time for calls in flight to end at shutdown, in seconds."""
BACKLOG = 2048
"""Connections that wait until the server takes them."""
OVERDUE_CHECK_S = 1.0


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the runtime."""
        yield


async def serve(
    app: ASGIApp,
    role: str,
    host: str,
    port: int,
    *,
    request_s: float,
    stop: asyncio.Event,
    serves: Callable[[int], None],
    end: Callable[[], Awaitable[None]] | None = None,
    transport: Transport = PLAINTEXT,
    **config: Any,
) -> None:
    """Serve until ``stop``, then call ``end`` and give calls in flight their time. ``serves`` is called with the port
    when clients can connect; ``request_s``: seconds for a request from its first byte to its last; ``config``: more of
    uvicorn's. Raises Unavailable when the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with BoundedListener(family) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen(BACKLOG)
        except OSError as error:
            raise Unavailable(f"role {role} cannot listen on {host}:{port}: {error.strerror}") from error
        if context := transport.http_context():
            config["ssl_context_factory"] = lambda *_: context
        http: Any = partial(Connection, listening, request_s)
        settings = uvicorn.Config(
            app, access_log=False, log_config=None, log_level="warning", timeout_graceful_shutdown=GRACE_S,
            server_header=False, backlog=BACKLOG, http=http, **config,
        )  # fmt: skip
        server = _Server(settings)
        running = asyncio.create_task(server.serve([listening]), name=role)
        overdue = asyncio.create_task(_end_overdue(listening), name=f"handshakes of {role}")
        serves(listening.getsockname()[1])  # connections wait in the socket until the server takes them
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if end is not None:
            await end()
        server.should_exit = True
        await running
        overdue.cancel()


async def _end_overdue(listening: BoundedListener) -> None:
    while True:
        await asyncio.sleep(OVERDUE_CHECK_S)
        listening.end_overdue()
