"""A gateway in front of a server with every method of the API, which answers as a test prescribes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import grpc.aio
import httpx2
import pytest
from starlette.applications import Starlette

from peloton.api.limits import RETRY_AFTER
from services.web import gateway
from services.web.api import Api
from services.web.gateway import Gateway

T = TypeVar("T")


@dataclass
class Script:
    """The server's answers to every call, and the calls that it received."""

    answers: list[bytes] = field(default_factory=lambda: [b""])
    status: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    retry_after_ms: int = 0
    holds: bool = False
    """Keeps calls open after the answers."""

    path: str = ""
    requests: list[bytes] = field(default_factory=list)
    time_remaining_s: float | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class AnyMethod(grpc.GenericRpcHandler):
    def __init__(self) -> None:
        self.script = Script()
        self._methods = gateway.methods()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        path = handler_call_details.method.removeprefix("/")
        method = self._methods[path]
        self.script.path = path
        if method.takes_stream:
            return grpc.stream_unary_rpc_method_handler(self._collect)
        if method.gives_stream:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._one)

    async def _one(self, request: bytes, context: Any) -> bytes:
        self._note(request, context)
        await self._end(context)
        return self.script.answers[0]

    async def _collect(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        try:
            async for request in requests:
                self._note(request, context)
                if self.script.status is not grpc.StatusCode.OK:
                    break
        finally:
            self.script.ended.set()
        await self._end(context)
        return self.script.answers[0]

    async def _stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        self._note(request, context)
        for answer in self.script.answers:
            yield answer
        try:
            await self._end(context)
        finally:
            self.script.ended.set()

    def _note(self, request: bytes, context: Any) -> None:
        self.script.requests.append(request)
        self.script.time_remaining_s = context.time_remaining()

    async def _end(self, context: Any) -> None:
        if self.script.holds:
            await asyncio.Event().wait()
        if self.script.status is not grpc.StatusCode.OK:
            wait_ms = self.script.retry_after_ms
            trailing = ((RETRY_AFTER, str(wait_ms)),) if wait_ms else ()
            await context.abort(self.script.status, self.script.details, trailing)


class World:
    """A loop with the server, its gateway, and the gateway's client."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._handler = AnyMethod()
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _start(self) -> None:
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self._handler,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.api = Api(f"127.0.0.1:{port}")
        self.gateway = Gateway(self.api)
        self.app = Starlette(routes=self.gateway.routes())
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url="http://web")

    async def _stop(self) -> None:
        await self.client.aclose()
        await self.api.close()
        await self._server.stop(0)

    def close(self) -> None:
        self.run(self._stop())

    def script(self, **answers: Any) -> Script:
        self._handler.script = Script(**answers)
        return self._handler.script

    def post(self, path: str, content: Any = b"{}", **headers: str) -> httpx2.Response:
        """Send a request; ``headers`` have underscores for dashes."""
        given = {b"content-type": b"application/json"}
        given |= {name.replace("_", "-").encode(): text.encode("latin-1") for name, text in headers.items()}
        return self.run(self.client.post(f"/api/{path}", content=content, headers=given))


@pytest.fixture
def world() -> Iterator[World]:
    """Create a world for each test, since a cancelled call may reach the server after the next test has begun."""
    with asyncio.Runner() as runner:
        world = World(runner)
        yield world
        world.close()


@pytest.fixture
def until(world: World) -> Callable[[asyncio.Event], None]:
    """Wait for an event of the world's loop."""

    def wait(event: asyncio.Event) -> None:
        world.run(asyncio.wait_for(event.wait(), 30))

    return wait
