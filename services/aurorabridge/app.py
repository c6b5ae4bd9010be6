"""ASGI application of the bridge: Aurora's API at /api, with bounds on memory, calls in flight and time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from thriftpy2.thrift import TApplicationException

from peloton.api.v0.access import access_pb2
from peloton.errors import PelotonError, Unauthenticated
from peloton.model.text import quote
from services.access.forwarded import FORWARDED, OpenCluster, credentials_in, note_client
from services.aurorabridge.backend import Backend
from services.aurorabridge.bounds import VALUE_BYTES
from services.aurorabridge.envelopes import (
    BINARY,
    GENERIC,
    JSON,
    Encoding,
    Fault,
    Head,
    encoding_of,
    read_arguments,
    read_head,
    write_answer,
)
from services.aurorabridge.method import Method, Refusal
from services.aurorabridge.thrift import api

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 16 * 2**20
MEMORY_BYTES_MAX = 256 * 2**20
"""Memory of all calls in flight: their bodies, the arguments decoded from them, and their encoded answers."""
INLINE_BYTES_MAX = 32 * 2**10
"""Size up to which a body is decoded by the event loop, without a thread."""
BODY_S_MAX = 30.0
"""Time in which a body must have arrived, in seconds."""
CALL_S_MAX = 60.0
"""Time of a call whose client sets none, and the longest that a client may set, in seconds."""
READS_MAX = 8
"""Calls that read carried out at a time; each may hold the tasks of a large job."""
WRITES_MAX = 64
"""Calls that write carried out at a time."""
WHO_S = 5.0
"""Time in which the api must say who a client is, in seconds."""
HEALTH_PATH = "/health"
CALLS_HELD_MAX = 1_000
"""Calls in flight: those that are read, that wait, that are carried out and that are answered."""


class Bridge:
    """Endpoint of all methods."""

    def __init__(self, backend: Backend, methods: Mapping[str, Method]) -> None:
        self._backend = backend
        self._methods = methods
        self._held_calls = 0
        self._held_bytes = 0
        self._reads = asyncio.Semaphore(READS_MAX)
        self._writes = asyncio.Semaphore(WRITES_MAX)
        self._decoding = asyncio.Lock()  # one at a time: the parsed JSON of a body takes many times its memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            with self._hold() as held:
                response = await self._respond(request, held)
                await response(scope, receive, send)
        except ClientDisconnect:
            return
        except Fault as fault:
            await PlainTextResponse(f"{fault}\n", fault.status)(scope, receive, send)

    @contextmanager
    def _hold(self) -> Iterator[_Held]:
        """Count a call until it is answered. Raises Fault."""
        if self._held_calls >= CALLS_HELD_MAX:
            raise Fault(f"{self._held_calls:,} calls are in flight, which is the bound: try again", 503)
        held = _Held(self)
        self._held_calls += 1
        try:
            yield held
        finally:
            self._held_calls -= 1
            self._held_bytes -= held.bytes

    def take(self, size_bytes: int) -> None:
        if self._held_bytes + size_bytes > MEMORY_BYTES_MAX:
            text = f"calls in flight hold {self._held_bytes:,} bytes, the bound is {MEMORY_BYTES_MAX:,}: try again"
            raise Fault(text, 503, TApplicationException.INTERNAL_ERROR)
        self._held_bytes += size_bytes

    async def _respond(self, request: Request, held: _Held) -> Response:
        if "origin" in request.headers:
            raise Fault("pages of browsers may not call the bridge", 403)
        encoding, timeout_s = encoding_of(request.headers), timeout_of(request.headers)
        body = await _read_body(request, held)
        procedure = request.headers.get("rpc-procedure", "")
        head = await self._decode(held.bytes, read_head, encoding, procedure, body)
        try:
            answer = await self._answer(head, timeout_s, held)
        except Fault as fault:
            if head.encoding is Encoding.BARE:
                raise
            answer = fault
        if _is_read(head):  # its answer may be large
            content = await asyncio.to_thread(write_answer, head, answer)
        else:
            content = write_answer(head, answer)
        held.take(len(content))
        return _Answer(content, media_type=_media_type(request, head))

    async def _answer(self, head: Head, timeout_s: float, held: _Held) -> Any:
        """Carry out a call. Raises Fault."""
        arguments, values = await self._decode(held.bytes, read_arguments, head)
        held.take(values * VALUE_BYTES)
        method = self._methods.get(head.method)
        if method is None:  # the original answers in these words
            raise Fault("rpc is unimplemented", 500, TApplicationException.INTERNAL_ERROR)
        running = self._reads if _is_read(head) else self._writes
        try:
            async with asyncio.timeout(timeout_s), running:
                result = await method(self._backend, arguments)
        except TimeoutError:
            text = f"{head.method} has taken more than {timeout_s:g} s"
            raise Fault(text, 504, TApplicationException.INTERNAL_ERROR) from None
        except Exception as error:
            code, text = _refusal(head.method, error)
            return api.Response(responseCode=code, details=_details(head.method, text))
        return api.Response(responseCode=api.ResponseCode.OK, details=_details(head.method), result=result)

    async def _decode(self, size_bytes: int, read: Any, *arguments: Any) -> Any:
        if size_bytes <= INLINE_BYTES_MAX:
            return read(*arguments)
        async with self._decoding:
            return await asyncio.to_thread(read, *arguments)


class _Held:
    """Memory held by one call."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.bytes = 0

    def take(self, size_bytes: int) -> None:
        self._bridge.take(size_bytes)
        self.bytes += size_bytes


class _Answer(Response):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; return when the client has read it, so that the call counts as long as it takes memory."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _read_body(request: Request, held: _Held) -> bytes:
    """Read the body, within its bounds of size and time. Raises Fault."""
    too_large = Fault(f"the body has more than {BODY_BYTES_MAX:,} bytes", 413)
    if int(request.headers.get("content-length", "0")) > BODY_BYTES_MAX:
        raise too_large
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Fault("the body is compressed: send it as it is", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for piece in request.stream():
                if len(body) + len(piece) > BODY_BYTES_MAX:
                    raise too_large
                held.take(len(piece))
                body += piece
    except TimeoutError:
        raise Fault(f"the body has not arrived within {BODY_S_MAX:g} s", 408) from None
    return bytes(body)


def timeout_of(headers: Mapping[str, str]) -> float:
    """Return the time that a call has, in seconds. Raises Fault."""
    given = headers.get("context-ttl-ms")
    if given is None:
        return CALL_S_MAX
    if not given.isdecimal() or not 0 < len(given) <= 10 or int(given) == 0:
        raise Fault(f"Context-TTL-MS is {quote(given)}, want milliseconds")
    return min(int(given) / 1_000, CALL_S_MAX)


def _is_read(head: Head) -> bool:
    return head.method.startswith("get")


def _refusal(method: str, error: Exception) -> tuple[int, str]:
    """Return the code and the text of a failure of a method."""
    if isinstance(error, Refusal):
        return error.code, str(error)
    if isinstance(error, PelotonError):
        return api.ResponseCode.ERROR, error.message
    if isinstance(error, grpc.aio.AioRpcError):
        return api.ResponseCode.ERROR, error.details() or error.code().name
    log.error("%s failed", method, exc_info=error)
    return api.ResponseCode.ERROR, f"internal error: {type(error).__name__}; see the log of role aurorabridge"


def _details(*texts: str) -> list[Any]:
    return [api.ResponseDetail(message=text) for text in texts]


def _media_type(request: Request, head: Head) -> str:
    """Return the media type of the answer, which is in the encoding of its call."""
    if request.headers.get("content-type", "").startswith(GENERIC):
        return GENERIC
    return JSON if head.encoding is Encoding.JSON else BINARY


def create_app(backend: Backend, methods: Mapping[str, Method], routes: Sequence[BaseRoute] = ()) -> Starlette:
    """Create the application. ``routes``: further ones, in addition to that of Aurora's API."""
    return Starlette(
        routes=[Route("/api", Bridge(backend, methods), methods=["POST"]), *routes],
        middleware=[Middleware(Callers, backend=backend)],
    )


class Callers:
    """Middleware that passes the credentials of clients on to the api. All but the health needs them where it asks."""

    def __init__(self, app: ASGIApp, backend: Backend) -> None:
        self._app, self._backend, self._open = app, backend, OpenCluster()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != HEALTH_PATH:
            note_client(scope)
            try:
                FORWARDED.set(credentials_in(Headers(scope=scope)))
                if self._backend.proves_role:
                    await self._check()
            except Unauthenticated as error:
                headers = {"www-authenticate": 'Basic realm="Peloton"'}
                await PlainTextResponse(f"{error.message}\n", 401, headers)(scope, receive, send)
                return
            except grpc.aio.AioRpcError as error:
                await PlainTextResponse(f"{error.details()}\n", 503)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _check(self) -> None:
        """Raise Unauthenticated unless the api knows the client, which else would take a place, or call as a role."""
        if not FORWARDED.get():
            await self._open.check(self._backend.access)
            return
        try:
            await self._backend.access.WhoAmI(access_pb2.WhoAmIRequest(), timeout=WHO_S)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED):
                raise Unauthenticated(error.details() or "the credentials are refused") from None
            raise
