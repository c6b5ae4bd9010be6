"""The events as server-sent events: GET /events, resumed by Last-Event-ID, the revision of the watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing

import grpc
import grpc.aio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from services.access.forwarded import FORWARDED
from services.aurorabridge.events.event import encode_event, is_event
from services.aurorabridge.events.feed import Changes, Feed
from services.aurorabridge.events.tasks import Tasks
from services.aurorabridge.method import Refusal
from services.servers.places import Tally

log = logging.getLogger(__name__)

CLIENTS_MAX = 100
"""Maximum number of open streams of one bridge: each is a watch of the api."""
PER_CLIENT_MAX = 20
"""Maximum number of them with the same credentials or, without any, from the same address."""
HEARTBEAT_S = 15.0
"""Interval of comments on an idle stream, by which both ends detect a dead connection."""
HEARTBEAT = b": beat\n\n"
SLOW_S = 10.0
"""Time in which a client must receive what was sent; then it is disconnected, and may resume."""
_HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")],
}
_STATUSES = {
    grpc.StatusCode.OUT_OF_RANGE: 410,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
}
_END = {"type": "http.response.body", "body": b"", "more_body": False}


class Streams:
    """Endpoint of all streams of one bridge."""

    def __init__(self, feed: Feed, tasks: Tasks, slow_s: float = SLOW_S, beat_s: float = HEARTBEAT_S) -> None:
        self.feed, self.tasks = feed, tasks
        self.slow_s, self.beat_s = slow_s, beat_s
        self.open_count = 0
        self.closing = asyncio.Event()
        self.of_clients = Tally()

    def route(self) -> Route:
        return Route("/events", self.answer)

    async def answer(self, request: Request) -> Response:
        if "origin" in request.headers:
            return PlainTextResponse("pages of browsers may not read the events\n", 403)
        last = request.headers.get("last-event-id", "0")
        if not (last.isascii() and last.isdigit() and len(last) < 20):
            return PlainTextResponse("Last-Event-ID: want the id of an event\n", 400)
        if self.open_count >= CLIENTS_MAX:
            return PlainTextResponse(f"{CLIENTS_MAX} streams are open: try again later\n", 503, {"retry-after": "10"})
        client = FORWARDED.get() or (request.client.host if request.client else "")
        if self.of_clients.count(client) >= PER_CLIENT_MAX:
            text = f"{PER_CLIENT_MAX} streams of this client are open, as many as a client may have: close one\n"
            return PlainTextResponse(text, 429, {"retry-after": "10"})
        return _Stream(self, client, int(last))

    def close(self) -> None:
        """End all streams; their clients resume at another bridge."""
        self.closing.set()


class _Stream(Response):
    """Stream of one client, until it disconnects or is too slow, or the watch ends. The client then resumes."""

    def __init__(self, streams: Streams, client: Hashable, after: int) -> None:
        super().__init__()
        self._streams, self._client, self._after = streams, client, after
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.of_clients.hold(self._client):
            await self._serve(receive, send)

    async def _serve(self, receive: Receive, send: Send) -> None:
        self._streams.open_count += 1
        ends = [asyncio.create_task(work) for work in (self._send(send), _until_gone(receive))]
        closing = asyncio.create_task(self._streams.closing.wait())
        try:
            await asyncio.wait({*ends, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ends, closing):
                task.cancel()
            sending, *_ = await asyncio.gather(*ends, closing, return_exceptions=True)
            self._streams.open_count -= 1
        if isinstance(sending, Exception):
            raise sending
        if isinstance(sending, asyncio.CancelledError) and self._has_begun and self._streams.closing.is_set():
            await send(_END)

    async def _send(self, send: Send) -> None:
        try:
            async with (
                aclosing(self._streams.feed.watch(self._after)) as changes,
                aclosing(self._frames(changes)) as frames,
            ):
                async for frame in frames:
                    async with asyncio.timeout(self._streams.slow_s):
                        if not self._has_begun:
                            await send(_HEAD)
                            self._has_begun = True
                        await send({"type": "http.response.body", "body": frame, "more_body": True})
        except TimeoutError:
            log.info("a client of /events is too slow and is disconnected")
            return
        except grpc.aio.AioRpcError as error:
            if not self._has_begun:
                await _refuse(error, send)
                return
            log.info("a stream of events ends: %s", error.details())
        if self._has_begun:
            await send(_END)

    async def _frames(self, changes: AsyncGenerator[Changes, None]) -> AsyncGenerator[bytes, None]:
        """Yield frames, and comments while there are none."""
        following = asyncio.ensure_future(anext(changes, None))
        try:
            while True:
                await asyncio.wait({following}, timeout=self._streams.beat_s)
                if not following.done():
                    yield HEARTBEAT
                    continue
                change = following.result()
                if change is None:
                    return
                yield await self._frame(change)
                following = asyncio.ensure_future(anext(changes, None))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _frame(self, change: Changes) -> bytes:
        """Return the events of a change, or its revision alone, from which the client may resume."""
        parts = []
        for pod in filter(is_event, change.pods):
            task = await self._streams.tasks.of(pod)
            try:
                parts += [b"event: task\ndata: " + encode_event(pod, task) + b"\n"] if task is not None else []
            except Refusal as error:
                log.warning("pod %s has no event: %s", pod.pod_name.value, error)
        return b"".join(b"id: %d\n%b\n" % (change.revision, part) for part in parts or [b""])


async def _refuse(error: grpc.aio.AioRpcError, send: Send) -> None:
    """Answer 410 when the events after the id are no longer stored: the client reads the present state first."""
    status = _STATUSES.get(error.code(), 503)
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": f"{error.details()}\n".encode(), "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
