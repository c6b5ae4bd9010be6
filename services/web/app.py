"""ASGI application: pages, the API as JSON, and live updates. It has no state: all data comes from role api."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from peloton.api.mesos_access import OPEN, MesosAccess
from peloton.errors import PelotonError
from services.tls.transport import PLAINTEXT, Transport
from services.web import schemas
from services.web.api import Api
from services.web.faults import answer_refusal
from services.web.files import Files
from services.web.gateway import Gateway
from services.web.guard import Guard
from services.web.live import Hub
from services.web.log_files import LogFiles
from services.web.log_parts import LogParts
from services.web.logs import Logs
from services.web.terminal import Terminals
from services.web.topics.all import TOPICS
from services.web.viewer import viewer_of

ASSETS = Path(__file__).parent / "assets"
GZIP_FROM_BYTES = 1_000
YEAR = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class WebSettings:
    api: str  # addresses of the API
    temporal_ui: str = ""  # address of its Web UI, for links; empty: no links
    hosts: tuple[str, ...] = ()  # accepted host names of requests
    agents: MesosAccess = OPEN  # access to Mesos agents for logs and terminals
    temporal_namespace: str = ""  # empty: Temporal's default
    transport: Transport = PLAINTEXT


class _Assets(StaticFiles):
    """Assets cached for a year, since their names contain a hash of their contents."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = YEAR
        return response


def create_app(settings: WebSettings) -> Starlette:
    """Create the application. Raises InvalidArgument for invalid addresses."""
    api = Api(settings.api, settings.transport)
    hub = Hub(api, TOPICS)
    gateway = Gateway(api)
    files = LogFiles(api, settings.agents)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await hub.close()
        await api.close()

    routes: list[BaseRoute] = [
        Route("/live", _live(hub)),
        Route("/logs/{job_id}/{instance:int}", Logs(files).answer),
        *LogParts(files).routes(),
        WebSocketRoute("/terminal/{job_id}/{instance:int}", Terminals(api, settings.agents).serve),
        Route("/settings.json", _settings(settings)),
        *gateway.routes(),
        *schemas.routes(),
        *Files().routes(),
        Mount("/assets", _Assets(directory=ASSETS / "assets", check_dir=False)),
        Route("/{path:path}", _page),
    ]
    middleware = [
        Middleware(Guard, hosts=settings.hosts),
        Middleware(GZipMiddleware, minimum_size=GZIP_FROM_BYTES, compresslevel=6),
    ]
    app = Starlette(routes=routes, middleware=middleware, lifespan=lifespan)
    app.state.hub = hub
    app.state.gateway = gateway
    return app


def _live(hub: Hub) -> Callable[[Request], Awaitable[Response]]:
    async def live(request: Request) -> Response:
        names = request.query_params.getlist("topic")
        try:
            hub.check(names)
        except PelotonError as error:
            return answer_refusal(error)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(hub.stream(names), media_type="text/event-stream", headers=headers)

    return live


def _settings(settings: WebSettings) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        viewer = viewer_of(request)
        info = {
            "temporalUi": settings.temporal_ui,
            "temporalNamespace": settings.temporal_namespace,
            "viewer": viewer.name,
            "mayChange": viewer.may_change,
        }
        return Response(orjson.dumps(info), media_type="application/json", headers={"cache-control": "no-store"})

    return answer


async def _page(request: Request) -> Response:
    """Return the page, whose script chooses the view by the address."""
    name = request.path_params["path"]
    file = ASSETS / name
    if "/" not in name and "." in name and file.is_file():
        return FileResponse(file)  # the icon and other files
    return FileResponse(ASSETS / "index.html", headers={"cache-control": "no-cache"})
