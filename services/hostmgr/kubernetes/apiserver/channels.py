"""A command in a container: streams over one WebSocket to the apiserver, numbered as in ``v5.channel.k8s.io``."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlencode

import orjson
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol
from websockets.utils import generate_key

from services.hostmgr.kubernetes.apiserver.connection import NO_DATA_YET, READ_BYTES, connect
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Json, Refused, Request

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
HEAD_BYTES_MAX = 1 << 16
MESSAGE_BYTES_MAX = 1 << 20
HEAD_TIMEOUT_S = 30.0


class Output(NamedTuple):
    stdout: bytes
    stderr: bytes
    exit_code: int | None  # None: the command is running


class CommandFailed(OSError):
    """The command was not run, or its end is unknown."""


def exit_code_of(status: Json) -> int:
    """Return the exit code in a message of the error channel. Raises CommandFailed."""
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            with suppress(ValueError):
                return int(cause["message"])
    raise CommandFailed(str(status.get("message") or "the apiserver does not say how the command ended"))


class Command:
    """A running command. Used by one thread at a time."""

    def __init__(
        self, api: ApiServer, pod_path: str, container: str, argv: Sequence[str], stdin: bool, tty: bool
    ) -> None:
        """Run the command. Raises OSError, including Refused."""
        query = [("container", container), ("stdin", stdin), ("stdout", True), ("stderr", not tty), ("tty", tty)]
        words = [(name, str(value).lower() if isinstance(value, bool) else value) for name, value in query]
        path = f"{pod_path}/exec?{urlencode([*words, *(('command', word) for word in argv)])}"
        upgrade = (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {generate_key()}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n"
        )
        self._protocol = Protocol(CLIENT, max_size=MESSAGE_BYTES_MAX)
        self._ended: int | None = None
        self._unsent = bytearray()
        self._sock, _ = connect(api.access)
        try:
            self._sock.settimeout(HEAD_TIMEOUT_S)
            tail = api.tail(api.access.authorization(), accept="*/*")  # a container runtime has no JSON for this: 406
            self._sock.sendall(api.encode(Request("GET", path), tail + upgrade))
            self._protocol.receive_data(self._read_head())
            self._sock.setblocking(False)
        except BaseException:
            self._sock.close()
            raise

    def close(self) -> None:
        """Close the command's input and output."""
        self._sock.close()

    @property
    def unsent_bytes(self) -> int:
        """Return the size of the input that the command has not consumed; ``read`` continues to send it."""
        return len(self._unsent)

    def write(self, data: bytes) -> None:
        """Send to the command's stdin; empty data ends it. Does not block."""
        self._send(bytes((STDIN,)) + data if data else bytes((CLOSE, STDIN)))

    def resize(self, columns: int, rows: int) -> None:
        """Resize the command's terminal. Does not block."""
        self._send(bytes((RESIZE,)) + orjson.dumps({"Width": columns, "Height": rows}))

    def read(self, limit_bytes: int, wait_s: float) -> Output:
        """Return received output; wait only for the first piece. Raises OSError."""
        texts = {STDOUT: b"", STDERR: b""}
        until_s = time.monotonic() + wait_s
        while True:
            self._take_messages(texts)
            received = sum(map(len, texts.values()))
            if self._ended is not None or received >= limit_bytes:
                break
            data = self._receive(time.monotonic() if received else until_s)
            if data is None:
                break
            if not data:
                raise CommandFailed("the connection to the command broke off")
            self._protocol.receive_data(data)
        return Output(texts[STDOUT], texts[STDERR], self._ended)

    def _take_messages(self, texts: dict[int, bytes]) -> None:
        """Add received output to ``texts``. Raises CommandFailed."""
        for frame in self._protocol.events_received():
            assert isinstance(frame, Frame)  # the protocol is open from the first byte on
            if self._ended is not None:
                return
            if frame.opcode is Opcode.CLOSE:
                raise CommandFailed("the apiserver closed the connection before the command ended")
            if frame.opcode is Opcode.CONT or not frame.fin:
                raise CommandFailed("the apiserver cuts its messages into frames")
            if frame.opcode in (Opcode.PING, Opcode.PONG) or not frame.data:
                continue
            channel, data = frame.data[0], bytes(frame.data[1:])
            if channel in texts:
                texts[channel] += data
            elif channel == ERROR:
                self._ended = exit_code_of(orjson.loads(data))
        self._unsent += b"".join(self._protocol.data_to_send())  # answers to pings
        if self._protocol.parser_exc is not None:
            raise CommandFailed(f"the apiserver breaks the WebSocket protocol: {self._protocol.parser_exc}")

    def _send(self, payload: bytes) -> None:
        self._unsent += Frame(Opcode.BINARY, payload).serialize(mask=True)
        self._flush()

    def _flush(self) -> None:
        """Send as much as the connection accepts. A broken connection discards the rest: data received earlier has the
        cause."""
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except NO_DATA_YET:
            pass
        except OSError:
            self._unsent.clear()

    def _receive(self, until_s: float) -> bytes | None:
        """Return received data; None when there is none until ``until_s`` (monotonic). Raises OSError."""
        while True:
            self._flush()
            with suppress(*NO_DATA_YET):
                return self._sock.recv(READ_BYTES)
            wait_s = until_s - time.monotonic()
            if wait_s <= 0:
                return None
            poll = select.poll()
            poll.register(self._sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            poll.poll(wait_s * 1_000)

    def _read_head(self) -> bytes:
        """Read the head of the answer; return the data after it. Raises OSError."""
        head = b""
        while b"\r\n\r\n" not in head:
            data = self._sock.recv(READ_BYTES)
            if not data or len(head) > HEAD_BYTES_MAX:
                raise CommandFailed("the apiserver closed the connection before it answered")
            head += data
        head, _, rest = head.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status != 101:
            raise Refused(Answer(status, rest))
        if f"sec-websocket-protocol: {PROTOCOL}".encode() not in head.lower():
            raise CommandFailed(f"the apiserver does not speak {PROTOCOL}")
        return rest
