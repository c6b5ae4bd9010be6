"""Public API as JSON over HTTP: ``POST /api/SERVICE/METHOD``, for every method that role api serves.

Requests and answers are protobuf JSON, and errors follow Connect's unary protocol: an HTTP status with ``{"code":
"not_found", "message": "..."}``. Errors in answers of the v0 API stay there, with status 200. A streaming method
returns one line per message, ``{"result": {...}}``, and a last line ``{"error": {"code": ..., "message": ...}}`` if it
failed later; the call ends when the client disconnects. A method with a request stream takes one line per message as
well.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import grpc.aio
import orjson
from google.protobuf import message_factory
from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from peloton.api.service_names import ACCESS_SERVICE, list_methods
from peloton.errors import PelotonError
from services.web import openapi
from services.web.api import Api
from services.web.bodies import Bodies, BodyMemory, check_headers, timeout_of
from services.web.faults import Refusal, refusal_of, too_busy
from services.web.proto_json import read_message, written
from services.web.viewer import Viewer, viewer_of
from services.web.viewer_checks import Shares

log = logging.getLogger(__name__)
T = TypeVar("T")

JSON = "application/json"
LINES = "application/x-ndjson"
CALLS_MAX = 200
"""Maximum number of unary calls in progress."""
STREAMS_MAX, STREAMS_OF_A_VIEWER_MAX = 100, 25
"""Maximum number of streaming calls in progress, of all viewers and of each."""
ANSWER_BYTES_MAX = 16 * 2**20
"""Maximum size of an answer of the api, and of each message of a stream."""
SIGN_OUT = f"{ACCESS_SERVICE[0]}/SignOut"
"""Method that a copy of a cookie would fill with made-up sessions, until that of its owner could not be ended."""
TIMEOUT_S = 20.0
"""Default timeout of a unary call, in seconds."""
HEAD_AFTER_S = 0.5
"""Time in seconds after which a silent stream begins with status 200."""
AT_ONCE_BYTES_MAX = 32 * 2**10
"""Size above which messages are converted in threads."""
THREADS_MAX = 2
"""Maximum number of these threads, since a conversion takes many times the size of the message."""


class Method(NamedTuple):
    """Method of the API; ``path`` is SERVICE/NAME."""

    path: str
    request: type[Message]
    answer: type[Message]
    takes_stream: bool
    gives_stream: bool


def methods() -> dict[str, Method]:
    """Return all served methods by path."""
    return {
        path: Method(
            path,
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
            method.client_streaming,
            method.server_streaming,
        )
        for path, method in list_methods()
    }


class Gateway:
    """Gateway for one event loop."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._methods = methods()
        self._bodies = Bodies()
        self._threads = asyncio.Semaphore(THREADS_MAX)
        self._calls = 0
        self._streams: set[Any] = set()
        self._shares = Shares("streams", STREAMS_OF_A_VIEWER_MAX)

    def routes(self) -> Sequence[Route]:
        return [openapi.route(), Route("/api/{service}/{method}", self.answer, methods=["POST"])]

    def close(self) -> None:
        """Cancel streaming calls, which do not end by themselves."""
        for call in list(self._streams):
            call.cancel()

    async def answer(self, request: Request) -> Response:
        self._calls += 1
        try:
            if self._calls > CALLS_MAX:
                raise too_busy(f"{CALLS_MAX} calls are in progress", 1)
            with self._bodies.memory() as memory:
                return await self._answer(request, memory)
        except ClientDisconnect:
            return Response(status_code=499)  # the client has disconnected
        except (Exception, asyncio.CancelledError) as error:
            if _is_of_this_task(error):
                raise
            return _refusal_of(request.url.path, error).response()
        finally:
            self._calls -= 1

    async def _answer(self, request: Request, memory: BodyMemory) -> Response:
        method = self._method(request.path_params["service"], request.path_params["method"])
        if method.path == SIGN_OUT and viewer_of(request).session:
            raise Refusal("permission_denied", "a session of the pages ends by POST /sign-out, and no other with it")
        check_headers(request, LINES if method.takes_stream else JSON)
        timeout_s = timeout_of(request, None if method.takes_stream or method.gives_stream else TIMEOUT_S)
        if method.takes_stream:
            raw = await self._send_lines(method, request, memory, timeout_s)
        else:
            message = await self._convert(read_message, method.request, await memory.body(request))
            content = message.SerializeToString()
            if method.gives_stream:
                return _Running(partial(self._follow, method, viewer_of(request), content, timeout_s))
            call: Any = self._api.channel.unary_unary(f"/{method.path}")
            raw = await call(content, timeout=timeout_s)
        return Response(await self._convert(_json_of, method.answer, raw), media_type=JSON)

    def _method(self, service: str, name: str) -> Method:
        path = f"{service}/{name}"[:200]
        method = self._methods.get(path)
        if method is None:
            close = difflib.get_close_matches(path, self._methods, n=1)
            hint = f": did you mean {close[0]}?" if close else ""
            raise Refusal("unimplemented", f"there is no method {path}{hint}", status=404)
        return method

    async def _convert(self, work: Callable[[Any, bytes], T], kind: Any, raw: bytes) -> T:
        if len(raw) <= AT_ONCE_BYTES_MAX:
            return work(kind, raw)
        async with self._threads:
            return await asyncio.to_thread(work, kind, raw)

    # -- streams

    @asynccontextmanager
    async def _open_stream(self, viewer: Viewer, start: Callable[[], Any]) -> AsyncIterator[Any]:
        """Start a streaming call that is cancelled on exit."""
        if len(self._streams) >= STREAMS_MAX:
            raise too_busy(f"{STREAMS_MAX} streams are open", 10)
        with self._shares.take(viewer):
            call = start()
            self._streams.add(call)
            try:
                yield call
            finally:
                self._streams.discard(call)
                call.cancel()

    async def _send_lines(self, method: Method, request: Request, memory: BodyMemory, timeout_s: float | None) -> bytes:
        """Send a stream of messages and return the answer, which may arrive before all of them are sent."""
        multi: Any = self._api.channel.stream_unary(f"/{method.path}")
        async with self._open_stream(viewer_of(request), partial(multi, timeout=timeout_s)) as call:
            await call.wait_for_connection()
            with self._bodies.reading(memory):
                async for line in memory.lines(request):
                    message = await self._convert(read_message, method.request, line)
                    if not await _is_sent(call, message.SerializeToString()):
                        break
            await call.done_writing()
            answer: bytes = await call
            return answer

    async def _follow(
        self,
        method: Method,
        viewer: Viewer,
        content: bytes,
        timeout_s: float | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Send the messages of a stream line by line, until it ends or the client disconnects."""
        has_begun = False
        gone = asyncio.create_task(_until_gone(receive))
        try:
            multi: Any = self._api.channel.unary_stream(f"/{method.path}")
            async with self._open_stream(viewer, partial(multi, content, timeout=timeout_s)) as call:
                gone.add_done_callback(lambda _: call.cancel())
                first = asyncio.create_task(self._next_line(method, call))
                await asyncio.wait({first}, timeout=HEAD_AFTER_S)
                if not (first.done() and (first.cancelled() or first.exception())):
                    await send(_HEAD)
                    has_begun = True
                line = await first
                while line:
                    await send(_piece(line))
                    line = await self._next_line(method, call)
            await send(_piece(b"", is_last=True))
        except (Exception, asyncio.CancelledError) as error:
            if _is_of_this_task(error):
                raise
            if gone.done():
                return
            refusal = _refusal_of(method.path, error)
            if has_begun:
                await send(_piece(_line("error", orjson.dumps(refusal.content())), is_last=True))
            else:
                await refusal.response()(scope, receive, send)
        finally:
            gone.cancel()

    async def _next_line(self, method: Method, call: Any) -> bytes:
        """Return the next line, empty at the end."""
        raw = await call.read()
        return b"" if raw is grpc.aio.EOF else _line("result", await self._convert(_json_of, method.answer, raw))


class _Running(Response):
    """Response whose content is produced while it is sent."""

    def __init__(self, run: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        super().__init__()
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._run(scope, receive, send)


_HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", LINES.encode()), (b"cache-control", b"no-store"), (b"content-encoding", b"identity")],
}
"""Response head that disables compression, which would delay lines."""


def _piece(content: bytes, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": not is_last}


def _line(key: str, content: bytes) -> bytes:
    return b'{"%b":%b}\n' % (key.encode(), content)


def _json_of(kind: type[Message], raw: bytes) -> bytes:
    """Convert an answer to JSON. Raises Refusal."""
    if len(raw) > ANSWER_BYTES_MAX:
        text = f"the answer has {len(raw):,} bytes, the bound is {ANSWER_BYTES_MAX:,}: ask for less, or over gRPC"
        raise Refusal("resource_exhausted", text, status=413)
    return written(kind.FromString(raw))


async def _is_sent(call: Any, content: bytes) -> bool:
    """Send a message; returns whether the call accepts more.

    The public ``write`` would replace the status of a call that ends meanwhile by an internal error.
    """
    if call.done():
        return False
    try:
        await call._cython_call.send_serialized_message(content)
    except Exception:  # the call itself reports its status
        return False
    return True


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_of_this_task(error: BaseException) -> bool:
    """Return whether this task was cancelled: a cancelled call raises the same error."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _refusal_of(path: str, error: BaseException) -> Refusal:
    if isinstance(error, asyncio.CancelledError):
        return Refusal("unavailable", "role web stops: try again")
    if not isinstance(error, Refusal | PelotonError | grpc.aio.AioRpcError):
        log.error("%s failed", path, exc_info=error)
    return refusal_of(error)
