"""Rejection of requests and WebSockets that a page of another site caused.

Peloton listens without a login on one machine, where any site that its user visits could send requests to it. Browsers
report the origin of a request in ``Origin``, and the site's name, which may resolve to this machine, in ``Host``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peloton.model.text import shorten
from services.web.faults import refusal

LOOPBACK = ("localhost", "127.0.0.1", "::1")
CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
"""Inline styles are allowed for the editor, which creates them."""
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}


class Guard:
    """Middleware. ``hosts``: accepted host names, in addition to IP addresses and localhost; ``origins``: the folder in
    which pages of an origin may ask for something.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] = (), origins: Mapping[str, str] | None = None) -> None:
        self._app, self._origins = app, origins or {}
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin and (folder := self._origins.get(origin)) and scope["path"].startswith(folder):
            origin = None
        if fault := self._fault(headers.get("host", ""), origin):
            await refusal("permission_denied", fault)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _fault(self, host: str, origin: str | None) -> str:
        if not self._is_accepted_host(host):
            return f"this is not {shorten(host)}: role web answers to localhost, to addresses, and to PELOTON_WEB_HOSTS"
        if origin is not None and _place_of(origin) != host:
            return f"a page of {shorten(origin)} may not ask Peloton for anything"
        return ""

    def _is_accepted_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in LOOPBACK or name in self._hosts or _is_number(name)


def _place_of(origin: str) -> str:
    """Return host and port of an origin; empty: it has none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _is_number(name: str) -> bool:
    """Return whether the name is an IP address, which cannot be another site's name for this machine."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
