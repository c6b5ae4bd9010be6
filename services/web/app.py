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

from peloton.access.caller import CallerKind, Role
from peloton.api.mesos_access import OPEN, MesosAccess
from peloton.api.v0.access.access_pb2 import WhoAmIResponse
from peloton.errors import PelotonError
from services.tls.transport import PLAINTEXT, Transport
from services.web import schemas
from services.web.api import Api
from services.web.codec import FOLDER, Codec, Decodes
from services.web.faults import answer_refusal
from services.web.files import Files
from services.web.gateway import Gateway
from services.web.guard import Guard
from services.web.live import Hub
from services.web.log_files import LogFiles
from services.web.log_parts import LogParts
from services.web.logs import Logs
from services.web.sign_in import NO_ISSUER, SignIn, SignInSettings, Viewers
from services.web.terminal import Terminals
from services.web.topics.all import TOPICS
from services.web.viewer import viewer_of

ASSETS = Path(__file__).parent / "assets"
GZIP_FROM_BYTES = 1_000
NAME_CHARS_MAX = 60
"""Characters of the names of icons and of other files that are no assets."""
YEAR = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class WebSettings:
    api: str  # addresses of the API
    temporal_ui: str = ""  # address of its Web UI, for links; empty: no links
    hosts: tuple[str, ...] = ()  # accepted host names of requests
    agents: MesosAccess = OPEN  # access to Mesos agents for logs and terminals
    temporal_namespace: str = ""  # empty: Temporal's default
    transport: Transport = PLAINTEXT
    sign_in: SignInSettings = NO_ISSUER
    codec: Decodes | None = None  # of Temporal's payloads
    codec_origins: tuple[str, ...] = ()  # of pages that may send payloads to it


class _Assets(StaticFiles):
    """Assets cached for a year, since their names contain a hash of their contents."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = YEAR
        return response


def create_app(settings: WebSettings) -> Starlette:
    """Create the application. Raises InvalidArgument for invalid addresses."""
    api = Api(settings.api, settings.transport)
    sign_in = SignIn(api, settings.sign_in)
    hub = Hub(api, TOPICS, sign_in.has_ended)
    gateway = Gateway(api)
    files = LogFiles(api, settings.agents)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await hub.close()
        await sign_in.sign_outs.close()
        await api.close()

    routes: list[BaseRoute] = [
        Route("/live", _live(hub)),
        Route("/logs/{job_id}/{instance:int}", Logs(files).answer),
        *LogParts(files).routes(),
        WebSocketRoute("/terminal/{job_id}/{instance:int}", Terminals(api, settings.agents, sign_in.has_ended).serve),
        Route("/settings.json", _settings(settings, sign_in)),
        *sign_in.routes(),
        *gateway.routes(),
        *schemas.routes(),
        *Files().routes(),
        *Codec(settings.codec, sign_in).routes(),
        Mount("/assets", _Assets(directory=ASSETS / "assets", check_dir=False)),
        Route("/{path:path}", _page),
    ]
    middleware = [
        Middleware(Guard, hosts=settings.hosts, origins=dict.fromkeys(settings.codec_origins, FOLDER)),
        Middleware(Viewers, sign_in=sign_in, api=api),
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
            hub.check(names, viewer_of(request))
        except PelotonError as error:
            return answer_refusal(error)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(hub.stream(names, viewer_of(request)), media_type="text/event-stream", headers=headers)

    return live


def _settings(settings: WebSettings, sign_in: SignIn) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        viewer = viewer_of(request)
        info: dict[str, object] = {
            "temporalUi": settings.temporal_ui,
            "temporalNamespace": settings.temporal_namespace,
            "viewer": viewer.name,
            "mayChange": True,
            "needsSignIn": False,
            "isSignedIn": bool(viewer.session),
        }
        who = await sign_in.find_identity(viewer)
        if who is not None and who.is_enforced:
            info |= describe_rights(who, viewer.is_signed_in or not sign_in.proves_role)
        return Response(orjson.dumps(info), media_type="application/json", headers={"cache-control": "no-store"})

    return answer


def describe_rights(who: WhoAmIResponse, is_own: bool) -> dict[str, object]:
    """Describe a viewer of a cluster that asks for credentials. ``is_own``: the identity is that of the viewer."""
    roles = [Role(grant.role) for grant in who.grants] if is_own else []
    may_change = bool(is_own and who.method_role) or any(role.includes(Role.SUBMITTER) for role in roles)
    is_known = is_own and who.kind != CallerKind.ANONYMOUS
    return {"viewer": who.name if is_own else "", "mayChange": may_change, "needsSignIn": not (is_known or roles)}


async def _page(request: Request) -> Response:
    """Return the page, whose script chooses the view by the address."""
    name = request.path_params["path"]
    file = ASSETS / name
    if "/" not in name and "." in name and len(name) <= NAME_CHARS_MAX and file.is_file():
        return FileResponse(file)  # the icon and other files
    return FileResponse(ASSETS / "index.html", headers={"cache-control": "no-cache"})
