"""Sign-in to the pages: by an OIDC issuer, or with a token. The session is an encrypted cookie that carries the token.

Calls for a viewer carry its token, so that the api alone decides. A request may bring credentials itself, as calls of
the API do: ``Authorization: Bearer``, ``Authorization: Basic``, or headers ``username`` and ``password``.
"""

from __future__ import annotations

import asyncio
import html
import secrets
import time
from dataclasses import asdict, dataclass
from urllib.parse import parse_qs, urlencode

import grpc
import grpc.aio
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from peloton.access.caller import CallerKind
from peloton.api.v0.access import access_pb2 as pb
from peloton.errors import PelotonError
from peloton.issuer import Flow, claims_of
from services.access.forwarded import FORWARDED, OpenCluster, credentials_in, note_client
from services.web.api import Api
from services.web.faults import Refusal, refusal_of
from services.web.oidc import OidcClient
from services.web.sessions import COOKIE_CHARS_MAX, Sessions
from services.web.sign_outs import SignOuts
from services.web.viewer import EVERYBODY, Viewer, set_viewer, viewer_of
from services.web.viewer_checks import ViewerChecks

SESSION, FLOW = "peloton_session", "peloton_sign_in"
"""Cookies."""
FLOW_S = 600.0
BODY_BYTES_MAX = 32 * 1024
TIMEOUT_S = 5.0
DATA = ("/live", "/logs/", "/terminal/", "/api/")
"""Beginnings of addresses that answer with data of the api."""
SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class SignInSettings:
    oidc: OidcClient | None = None
    session_key_file: str = ""
    session_s: float = 12 * 3_600.0


NO_ISSUER = SignInSettings()


class SignIn:
    """Sessions, and the pages and middleware that make and read them."""

    def __init__(self, api: Api, settings: SignInSettings) -> None:
        self._api, self._settings = api, settings
        self._made: Sessions | None = Sessions(settings.session_key_file) if settings.session_key_file else None
        self._open, self.sign_outs = OpenCluster(), SignOuts(api)

    def routes(self) -> list[Route]:
        return [
            Route("/sign-in", self._show),
            Route("/sign-in", self._take_token, methods=["POST"]),
            Route("/sign-in/oidc", self._begin),
            Route("/sign-in/callback", self._finish),
            Route("/sign-out", self._sign_out, methods=["POST"]),
        ]

    @property
    def _sessions(self) -> Sessions:
        if self._made is None:
            self._made = Sessions()
        return self._made

    def has_ended(self, viewer: Viewer) -> bool:
        """Return whether the session of a viewer has expired or was ended."""
        return viewer.has_expired() or (bool(viewer.session) and self._sessions.has_ended(viewer.session))

    def find_viewer(self, request: HTTPConnection) -> Viewer:
        """Return the viewer that the headers or the cookie of a request prove. Raises Refusal."""
        if headers := credentials_in(request.headers):
            return Viewer("", headers)
        sealed = request.cookies.get(SESSION)
        if not sealed:
            return EVERYBODY
        value = self._sessions.unseal(SESSION, sealed)
        if value is None or self._sessions.has_ended(value["id"]):
            return EVERYBODY
        changes = request.scope["type"] == "websocket" or request.scope["method"] not in SAFE
        if changes and "origin" not in request.headers:  # the guard compares it with the host
            raise Refusal("permission_denied", "a session may change something from its own pages only: no Origin")
        headers = (("authorization", f"Bearer {value['token']}"),)
        return Viewer(value["name"], headers, value["id"], value["expires"])

    async def check_open(self) -> None:
        """Raise Refusal unless the cluster asks for no credentials: calls of role web itself may do everything."""
        try:
            await self._open.check(self._api.access)
        except (grpc.aio.AioRpcError, PelotonError) as error:
            raise refusal_of(error) from None

    @property
    def proves_role(self) -> bool:
        return self._api.proves_role

    async def find_identity(self, viewer: Viewer) -> pb.WhoAmIResponse | None:
        """Return what the api knows of the viewer, nothing of one with bad credentials; None: no answer."""
        try:
            return await self._api.access.WhoAmI(viewer.identity_request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            is_refused = error.code() is grpc.StatusCode.UNAUTHENTICATED
            return pb.WhoAmIResponse(kind=CallerKind.ANONYMOUS, is_enforced=True) if is_refused else None

    # -- pages

    async def _show(self, request: Request) -> Response:
        return self._page(request.query_params.get("next", ""))

    def _page(self, after: str, fault: str = "", status: int = 200) -> Response:
        to = _own_path(after)
        oidc = f'<p><a href="/sign-in/oidc?{urlencode({"next": to})}">Sign in</a></p>' if self._settings.oidc else ""
        shown = f'<p role="alert">{html.escape(fault)}</p>' if fault else ""
        return HTMLResponse(_PAGE.format(oidc=oidc, fault=shown, next=html.escape(to)), status, _NO_STORE)

    async def _take_token(self, request: Request) -> Response:
        fields = await _read_form(request)
        if "origin" not in request.headers:
            return self._page("", "sign in by this page", 403)
        return await self._open_session(request, fields.get("token", "").strip(), fields.get("next", ""))

    async def _begin(self, request: Request) -> Response:
        if self._settings.oidc is None:
            return self._page("", "this cluster has no issuer: sign in with a token", 404)
        try:
            flow, address = await asyncio.to_thread(self._settings.oidc.begin, _callback(request))
            value = {**asdict(flow), "next": _own_path(request.query_params.get("next", ""))}
            sealed = self._sessions.seal(FLOW, value, time.time() + FLOW_S)
        except PelotonError as error:
            return self._page("", error.message, 503)
        response = RedirectResponse(address, 303, _NO_STORE)
        _set_cookie(request, response, FLOW, sealed, FLOW_S)
        return response

    async def _finish(self, request: Request) -> Response:
        oidc, query = self._settings.oidc, request.query_params
        kept = self._sessions.unseal(FLOW, request.cookies.get(FLOW, ""))
        state = query.get("state", "")
        if oidc is None or kept is None or not secrets.compare_digest(state.encode(), kept["state"].encode()):
            return self._page("", "this sign-in has not begun here, or too long ago: try again", 400)
        if "code" not in query:
            return self._page(kept["next"], f"the issuer refuses: {query.get('error', '')[:200]}", 401)
        flow = Flow(kept["state"], kept["verifier"], kept["nonce"])
        try:
            token = await asyncio.to_thread(oidc.finish, flow, query["code"], _callback(request))
        except PelotonError as error:
            return self._page(kept["next"], error.message, 401)
        response = await self._open_session(request, token, kept["next"])
        response.delete_cookie(FLOW)
        return response

    async def _open_session(self, request: Request, token: str, after: str) -> Response:
        """Begin a session with a token that the api accepts."""
        FORWARDED.set((("authorization", f"Bearer {token}"),))
        if not token or not token.isascii() or not token.isprintable():
            return self._page(after, "a token is one line of ASCII", 400)
        try:
            who = await self._api.access.WhoAmI(pb.WhoAmIRequest(), timeout=TIMEOUT_S)
            await self._api.access.SignIn(pb.SignInRequest(), timeout=TIMEOUT_S)
            expires_s = min(time.time() + self._settings.session_s, float(claims_of(token).get("exp", float("inf"))))
            value = {"id": secrets.token_hex(8), "name": who.name, "token": token}
            sealed = self._sessions.seal(SESSION, value, expires_s)
        except (grpc.aio.AioRpcError, PelotonError) as error:
            refused = refusal_of(error)
            return self._page(after, refused.message, refused.status)
        if len(sealed) > COOKIE_CHARS_MAX:
            text = (
                f"the token makes a cookie of {len(sealed):,} characters, at most {COOKIE_CHARS_MAX:,}: ask for fewer"
            )
            return self._page(after, f"{text} groups in it", 400)
        response = RedirectResponse(_own_path(after), 303, _NO_STORE)
        _set_cookie(request, response, SESSION, sealed, expires_s - time.time())
        return response

    async def _sign_out(self, request: Request) -> Response:
        viewer, fault = viewer_of(request), ""
        if viewer.session:
            self._sessions.end(viewer.session, viewer.expires_s)
            fault = await self.sign_outs.end(viewer)
        shown = self._page("", fault, 503) if fault else RedirectResponse("/sign-in", 303, _NO_STORE)
        shown.delete_cookie(SESSION)
        return shown


class Viewers:
    """Middleware that finds the viewer of each request."""

    def __init__(self, app: ASGIApp, sign_in: SignIn, api: Api) -> None:
        self._app, self._sign_in, self._api = app, sign_in, api
        self._checks = ViewerChecks(api, sign_in.has_ended)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            request = HTTPConnection(scope)
            note_client(scope)
            try:
                viewer = self._sign_in.find_viewer(request)
                set_viewer(request, viewer)
                is_for_data = scope["path"].startswith(DATA)
                if is_for_data and viewer.is_signed_in:
                    viewer = await self._checks.verify(viewer)
                    set_viewer(request, viewer)
                elif is_for_data and self._api.proves_role:
                    await self._sign_in.check_open()
            except (Refusal, PelotonError) as error:
                await refusal_of(error).response()(scope, receive, send)
                return
            if is_for_data and viewer.is_signed_in and scope["type"] == "http":
                await self._checks.serve(self._app, viewer, scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _read_form(request: Request) -> dict[str, str]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise Refusal("resource_exhausted", f"a form has at most {BODY_BYTES_MAX:,} bytes", status=413)
    return {key: values[0] for key, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _own_path(text: str) -> str:
    """Return the path of a page here; "/" for an address of another site."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isascii() and text.isprintable()
    return text if is_own else "/"


def _callback(request: Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc}/sign-in/callback"


def _set_cookie(request: Request, response: Response, name: str, value: str, age_s: float) -> None:
    is_secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age=int(age_s), httponly=True, samesite="lax", secure=is_secure)


_NO_STORE = {"cache-control": "no-store"}
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sign in - Peloton</title>
<style>body {{ font: 16px system-ui; max-width: 30rem; margin: 4rem auto; padding: 0 1rem }}
label, input, button {{ display: block; width: 100%; margin: 0.5rem 0; font: inherit; box-sizing: border-box }}</style>
<main><h1>Sign in to Peloton</h1>{fault}{oidc}
<form method="post" action="/sign-in">
<label>Token <input name="token" type="password" autocomplete="off" required></label>
<input type="hidden" name="next" value="{next}"><button>Sign in with the token</button></form></main></html>
"""
