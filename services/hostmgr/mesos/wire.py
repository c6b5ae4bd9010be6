"""Bytes to and from a Mesos master: the event stream (RecordIO over chunked HTTP) and pipelined calls."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence

import httptools

from peloton.api.mesos_access import OPEN, MesosAccess

READ_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 15.0
PIPELINE_BYTES_MAX = 1 << 20
RECORD_HEAD_BYTES_MAX = 24
PIPELINE_CALLS_MAX = 128
"""Limit of requests in flight on the connection: more would fill both socket buffers and block both sides."""


class MesosRefusal(Exception):
    """The master answered a call with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


def connect(address: str, access: MesosAccess = OPEN) -> socket.socket:
    """Open a connection. Raises OSError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    sock = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if access.tls is None:
        return sock
    try:
        return access.tls.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


class EventStream:
    """The answer to SUBSCRIBE, cut into records. Reading never blocks."""

    def __init__(self, address: str, request: bytes, access: MesosAccess = OPEN) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.error = b""
        self._parser = httptools.HttpResponseParser(self)
        self._buffer = bytearray(READ_BYTES)
        self._records: list[bytes] = []
        self._pending = bytearray()
        self._is_ended = False
        self._heard = time.monotonic()
        self.sock = connect(address, access)
        try:
            self.sock.sendall(request)
        except OSError:
            self.sock.close()
            raise
        self.sock.setblocking(False)

    def close(self) -> None:
        self.sock.close()

    def silent_s(self) -> float:
        return time.monotonic() - self._heard

    def read(self) -> tuple[list[bytes], bool]:
        """Return all records that have arrived, and whether more may follow."""
        is_open = True
        while is_open and not self._records:
            try:
                count = self.sock.recv_into(self._buffer)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            is_open = count > 0
            if count:
                self._heard = time.monotonic()
                self._parser.feed_data(memoryview(self._buffer)[:count])
        records, self._records = self._records, []
        return records, is_open and not self._is_ended

    # httptools callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.status != 200:
            self.error += body
            return
        self._pending += body
        self._cut()

    def on_message_complete(self) -> None:
        self._is_ended = True

    def _cut(self) -> None:
        """Cut records: a length in decimal, a newline, and so many bytes. Raises ValueError for any other format."""
        position = 0
        while True:
            newline = self._pending.find(b"\n", position, position + RECORD_HEAD_BYTES_MAX)
            head = self._pending[position : newline if newline >= 0 else position + RECORD_HEAD_BYTES_MAX]
            if len(head) == RECORD_HEAD_BYTES_MAX or (not head.isdigit() and (head or newline >= 0)):
                raise ValueError(f"a record begins with {bytes(head)!r}")
            if newline < 0:
                break
            end = newline + 1 + int(head)
            if end > len(self._pending):
                break
            self._records.append(bytes(self._pending[newline + 1 : end]))
            position = end
        if position:
            del self._pending[:position]


class Pipe:
    """One keep-alive connection for calls. Not thread-safe; after an OSError it must be closed."""

    def __init__(self, address: str, access: MesosAccess = OPEN) -> None:
        self.address = address
        self._header = access.header
        self._sock = connect(address, access)
        self._sock.settimeout(CALL_TIMEOUT_S)
        self._parser = httptools.HttpResponseParser(self)
        self._answers: list[MesosRefusal | None] = []
        self._body = b""

    def close(self) -> None:
        self._sock.close()

    def post(self, bodies: Sequence[bytes], stream_id: str) -> list[MesosRefusal | None]:
        """Posts calls; returns answers in their order."""
        head = (
            f"POST /api/v1/scheduler HTTP/1.1\r\nHost: {self.address}\r\nContent-Type: application/json\r\n"
            f"{self._header}Mesos-Stream-Id: {stream_id}\r\nContent-Length: "
        ).encode()
        self._answers = []
        sent = 0
        while sent < len(bodies):
            piece = bytearray()
            first = sent
            while sent < len(bodies) and sent - first < PIPELINE_CALLS_MAX and len(piece) < PIPELINE_BYTES_MAX:
                piece += head + b"%d\r\n\r\n" % len(bodies[sent]) + bodies[sent]
                sent += 1
            self._sock.sendall(piece)
            self._await(sent)
        return self._answers

    def _await(self, count: int) -> None:
        while len(self._answers) < count:
            data = self._sock.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the Mesos master closed the connection")
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                raise ConnectionError(f"not an HTTP answer: {error}") from error

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._answers.append(None if 200 <= status < 300 else MesosRefusal(status, self._body.decode(errors="replace")))
