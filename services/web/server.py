"""Server of role web."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator

import uvicorn

from peloton.errors import Unavailable
from services.role_settings import read_mesos_access
from services.settings import Settings
from services.web.app import WebSettings, create_app
from services.web.terminal import MESSAGE_BYTES_MAX

log = logging.getLogger(__name__)

GRACE_S = 2
"""Time for calls in flight to end at shutdown, in seconds; streams of pages end at once."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the runtime."""
        yield


async def run(settings: Settings, stop: asyncio.Event, serves: Callable[[], None]) -> None:
    """Serve until ``stop``; call ``serves`` when browsers can connect. Raises Unavailable when the port is in use,
    InvalidArgument for invalid addresses.
    """
    names = tuple(name for one in settings.web_hosts.split(",") if (name := one.strip()))
    web = WebSettings(
        settings.api, settings.temporal_ui, names, read_mesos_access(settings), settings.temporal_namespace
    )
    app = create_app(web)
    host, port = settings.host, settings.web_port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise Unavailable(f"role web cannot listen on {host}:{port}: {error.strerror}") from error
        log.info("pages at http://%s:%d/", host, listening.getsockname()[1])
        config = uvicorn.Config(
            app, access_log=False, log_config=None, log_level="warning", timeout_graceful_shutdown=GRACE_S,
            server_header=False, ws="websockets-sansio", ws_max_size=MESSAGE_BYTES_MAX,
        )  # fmt: skip
        server = _Server(config)
        running = asyncio.create_task(server.serve([listening]), name="web")
        serves()  # connections wait in the socket until the server takes them
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        app.state.gateway.close()
        await app.state.hub.close()
        server.should_exit = True
        await running
