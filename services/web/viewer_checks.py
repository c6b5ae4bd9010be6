"""Checks of viewers: the api has verified their credentials before they take a place, and again while they keep it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
from starlette.types import ASGIApp, Receive, Scope, Send

from peloton.errors import ResourceExhausted
from services.access.forwarded import Headers
from services.servers.places import Tally
from services.web.api import TIMEOUT_S, Api
from services.web.faults import Refusal, refusal_of, too_busy
from services.web.viewer import Viewer

VERIFIED_S = 60.0
"""Time for which verified credentials are remembered, in seconds. The api checks them with each call all the same."""
SESSION_VERIFIED_S = 10.0
"""Time for which those of a session are remembered, which a sign-out at another process ends."""
VERIFIED_MAX = 4_096
VERIFYING_MAX = 50
"""Maximum number of credentials that the api is asked about at a time."""
RECHECK_S = 10.0
"""Time between two looks at the session and the credentials of a viewer that keeps a place, in seconds."""
_REFUSES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class ViewerChecks:
    """Checks for one event loop."""

    def __init__(self, api: Api, has_ended: Callable[[Viewer], bool]) -> None:
        self._api, self._has_ended = api, has_ended
        self._verified: OrderedDict[tuple[Headers, str], tuple[str, float]] = OrderedDict()
        self._verifying = 0

    async def verify(self, viewer: Viewer) -> Viewer:
        """Return the viewer with the identity that the api knows, asked once for a while. Raises Refusal.

        A session was begun with a token that the api has accepted, and is shown how old its data is while the api does
        not answer.
        """
        key, now_s = (viewer.headers, viewer.session), time.monotonic()
        identity, until_s = self._verified.get(key, ("", 0.0))
        if until_s > now_s:
            return replace(viewer, identity=identity)
        if self._verifying >= VERIFYING_MAX:
            raise too_busy(f"credentials of {VERIFYING_MAX} viewers are being verified", 1)
        self._verifying += 1
        try:
            who = await self._api.access.WhoAmI(viewer.identity_request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if viewer.session and error.code() not in _REFUSES:
                return replace(viewer, identity=viewer.name)
            raise refusal_of(error) from None
        finally:
            self._verifying -= 1
        identity = f"{who.kind} {who.name}" if who.is_enforced else ""
        self._verified[key] = identity, now_s + (SESSION_VERIFIED_S if viewer.session else VERIFIED_S)
        while len(self._verified) > VERIFIED_MAX:
            self._verified.popitem(last=False)
        return replace(viewer, identity=identity)

    async def wait_for_end(self, viewer: Viewer) -> None:
        """Return when the session of the viewer has ended, or the api refuses its credentials."""
        while not self._has_ended(viewer):
            await asyncio.sleep(RECHECK_S)
            if viewer.is_signed_in and await self._is_refused(viewer):
                return

    async def _is_refused(self, viewer: Viewer) -> bool:
        try:
            await self._api.access.WhoAmI(viewer.identity_request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return error.code() in _REFUSES
        return False

    async def serve(self, app: ASGIApp, viewer: Viewer, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request until it is answered, or the session or the credentials of the viewer end.

        A stream of events then ends, and is refused when it reconnects; other answers break off, so that they do not
        seem whole.
        """
        started: dict[str, Any] = {}

        async def send_noted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            await send(message)

        serving = asyncio.ensure_future(app(scope, receive, send_noted))
        ending = asyncio.create_task(self.wait_for_end(viewer))
        try:
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
                return
        finally:
            for task in (serving, ending):
                task.cancel()
            await asyncio.gather(serving, ending, return_exceptions=True)
        if not started:
            await Refusal("unauthenticated", "the session has ended: sign in").response()(scope, receive, send)
        elif any(value.startswith(b"text/event-stream") for key, value in started["headers"] if key == b"content-type"):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class Shares:
    """Places of each viewer among those of all. Viewers that the api does not tell apart have no share."""

    def __init__(self, what: str, most: int) -> None:
        self._what, self._most = what, most
        self._taken = Tally()

    def check(self, viewer: Viewer) -> None:
        """Raise ResourceExhausted when the viewer has as many places as one may have."""
        if viewer.identity and self._taken.count(viewer.identity) >= self._most:
            raise ResourceExhausted(
                f"{viewer.identity} has {self._most} {self._what} open, as many as a viewer may have: close one"
            )

    @contextmanager
    def take(self, viewer: Viewer) -> Iterator[None]:
        """Count a place of the viewer. Raises ResourceExhausted."""
        self.check(viewer)
        with self._taken.hold(viewer.identity):
            yield
