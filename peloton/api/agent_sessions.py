"""Commands in the container of a task on a Mesos agent, over the agent's calls LAUNCH_NESTED_CONTAINER_SESSION,
ATTACH_CONTAINER_INPUT and WAIT_CONTAINER. Calls block; one thread may send input while another reads output."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from peloton.api.mesos_access import MesosAccess
from peloton.errors import NotFound, Unavailable

PATH = "/api/v1"
JSON_TYPE, RECORDIO_TYPE = "application/json", "application/recordio"
STDOUT, STDERR = "STDOUT", "STDERR"
PIECE_BYTES = 16 * 1024
REASON_BYTES_MAX = 500
"""Maximum bytes of an error's text that are quoted."""
CONNECT_TIMEOUT_S = 20.0
EXIT_STATUS_TIMEOUT_S = 10.0

Json = dict[str, Any]
Size = tuple[int, int]
"""Rows and columns of a terminal."""


class AgentSession:
    """Session of one command. All methods raise Unavailable if the agent cannot be reached or refuses, and NotFound if
    it does not have the container."""

    def __init__(
        self,
        access: MesosAccess,
        host: str,
        port: int,
        container_id: str,
        session_id: str,
        argv: Sequence[str],
        terminal: Size | None = None,
    ) -> None:
        """Set ``terminal`` to None for pipes. ``container_id``: container of the task. ``session_id``: a new UUID."""
        self.address = f"{host}:{port}"
        self._access = access
        self._host, self._port = host, port
        self._container = {"value": session_id, "parent": {"value": container_id}}
        self._argv = list(argv)
        self._terminal = terminal
        self._output = self._connection(CONNECT_TIMEOUT_S)
        self._input = self._connection(CONNECT_TIMEOUT_S)
        self._sending = threading.Lock()
        self._response: http.client.HTTPResponse | None = None

    def open(self) -> None:
        """Start the command and attach its input. A session that fails to open is closed."""
        try:
            self._open()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._session_error(error) from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        command = {"shell": False, "value": self._argv[0], "arguments": self._argv}
        body: Json = {"container_id": self._container, "command": command}
        if self._terminal is not None:
            body["container"] = {"type": "MESOS", "tty_info": _window(self._terminal)}
        response = self._call(self._output, "LAUNCH_NESTED_CONTAINER_SESSION", body, RECORDIO_TYPE)
        if response.status != http.client.OK:
            raise self._refusal_error(f"the agent at {self.address} opens no session", response)
        _remove_timeout(self._output)
        self._response = response
        self._attach()

    def _attach(self) -> None:
        self._input.putrequest("POST", PATH)
        for name, value in (
            ("Content-Type", RECORDIO_TYPE), ("Message-Content-Type", JSON_TYPE), ("Accept", JSON_TYPE),
            ("Transfer-Encoding", "chunked"), *self._access.headers.items(),
        ):  # fmt: skip
            self._input.putheader(name, value)
        self._input.endheaders()
        _remove_timeout(self._input)
        with suppress(OSError):  # the command may have ended already
            self._send({"type": "CONTAINER_ID", "container_id": self._container})
            if self._terminal is not None:
                self.resize(self._terminal)  # agents ignore the size in the launch: the terminal has 0 rows until now

    def outputs(self) -> Iterator[tuple[str, bytes]]:
        """Yield the output of the command, as STDOUT or STDERR and the bytes, until the command has ended."""
        response = self._response
        assert response is not None, "the session is not open"
        try:
            for record in records(lambda: response.read1(PIECE_BYTES)):
                message = json.loads(record)
                if message.get("type") == "DATA":  # other records keep the connection alive
                    yield message["data"]["type"], b64decode(message["data"].get("data", ""))
        except (OSError, http.client.HTTPException, ValueError, LookupError, AttributeError) as error:
            raise self._session_error(error) from error  # AttributeError: another thread has closed the session

    def send(self, data: bytes) -> None:
        """Write to the command's input; blocks while the command does not read. Raises OSError."""
        if data:
            self._send_stdin(data)

    def end_input(self) -> None:
        """Close the command's input. Raises OSError."""
        self._send_stdin(b"")

    def resize(self, size: Size) -> None:
        """Set the size of the terminal. Raises OSError."""
        self._send_io({"type": "CONTROL", "control": {"type": "TTY_INFO", "tty_info": _window(size)}})

    def _send_stdin(self, data: bytes) -> None:
        self._send_io({"type": "DATA", "data": {"type": "STDIN", "data": b64encode(data).decode()}})

    def _send_io(self, message: Json) -> None:
        self._send({"type": "PROCESS_IO", "process_io": message})

    def _send(self, body: Json) -> None:
        text = json.dumps({"type": "ATTACH_CONTAINER_INPUT", "attach_container_input": body}).encode()
        record = b"%d\n%s" % (len(text), text)
        with self._sending:
            if self._input.sock is None:
                raise OSError("the session has ended")
            self._input.send(b"%x\r\n%s\r\n" % (len(record), record))

    def close(self) -> None:
        """Close the connections, which also ends a running command. Thread-safe."""
        for connection in (self._input, self._output):
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads or sends
        with self._sending:
            self._input.close()
        self._output.close()

    def exit_code(self) -> int:
        """Return the exit code of the command from the agent, or 128 and the number of the signal that ended it."""
        fault = f"the agent at {self.address} does not say how the command ended"
        connection = self._connection(EXIT_STATUS_TIMEOUT_S)
        try:
            response = self._call(connection, "WAIT_CONTAINER", {"container_id": self._container}, JSON_TYPE)
            if response.status != http.client.OK:
                raise self._refusal_error(fault, response)
            answer = json.loads(response.read())
            code = os.waitstatus_to_exitcode(int(answer["wait_container"]["exit_status"]))
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{fault}: {error!r}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise Unavailable(f"{fault}: its answer has no exit_status ({error!r})") from error
        finally:
            connection.close()
        return code if code >= 0 else 128 - code

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        return self._access.connection(self._host, self._port, timeout_s)

    def _call(
        self, connection: http.client.HTTPConnection, name: str, body: Json, accept: str
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": JSON_TYPE, "Accept": accept, **self._access.headers}
        if accept == RECORDIO_TYPE:
            headers["Message-Accept"] = JSON_TYPE  # agents refuse this header (406) if the answer is no stream
        connection.request("POST", PATH, json.dumps({"type": name, name.lower(): body}), headers)
        return connection.getresponse()

    def _refusal_error(self, fault: str, response: http.client.HTTPResponse) -> Exception:
        text = response.read(REASON_BYTES_MAX).decode("utf-8", "replace")
        kind = NotFound if response.status == http.client.NOT_FOUND else Unavailable
        return kind(f"{fault}: HTTP {response.status} {text}".strip())

    def _session_error(self, error: Exception) -> Unavailable:
        return Unavailable(f"the session with the agent at {self.address} broke off: {error!r}")


def _remove_timeout(connection: http.client.HTTPConnection) -> None:
    """Remove the timeout of the connection: a command may be silent for long, and may not read its input."""
    assert connection.sock is not None
    connection.sock.settimeout(None)


def _window(size: Size) -> Json:
    rows, columns = size
    return {"window_size": {"rows": rows, "columns": columns}}


def records(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Yield the RecordIO records in the data from ``read``: a length, a newline, and as many bytes."""
    rest = b""
    while data := read():
        rest += data
        while b"\n" in rest:
            head, _, body = rest.partition(b"\n")
            if len(body) < int(head):
                break
            yield body[: int(head)]
            rest = body[int(head) :]
