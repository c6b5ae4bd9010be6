"""Terminal commands in the container of a running pod.

On Mesos a command is a session with the agent; elsewhere it is a series of numbered exchanges with the API, which
relays input and output.
"""

from __future__ import annotations

import asyncio
import shlex
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from peloton.api.agent_sessions import AgentSession, Size
from peloton.api.mesos_access import MesosAccess
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.access import access_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2 as peloton_v1_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.errors import Aborted, InvalidArgument, NotFound, Unavailable
from services.web.api import TIMEOUT_S, Api
from services.web.log_files import fault_of

T = TypeVar("T")

SHELL = ("/bin/sh", "-c", "export TERM=xterm-256color; exec /bin/sh")
"""Default command: a shell that declares the terminal emulated by the page."""
COMMAND_MAX = 4_000
"""Maximum length of a command in characters."""
EXCHANGE_TIMEOUT_S = 60.0
PAUSE_MIN_S, PAUSE_MAX_S, PAUSE_GROWTH = 0.02, 0.25, 1.5
"""Pause between two exchanges without output, in seconds; input ends a pause at once."""
TRIES_MAX, RETRY_PAUSE_S = 5, 0.5
"""Attempts of one exchange while Peloton is unreachable, and pause between them in seconds."""


class Command(Protocol):
    """Running command. All methods raise PelotonError or AioRpcError where it is unreachable.

    Input and output are handled by different tasks.
    """

    async def open(self) -> None: ...
    def outputs(self) -> AsyncGenerator[bytes, None]:
        """Yield the output of the command until it ends; the next piece is read when the previous one is taken."""
        ...

    async def send(self, data: bytes) -> None:
        """Send input; returns once the command can take more."""
        ...

    async def resize(self, size: Size) -> None: ...
    async def exit_code(self) -> int:
        """Return the exit code of the command, whose output has ended."""
        ...

    async def close(self) -> None:
        """End the command if it still runs."""
        ...


@dataclass(frozen=True)
class Asked:
    """Requested terminal. ``container`` is empty for the first of a pod; ``line`` is the command, empty for a shell."""

    job_id: str
    instance: int
    container: str
    line: str
    size: Size


async def find_command(api: Api, agents: MesosAccess, asked: Asked) -> Command:
    """Return the command for the pod's current run, not yet started. Raises PelotonError, AioRpcError."""
    argv = argv_of(asked.line)
    request = task_pb2.BrowseSandboxRequest(jobId=peloton_pb2.JobID(value=asked.job_id), instanceId=asked.instance)
    listing = await api.tasks.BrowseSandbox(request, timeout=TIMEOUT_S)
    name = f"{asked.job_id}-{asked.instance}"
    if fault := fault_of(listing):
        kind = NotFound if listing.error.HasField("notFound") or listing.error.HasField("outOfRange") else Aborted
        raise kind(f"no terminal in pod {name}: {fault}")
    if not listing.hostname:
        return RelayedCommand(api, name, asked.container, argv, asked.size)
    if asked.container:
        raise InvalidArgument(f"pod {name} is on Mesos, where a pod has one container: name none")
    if not listing.containerId:
        raise Aborted(f"pod {name} does not run: it has no container for a terminal")
    # The agent knows no viewers: the api decides, and notes the command.
    await api.access.OpenTerminal(access_pb2.OpenTerminalRequest(pod_name=name), timeout=TIMEOUT_S)
    address = listing.hostname, int(listing.port)
    session = AgentSession(agents, *address, listing.containerId, str(uuid.uuid4()), argv, asked.size)
    return AgentCommand(session)


def argv_of(line: str) -> Sequence[str]:
    """Split a command like a shell. Raises InvalidArgument."""
    if len(line) > COMMAND_MAX:
        raise InvalidArgument(f"the command has {len(line)} characters, at most {COMMAND_MAX} are allowed")
    try:
        return shlex.split(line) or SHELL
    except ValueError as error:
        raise InvalidArgument(f"the command cannot be split into words: {error}") from None


class AgentCommand:
    """Session with an agent, whose calls block: each command has two threads, one for each direction."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._threads = ThreadPoolExecutor(2, "terminal")

    async def open(self) -> None:
        await self._run(self._session.open)

    async def outputs(self) -> AsyncGenerator[bytes, None]:
        pieces = self._session.outputs()
        while (piece := await self._run(lambda: next(pieces, None))) is not None:
            yield piece[1]

    async def send(self, data: bytes) -> None:
        await self._write(lambda: self._session.send(data))

    async def resize(self, size: Size) -> None:
        await self._write(lambda: self._session.resize(size))

    async def exit_code(self) -> int:
        return await self._run(self._session.exit_code)

    async def close(self) -> None:
        self._session.close()  # wakes both threads, without waiting for them
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _write(self, write: Callable[[], None]) -> None:
        with suppress(OSError):  # the command has ended: its last output gives the reason
            await self._run(write)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


class RelayedCommand:
    """Sequential exchanges with the API."""

    def __init__(self, api: Api, pod: str, container: str, argv: Sequence[str], size: Size) -> None:
        self._api, self._pod = api, pod
        self._start = pod_svc_pb2.CommandStart(container=container, argv=argv, has_input=True, has_terminal=True)
        self._id = str(uuid.uuid4())
        self._number = -1  # of the last exchange
        self._size: Size | None = size  # if the command does not have it yet
        self._typed: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._wake = asyncio.Event()
        self._answer = pod_svc_pb2.ExchangeWithCommandResponse()
        self._exit_code: int | None = None

    async def open(self) -> None:
        self._answer = await self._exchange(pod_svc_pb2.ExchangeWithCommandRequest(start=self._start))

    async def outputs(self) -> AsyncGenerator[bytes, None]:
        pause_s = 0.0
        while True:
            answer = self._answer
            if data := answer.stdout + answer.stderr:
                yield data
            if answer.HasField("exit_code"):
                self._exit_code = answer.exit_code
                return
            pause_s = 0.0 if data else min(max(pause_s * PAUSE_GROWTH, PAUSE_MIN_S), PAUSE_MAX_S)
            typed = await self._next_input(pause_s, answer.wants_input)
            pause_s = 0.0 if typed else pause_s
            self._answer = await self._exchange(pod_svc_pb2.ExchangeWithCommandRequest(data=typed))

    async def _next_input(self, pause_s: float, wants_input: bool) -> bytes:
        """Return typed input, or nothing after the pause. A new size ends the pause, too."""
        self._wake.clear()
        if self._size is None and not (wants_input and self._typed.qsize()):
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
        return self._typed.get_nowait() if wants_input and self._typed.qsize() else b""

    async def send(self, data: bytes) -> None:
        await self._typed.put(data)
        self._wake.set()

    async def resize(self, size: Size) -> None:
        self._size = size
        self._wake.set()

    async def exit_code(self) -> int:
        assert self._exit_code is not None, "the command has not ended"
        return self._exit_code

    async def close(self) -> None:
        if self._exit_code is None and self._number >= 0:
            with suppress(grpc.aio.AioRpcError):
                await self._send(pod_svc_pb2.ExchangeWithCommandRequest(is_last=True))

    async def _exchange(
        self, request: pod_svc_pb2.ExchangeWithCommandRequest
    ) -> pod_svc_pb2.ExchangeWithCommandResponse:
        """Make the next exchange, repeated while Peloton is unreachable.

        The first exchange is not repeated, since another host manager would run the command again.
        """
        self._number += 1
        size, self._size = self._size, None
        if size is not None:
            request.rows, request.columns = size
        for tries in range(1, TRIES_MAX + 1):
            try:
                return await self._send(request)
            except grpc.aio.AioRpcError as error:
                is_unavailable = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                if not self._number or not is_unavailable or tries == TRIES_MAX:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)
        raise Unavailable("Peloton cannot be reached")

    async def _send(self, request: pod_svc_pb2.ExchangeWithCommandRequest) -> pod_svc_pb2.ExchangeWithCommandResponse:
        request.pod_name.CopyFrom(peloton_v1_pb2.PodName(value=self._pod))
        request.session, request.number = self._id, self._number
        return await self._api.pods.ExchangeWithCommand(request, timeout=EXCHANGE_TIMEOUT_S)
