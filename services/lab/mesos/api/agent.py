"""/api/v1 of an agent: sessions in the containers of tasks. Other calls of the operator API are not emulated."""

from __future__ import annotations

import asyncio
from binascii import Error as Base64Error

import orjson

from services.lab.mesos.agents.containers import Container, ProcessRuntime
from services.lab.mesos.agents.sessions import Refused, Sessions
from services.lab.mesos.api.calls import JSON_TYPE, accepts_json, content_fault
from services.lab.mesos.http.recordio import RecordError, Records
from services.lab.mesos.resources import Json
from services.lab.shared.http.server import EventStream, Request, Response, json_response, not_found, plain

PATH = "/api/v1"
RECORDIO_TYPE = "application/recordio"
STREAM_BYTES_MAX = 16 * 1024 * 1024
RECORD_BYTES_MAX = 1024 * 1024
"""Maximum size of one piece of input."""


class AgentApi:
    def __init__(self, runtime: ProcessRuntime) -> None:
        self._runtime = runtime
        self._sessions = runtime.sessions

    def handle(self, request: Request) -> Response | bytes | None:
        fault = content_fault(request) or _accept_fault(request)
        if fault is not None:
            return fault
        try:
            call: Json = orjson.loads(request.body)
            name = call["type"]
            body: Json = call.get(name.lower(), {})
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            return plain(400, f"Failed to parse body into JSON: {error!r}")
        try:
            match name:
                case "LAUNCH_NESTED_CONTAINER_SESSION":
                    return self._launch(request, body)
                case "WAIT_CONTAINER":
                    return self._wait(request, body)
        except (KeyError, TypeError, AttributeError) as error:
            return plain(400, f"Failed to validate agent::Call: {name} lacks {error}")
        return plain(501, f"{name} is not emulated")

    def _launch(self, request: Request, body: Json) -> Response | None:
        chosen: Json = body["container_id"]
        container = self._parent(chosen)
        if container is None:
            return plain(400, f"Container {chosen['parent']['value']} cannot be found (or is already terminated)")
        has_terminal = "tty_info" in body.get("container", {})
        command = container.command(body["command"])
        try:
            self._sessions.start(chosen["value"], container.id, command, has_terminal, lambda: _stream(request))
        except Refused as refused:
            return plain(400, str(refused))
        return None

    def _parent(self, container_id: Json) -> Container | None:
        """Return the container of the running task for a session."""
        container = self._runtime.containers.get(container_id["parent"]["value"])
        return container if container is not None and container.pid is not None else None

    def _wait(self, request: Request, body: Json) -> Response | None:
        def answer(status: int) -> None:
            transport = request.connection.transport
            if transport is not None:
                content = {"type": "WAIT_CONTAINER", "wait_container": {"exit_status": status}}
                transport.write(json_response(orjson.dumps(content)).encode())

        return None if self._sessions.wait(body["container_id"]["value"], answer) else not_found()


def _accept_fault(request: Request) -> Response | None:
    """Reject a content type of messages for an answer that is no message stream."""
    if accepts_json(request) and "message-accept" in request.headers:
        return plain(406, "Expecting 'Message-Accept' to be not set for non-streaming responses")
    return None


def _stream(request: Request) -> EventStream:
    headers = (("Content-Type", RECORDIO_TYPE), ("Message-Content-Type", JSON_TYPE))
    return EventStream(request.connection, headers, STREAM_BYTES_MAX)


class SessionInput:
    """Body of an ATTACH_CONTAINER_INPUT: a record that names the session, then its input."""

    def __init__(self, sessions: Sessions, client: asyncio.Transport) -> None:
        self._sessions = sessions
        self._client = client
        self._records = Records(RECORD_BYTES_MAX)
        self._session_id: str | None = None
        self._fault: Response | None = None

    def feed(self, data: bytes) -> None:
        if self._fault is not None:
            return
        try:
            for record in self._records.feed(data):
                self._take(orjson.loads(record)["attach_container_input"])
        except (RecordError, orjson.JSONDecodeError, Base64Error, KeyError, TypeError, AttributeError) as error:
            self._fault = plain(400, f"Failed to parse ATTACH_CONTAINER_INPUT: {error!r}")

    def _take(self, body: Json) -> None:
        if self._session_id is None:
            self._session_id = str(body["container_id"]["value"])
            if self._sessions.find(self._session_id) is None:
                self._fault = plain(400, f"Container {self._session_id} cannot be found (or is already terminated)")
            return
        session = self._sessions.find(self._session_id)
        if session is not None:
            self._sessions.take_input(session, body["process_io"], self._client)

    def finish(self) -> Response:
        return self._fault or Response(200)
