"""Terminal in a pod: ``/terminal/JOB/INSTANCE?container=&command=&rows=&columns=`` as a WebSocket.

Binary messages are input and output of the command. Text messages are JSON: ``{"rows", "columns"}`` from the page is
its size; ``{"taken"}`` from either side is the number of bytes consumed, which the other side may send again;
``{"open"}``, and at the end ``{"exitCode"}`` or ``{"problem": {"code", "message"}}`` are for the page. Neither side
sends more than its window, so that no backlog grows. A session ends with its connection and cannot be resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

import grpc
import grpc.aio
import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from peloton.api.agent_sessions import Size
from peloton.api.mesos_access import MesosAccess
from peloton.errors import InvalidArgument, PelotonError, ResourceExhausted
from peloton.model.ids import parse_job_id
from services.web.api import TIMEOUT_S, Api
from services.web.commands import Asked, Command, find_command
from services.web.faults import Refusal, refusal_of
from services.web.viewer import Viewer, viewer_of
from services.web.viewer_checks import Shares

SESSIONS_MAX = 20
"""Maximum number of open terminals; more are rejected."""
SESSIONS_OF_A_VIEWER_MAX = 5
"""Maximum number of open terminals of one viewer."""
IDLE_S = 30 * 60.0
"""Time without input after which a terminal is closed, in seconds."""
INPUT_WINDOW_BYTES = 64 * 1024
"""Maximum amount of input not yet taken by the command."""
OUTPUT_WINDOW_BYTES = 256 * 1024
"""Maximum amount of output not yet drawn by the page."""
MESSAGE_BYTES_MAX = INPUT_WINDOW_BYTES
"""Maximum size of a message from a page; the server rejects larger ones while receiving."""
WATCH_S = 10.0
"""Time between two looks at the session and the credentials of a viewer, in seconds."""
SIDE_MAX = 2_000
"""Maximum number of rows and columns of a terminal."""
SIZE = (24, 80)


class Terminals:
    def __init__(self, api: Api, agents: MesosAccess, has_ended: Callable[[Viewer], bool] = Viewer.has_expired) -> None:
        self._api, self._agents, self._has_ended = api, agents, has_ended
        self._count = 0
        self._shares = Shares("terminals", SESSIONS_OF_A_VIEWER_MAX)

    async def serve(self, socket: WebSocket) -> None:
        await socket.accept()
        with suppress(WebSocketDisconnect):
            try:
                await self._run(socket)
            except (grpc.aio.AioRpcError, PelotonError, Refusal) as error:
                await send_value(socket, problem=refusal_of(error).content())
            await socket.close()

    async def _run(self, socket: WebSocket) -> None:
        asked = _parse_request(socket)
        if self._count >= SESSIONS_MAX:
            raise ResourceExhausted(
                f"{SESSIONS_MAX} terminals are open, as many as may be: close one, or try again later"
            )
        with self._shares.take(viewer_of(socket)):
            await self._serve_command(socket, asked)

    async def _serve_command(self, socket: WebSocket, asked: Asked) -> None:
        self._count += 1
        try:
            command = await find_command(self._api, self._agents, asked)
            try:
                await command.open()
                await send_value(socket, open=True)
                await Bridge(socket, command, self._watch(viewer_of(socket))).run()
            finally:
                await command.close()
        finally:
            self._count -= 1

    async def _watch(self, viewer: Viewer) -> None:
        """Wait until the session or the credentials of the viewer end. Raises Refusal, AioRpcError."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self._has_ended(viewer):
                raise Refusal("unauthenticated", "the session has ended: sign in")
            if viewer.is_signed_in:
                try:
                    await self._api.access.WhoAmI(viewer.identity_request, timeout=TIMEOUT_S)
                except grpc.aio.AioRpcError as error:
                    if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                        raise


class Bridge:
    """Connection of one page and one command."""

    def __init__(self, socket: WebSocket, command: Command, watch: Coroutine[Any, Any, None] | None = None) -> None:
        self._socket, self._command, self._watch = socket, command, watch
        self._typed: asyncio.Queue[bytes] = asyncio.Queue()  # bounded by the window; empty: new size
        self._size: Size | None = None
        self._untaken_bytes = 0
        self._window_bytes = OUTPUT_WINDOW_BYTES
        self._window_open = asyncio.Event()
        self._is_busy = asyncio.Event()

    async def run(self) -> None:
        """Relay until the command ends or the page disconnects. Raises PelotonError, AioRpcError, Refusal."""
        work = [self._write_output(), self._read_page(), self._write_input(), self._wait_until_idle()]
        work += [self._watch] if self._watch is not None else []
        tasks = [asyncio.create_task(one) for one in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if task in done:
                task.result()

    async def _write_output(self) -> None:
        async with aclosing(self._command.outputs()) as outputs:
            async for data in outputs:
                while data:
                    while not self._window_bytes:
                        self._window_open.clear()
                        await self._window_open.wait()
                    part, data = data[: self._window_bytes], data[self._window_bytes :]
                    self._window_bytes -= len(part)
                    await self._socket.send_bytes(part)
        await send_value(self._socket, exitCode=await self._command.exit_code())

    async def _read_page(self) -> None:
        with suppress(WebSocketDisconnect):
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                if data := message.get("bytes"):
                    self._take_typed(data)
                elif text := message.get("text"):
                    self._take_control(text)

    def _take_typed(self, data: bytes) -> None:
        self._untaken_bytes += len(data)
        if self._untaken_bytes > INPUT_WINDOW_BYTES:
            raise InvalidArgument(
                f"{self._untaken_bytes} bytes were typed ahead, at most {INPUT_WINDOW_BYTES} are allowed"
            )
        self._is_busy.set()
        self._typed.put_nowait(data)

    def _take_control(self, text: str) -> None:
        try:
            given = orjson.loads(text)
        except ValueError:
            raise InvalidArgument("a message is no JSON") from None
        taken = given.get("taken") if isinstance(given, dict) else None
        if isinstance(taken, int) and 0 < taken <= OUTPUT_WINDOW_BYTES - self._window_bytes:
            self._window_bytes += taken
            self._window_open.set()
        elif (size := size_of(given)) is None:
            raise InvalidArgument(f"a message is neither a size nor what was taken: {text[:80]!r}")
        else:
            if self._size is None:
                self._typed.put_nowait(b"")
            self._size = size

    async def _write_input(self) -> None:
        while True:
            typed = await self._typed.get()
            if typed:
                await self._command.send(typed)
                self._untaken_bytes -= len(typed)
                await send_value(self._socket, taken=len(typed))
            elif (size := self._size) is not None:
                self._size = None
                await self._command.resize(size)

    async def _wait_until_idle(self) -> None:
        while True:
            self._is_busy.clear()
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._is_busy.wait()
            except TimeoutError:
                raise Refusal(
                    "deadline_exceeded", f"nothing was typed for {IDLE_S / 60:g} minutes, and the session was ended"
                ) from None


async def send_value(socket: WebSocket, **value: object) -> None:
    await socket.send_text(orjson.dumps(value).decode())


def size_of(given: object) -> Size | None:
    """Return the rows and columns of a message, None if they are missing or invalid."""
    if not isinstance(given, dict):
        return None
    rows, columns = given.get("rows"), given.get("columns")
    if not isinstance(rows, int) or not isinstance(columns, int):
        return None
    return (rows, columns) if 0 < rows <= SIDE_MAX and 0 < columns <= SIDE_MAX else None


def _parse_request(socket: WebSocket) -> Asked:
    """Parse the request. Raises InvalidArgument."""
    job_id, query = socket.path_params["job_id"], socket.query_params
    try:
        job_id = parse_job_id(job_id)
    except ValueError:
        raise InvalidArgument(f"job id {job_id[:80]!r} is no UUID") from None
    try:
        given = {name: int(query.get(name, SIZE[index])) for index, name in enumerate(("rows", "columns"))}
    except ValueError:
        given = {}
    size = size_of(given)
    if size is None:
        raise InvalidArgument(f"rows and columns: want two numbers from 1 to {SIDE_MAX}")
    return Asked(job_id, socket.path_params["instance"], query.get("container", ""), query.get("command", ""), size)
