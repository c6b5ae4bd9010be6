"""Exec subresource of pods: a command next to a container, over a WebSocket with a channel for each stream."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

import orjson

from services.lab.kubernetes.errors import ApiError, bad_request
from services.lab.kubernetes.nodes.containers import Container
from services.lab.kubernetes.nodes.log_requests import container_name
from services.lab.kubernetes.nodes.nodes import Nodes
from services.lab.kubernetes.nodes.process_pods import ProcessPod
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.requests import Target, is_true
from services.lab.kubernetes.resources import PODS, Json
from services.lab.shared.http.server import Request
from services.lab.shared.http.websocket import (
    BINARY,
    CLOSE,
    NORMAL_CLOSURE,
    PING,
    PONG,
    Messages,
    WebSocketError,
    chosen_protocol,
    frame,
    handshake,
)
from services.lab.shared.interactive import STDOUT, Interactive, Size
from services.lab.shared.processes import exit_code_of

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN_CHANNEL, STDOUT_CHANNEL, STDERR_CHANNEL, ERROR_CHANNEL, RESIZE_CHANNEL, CLOSE_CHANNEL = 0, 1, 2, 3, 4, 255


class ExecRequests:
    def __init__(self, registry: Registry, nodes: Nodes) -> None:
        self._registry = registry
        self._nodes = nodes

    def serve(self, request: Request, target: Target, query: dict[str, str]) -> bytes | None:
        """Serve a session. Raises ApiError before the connection becomes a WebSocket."""
        pod = self._registry.read(PODS, target.namespace, target.name)
        argv = parse_qs(request.query, keep_blank_values=True).get("command", [])
        if not argv:
            raise bad_request("you must specify at least 1 command for the container")
        container = self._container(pod, container_name(pod, query.get("container", "")))
        protocol = chosen_protocol(request.headers, PROTOCOLS)
        if protocol is None:
            raise bad_request(f"unable to upgrade: want a WebSocket of {' or '.join(PROTOCOLS)}")
        if "*/*" not in request.headers.get("accept", "*/*"):
            raise ApiError(406, "NotAcceptable", "406: Not Acceptable")  # as a container runtime reports it
        transport = request.connection.transport
        if transport is None:
            return None
        session = _Exec(transport, is_true(query, "stdin"))
        terminal = (0, 0) if is_true(query, "tty") else None
        transport.write(handshake(request.headers, protocol))
        request.connection.tunnel = session
        session.begin(container, argv, terminal)
        return None

    def _container(self, pod: Json, name: str) -> Container:
        """Return the running container. Raises ApiError for any other."""
        found = self._nodes.pod(pod["spec"].get("nodeName", ""), pod["metadata"]["uid"])
        container = found.containers[name] if isinstance(found, ProcessPod) else None
        if container is None or container.pid is None:
            text = f'unable to upgrade connection: container not found ("{name}")'
            raise ApiError(500, "InternalError", text)
        return container


class _Exec:
    """One command and its WebSocket; a Client of the command and the Tunnel of the connection."""

    def __init__(self, transport: asyncio.Transport, has_input: bool) -> None:
        self._transport = transport
        self._messages = Messages()
        self._has_input = has_input
        self._command: Interactive | None = None
        self._is_paused = False

    def begin(self, container: Container, argv: list[str], terminal: Size | None) -> None:
        try:
            self._command = container.interactive(argv, terminal, self)
        except (OSError, ValueError) as error:
            why = f'exec: "{argv[0]}": {getattr(error, "strerror", None) or error}: unknown'
            self._end({"metadata": {}, "status": "Failure", "message": why, "reason": "InternalError", "code": 500})
            return
        container.sessions.add(self)
        self._container = container
        if not self._has_input:
            self._command.end_input()
        self._command.start()

    # Of the command

    def output(self, name: str, data: bytes) -> None:
        self._send(STDOUT_CHANNEL if name == STDOUT else STDERR_CHANNEL, data)

    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def input_taken(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def on_end(self, status: int) -> None:
        self._container.sessions.discard(self)
        self._end(_ending(exit_code_of(status)))

    def kill(self) -> None:
        if self._command is not None:
            self._command.kill()

    # Of the connection

    def feed(self, data: bytes) -> None:
        try:
            for kind, payload in self._messages.feed(data):
                self._take(kind, payload)
        except WebSocketError:
            self._transport.abort()

    def on_loss(self) -> None:
        self.kill()

    def _take(self, kind: int, payload: bytes) -> None:
        command = self._command
        if kind == PING:
            self._transport.write(frame(PONG, payload))
        if kind == CLOSE:
            self.kill()
        if kind in (CLOSE, PING, PONG) or command is None or not payload:
            return
        channel, data = payload[0], payload[1:]
        if channel == STDIN_CHANNEL and self._has_input and data:
            command.write(data)
            if command.is_behind:
                self._is_paused = True
                self._transport.pause_reading()
        elif channel == CLOSE_CHANNEL and data == bytes((STDIN_CHANNEL,)):
            command.end_input()
        elif channel == RESIZE_CHANNEL:
            _resize(command, data)

    def _send(self, channel: int, data: bytes) -> None:
        self._transport.write(frame(BINARY, bytes((channel,)) + data))

    def _end(self, status: Json) -> None:
        self._send(ERROR_CHANNEL, orjson.dumps(status))
        self._transport.write(frame(CLOSE, NORMAL_CLOSURE.to_bytes(2, "big")))
        self._transport.close()


def _ending(code: int) -> Json:
    """The Status that ends a session."""
    if not code:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _resize(command: Interactive, data: bytes) -> None:
    try:
        size = orjson.loads(data)
        command.resize((int(size["Height"]), int(size["Width"])))
    except (ValueError, KeyError, TypeError):
        return  # a client that sends something else keeps the size it has
