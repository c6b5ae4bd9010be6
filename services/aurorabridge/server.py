"""Server of role aurorabridge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from services.aurorabridge.app import HEALTH_PATH, create_app
from services.aurorabridge.backend import Backend
from services.aurorabridge.discovery import Member, keep_registered
from services.aurorabridge.events.feed import Feed
from services.aurorabridge.events.lease import publish
from services.aurorabridge.events.stream import Streams
from services.aurorabridge.events.tasks import Tasks
from services.aurorabridge.methods import METHODS
from services.aurorabridge.settings import read_bridge_settings
from services.servers import asgi_server
from services.settings import Settings
from services.tls.transport import Transport

log = logging.getLogger(__name__)

REQUEST_S = 40.0
"""Time for a request; a little more than that of its body."""
KEEP_ALIVE_S = 75
"""Time for which a connection waits for its next call: longer than the pools of clients keep theirs."""


async def _answer_health(request: Request) -> Response:
    return PlainTextResponse("OK\n")


HEALTH = Route(HEALTH_PATH, _answer_health)
"""Endpoint of load balancers, at the path that each process of the original has."""


async def run(settings: Settings, stop: asyncio.Event, serves: Callable[[], None], transport: Transport) -> None:
    """Serve until ``stop``; call ``serves`` when clients can connect. Raises Unavailable when the port is in use,
    InvalidArgument for invalid addresses.
    """
    backend = Backend(settings.api, read_bridge_settings(settings), transport)
    running: list[asyncio.Task[None]] = []
    streams = Streams(Feed(backend), Tasks(backend))

    def listens(port: int) -> None:
        log.info("Aurora's API at %s://%s:%d/api", transport.http_scheme, settings.host, port)
        if settings.aurora_zookeeper:
            member = Member(settings.aurora_zookeeper, settings.advertised, port)
            running.append(asyncio.create_task(keep_registered(member), name="member of the ServerSet"))
        running.append(asyncio.create_task(publish(backend, stop), name="publisher of events"))
        serves()

    async def end() -> None:
        streams.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    await asgi_server.serve(
        create_app(backend, METHODS, [streams.route(), HEALTH]), "aurorabridge", settings.host, settings.aurora_port,
        stop=stop, serves=listens, end=end, ws="none", request_s=REQUEST_S,
        timeout_keep_alive=KEEP_ALIVE_S, transport=transport,
    )  # fmt: skip
    await backend.close()
