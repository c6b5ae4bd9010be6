"""HTTP/1.1 over one connection to an apiserver: a request and its answer without blocking, or an endless answer."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import suppress

import httptools

from services.hostmgr.kubernetes.apiserver.access import Access

CONNECT_TIMEOUT_S = 5.0
HEAD_TIMEOUT_S = 30.0
"""Timeout of the head of a streamed answer."""
READ_BYTES = 1 << 16
ANSWER_BYTES_MAX = 1 << 28
LINE_BYTES_MAX = 1 << 24
"""Limit of a line of a stream. An object in etcd has at most 1.5 MB."""
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 15, 5, 3
"""TCP keepalive probes of a silent connection: they detect a peer that left without closing it."""
NO_DATA_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def connect(access: Access) -> tuple[socket.socket, ssl.SSLContext | None]:
    """Connect to the apiserver. Raises OSError."""
    context = access.tls()
    sock = socket.create_connection((access.host, access.port), timeout=CONNECT_TIMEOUT_S)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        if context is not None:
            return context.wrap_socket(sock, server_hostname=access.server_name), context
        return sock, None
    except BaseException:
        sock.close()
        raise


class AnswerReader:
    """Parser of the answers of one connection, one after another."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.retry_after_s = 0.0
        self.has_head = False
        self.is_complete = False
        self.is_last = False  # the connection closes after it
        self.bytes_held = 0
        self._has_length = False
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Parse data. Raises ConnectionError for malformed answers."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the apiserver sent no HTTP answer: {error}") from None
        if self.bytes_held > ANSWER_BYTES_MAX:
            raise ConnectionError(f"the apiserver's answer is larger than {ANSWER_BYTES_MAX} bytes")

    def end(self) -> None:
        """Handle the end of the connection. Raises ConnectionError, unless it also ends the answer."""
        if not self.has_head:
            raise ConnectionError("the apiserver closed the connection before it answered")
        if not self.is_complete and self._has_length:
            raise ConnectionError("the apiserver closed the connection within its answer")
        self.is_complete = True

    def begin(self) -> None:
        """Reset the state for another answer."""
        self.status = 0
        self.retry_after_s = 0.0
        self.has_head = self.is_complete = self.is_last = self._has_length = False
        self._pieces = []
        self.bytes_held = 0

    def take(self) -> list[bytes]:
        """Return the pieces of the body received since the last call."""
        pieces, self._pieces = self._pieces, []
        self.bytes_held = 0
        return pieces

    # httptools callbacks

    def on_message_begin(self) -> None:
        self.begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 11 and name.lower() == b"retry-after":
            self.retry_after_s = float(value) if value.isdigit() else 0.0
        elif len(name) in (14, 17) and name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self.bytes_held += len(body)

    def on_message_complete(self) -> None:
        self.is_last = not self._parser.should_keep_alive()
        self.is_complete = True


class Connection:
    """A keep-alive connection for one request at a time. Only connecting blocks. After an OSError it is unusable."""

    def __init__(self, access: Access) -> None:
        self.sock, self.context = connect(access)
        self.sock.setblocking(False)
        self.answer = AnswerReader()
        self._unsent: bytes | memoryview = b""

    def close(self) -> None:
        self.sock.close()

    @property
    def is_quiet(self) -> bool:
        """Return whether the apiserver has neither closed the connection nor sent data since its last answer."""
        try:
            socket.socket.recv(self.sock, 1, socket.MSG_PEEK)  # of TLS too: without data below it there is none
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def begin(self, request: bytes) -> None:
        """Start a request, and send as much as the connection accepts. Raises OSError."""
        self.answer.begin()
        self._unsent = request
        self._send()

    @property
    def is_sending(self) -> bool:
        return bool(self._unsent)

    def step(self) -> bool:
        """Send and receive without blocking; return whether the answer is complete. Raises OSError."""
        if self._unsent:
            self._send()
        answer = self.answer
        while not answer.is_complete:
            try:
                data = self.sock.recv(READ_BYTES)
            except NO_DATA_YET:
                return False
            if data:
                answer.feed(data)
            else:
                answer.end()
                answer.is_last = True
        return True

    def _send(self) -> None:
        while self._unsent:
            try:
                count = self.sock.send(self._unsent)
            except NO_DATA_YET:
                return
            self._unsent = memoryview(self._unsent)[count:] if count < len(self._unsent) else b""


class Stream:
    """An answer that is read piece by piece until it ends. One thread reads it; any may close it."""

    def __init__(self, access: Access, request: bytes, silence_s: float | None) -> None:
        """Send the request and read the head of the answer. After ``silence_s`` without data a read raises
        TimeoutError; None disables that. Raises OSError."""
        self._sock, self.context = connect(access)
        self.is_closed = False
        self._rest = b""  # data beyond the last limit
        self._answer = AnswerReader()
        try:
            self._sock.settimeout(HEAD_TIMEOUT_S)
            self._sock.sendall(request)
            while not self._answer.has_head:
                self._receive()
            self._sock.settimeout(silence_s)
        except BaseException:
            self._sock.close()
            raise

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def retry_after_s(self) -> float:
        return self._answer.retry_after_s

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._sock.close()

    def close(self) -> None:
        """End reading."""
        self.is_closed = True
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # below TLS, whose state belongs to the reader

    def pieces(self) -> Iterator[bytes]:
        """Yield pieces as they arrive. Raises OSError when the connection breaks."""
        while not self.is_closed:
            yield from self._answer.take()
            if self._answer.is_complete:
                return
            try:
                self._receive()
            except OSError:
                if not self.is_closed:
                    raise

    @property
    def is_over(self) -> bool:
        """Return whether ``read`` has returned all data."""
        return self._answer.is_complete and not self._answer.bytes_held and not self._rest

    def read(self, limit_bytes: int, wait_s: float) -> bytes:
        """Return received data up to the limit; wait only for the first piece. Raises OSError."""
        data = self._rest
        while len(data) < limit_bytes:
            data += b"".join(self._answer.take())
            if self._answer.is_complete:
                break
            self._sock.settimeout(0.0 if data else wait_s)
            try:
                self._receive()
            except (TimeoutError, *NO_DATA_YET):
                break
        self._rest = data[limit_bytes:]
        return data[:limit_bytes]

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines. Raises OSError."""
        return lines_of(self.pieces())

    def _receive(self) -> None:
        data = self._sock.recv(READ_BYTES)
        if data:
            self._answer.feed(data)
        else:
            self._answer.end()


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends; an unterminated last line is dropped. Raises ConnectionError."""
    begun: list[bytes] = []
    begun_bytes = 0
    for piece in pieces:
        if b"\n" in piece:
            first, *others, rest = piece.split(b"\n")
            yield b"".join((*begun, first)) if begun else first
            yield from others
            begun, begun_bytes, piece = [], 0, rest
        if piece:
            begun.append(piece)
            begun_bytes += len(piece)
            if begun_bytes > LINE_BYTES_MAX:
                raise ConnectionError(f"the apiserver sent a line of more than {LINE_BYTES_MAX} bytes")
