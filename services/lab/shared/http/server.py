"""An HTTP/1.1 server on httptools that answers byte for byte like libprocess.

That covers statuses, header order, keep-alive, pipelining, chunked bodies, and one chunk per stream record.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from typing import Protocol, TypeAlias

import httptools

from services.lab.shared.http.cross_site import Guard
from services.servers.bounded_listener import HANDSHAKE_S, BoundedListener, Place

REASONS = {
    200: "OK",
    202: "Accepted",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    409: "Conflict",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"
BODY_BYTES_MAX = 256 * 1024 * 1024
HEADER_NAMES_MAX = 256
STREAM_BYTES_MAX = 512 * 1024 * 1024
"""Bytes that a subscriber may leave unread before its connection is dropped."""
HEAD_S_MAX = 30.0
"""Time from the first byte of a request to the end of its headers, in seconds."""
CONNECTIONS_MAX = 8_000
LAST_CHUNK = b"0\r\n\r\n"


class Request:
    """One complete request; header names are lower case, `path` is without the query."""

    __slots__ = ("body", "connection", "headers", "method", "path", "principal", "query")

    def __init__(
        self, method: str, path: str, query: str, headers: dict[str, str], body: bytes, connection: Connection
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.connection = connection
        self.principal = ""  # of an authenticated caller


class Response:
    __slots__ = ("body", "headers", "length_first", "status")

    def __init__(
        self, status: int, body: bytes = b"", headers: tuple[tuple[str, str], ...] = (), length_first: bool = False
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        # The v0 endpoints name the length before the type, the v1 calls after it.
        self.length_first = length_first

    def encode(self) -> bytes:
        head = f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Unknown')}\r\nDate: {http_date()}\r\n"
        lines = [f"{name}: {value}\r\n" for name, value in self.headers]
        lines.insert(0 if self.length_first else len(lines), f"Content-Length: {len(self.body)}\r\n")
        return f"{head}{''.join(lines)}\r\n".encode("latin-1") + self.body


def plain(status: int, message: str) -> Response:
    return Response(status, message.encode(), (("Content-Type", TEXT),) if message else ())


def not_found() -> Response:
    return plain(404, "404 Not Found.")


def json_response(body: bytes) -> Response:
    """Return the answer of a v1 call."""
    return Response(200, body, (("Content-Type", "application/json"),))


def json_page(body: bytes) -> Response:
    """Return the answer of a v0 endpoint."""
    return Response(200, body, (("Content-Type", "application/json"),), length_first=True)


_date_second = -1
_date_text = ""
_accepted = b""


def http_date() -> str:
    global _date_second, _date_text, _accepted
    second = int(time.time())
    if second != _date_second:
        _date_second = second
        _date_text = formatdate(second, usegmt=True)
        _accepted = f"HTTP/1.1 202 Accepted\r\nDate: {_date_text}\r\nContent-Length: 0\r\n\r\n".encode()
    return _date_text


def write_accepted() -> bytes:
    """Return the bytes of a 202, made once a second: most answers of a busy master are this one."""
    http_date()
    return _accepted


# bytes: written unchanged; None: the handler keeps the connection for a stream.
Handler: TypeAlias = Callable[[Request], "Response | bytes | None"]


class BodyReader(Protocol):
    """A reader of a request's body piece by piece, for requests that last."""

    def feed(self, data: bytes) -> None: ...

    def finish(self) -> Response:
        """End the body and return the answer."""
        ...


# A function of path (without query), headers and connection; None: the body is collected for the handler.
BodyReaders: TypeAlias = Callable[[str, dict[str, str], asyncio.Transport], BodyReader | None]


class Tunnel(Protocol):
    """The owner of a connection that has switched from HTTP to another protocol."""

    def feed(self, data: bytes) -> None: ...

    def on_loss(self) -> None:
        """Report that the peer closed the connection."""
        ...


class EventStream:
    """The answer to a SUBSCRIBE: chunks are collected during one turn of the loop and written together."""

    __slots__ = ("_connection", "_limit", "_parts", "_scheduled", "closed", "on_close")

    def __init__(
        self, connection: Connection, headers: tuple[tuple[str, str], ...], limit_bytes: int = STREAM_BYTES_MAX
    ) -> None:
        self._connection = connection
        self._limit = limit_bytes
        head = f"HTTP/1.1 200 OK\r\nDate: {http_date()}\r\nTransfer-Encoding: chunked\r\n"
        for name, value in headers:
            head += f"{name}: {value}\r\n"
        self._parts: list[bytes] = [f"{head}\r\n".encode("latin-1")]
        self._scheduled = False
        self.closed = False
        self.on_close: Callable[[], None] | None = None
        connection.stream = self
        self._schedule()

    def send(self, chunk: bytes) -> None:
        if self.closed:
            return
        self._parts.append(chunk)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._connection.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if not self._parts:
            return
        data = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
        self._parts.clear()
        transport = self._connection.transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > self._limit:
            # The subscriber has stopped reading.
            transport.abort()

    def unsent_bytes(self) -> int:
        """Return how many bytes the peer has not received yet."""
        transport = self._connection.transport
        return sum(map(len, self._parts)) + (transport.get_write_buffer_size() if transport is not None else 0)

    def finish(self) -> None:
        """End the stream in order, with the last chunk."""
        if self.closed:
            return
        self.closed = True
        self.on_close = None
        self._parts.append(LAST_CHUNK)
        self._flush()
        if self._connection.transport is not None:
            self._connection.transport.close()

    def on_loss(self) -> None:
        """Report that the peer closed the connection."""
        if not self.closed:
            self.closed = True
            if self.on_close is not None:
                self.on_close()


@lru_cache(maxsize=HEADER_NAMES_MAX)
def _header_name(name: bytes) -> str:
    return name.decode("latin-1").lower()


class Connection(asyncio.Protocol):
    """One client connection; requests are answered in order because handlers are synchronous."""

    __slots__ = (
        "_body", "_fault", "_handler", "_head", "_headers", "_out", "_overflow", "_parser", "_place", "_reader",
        "_server", "_size", "_url", "loop", "stream", "transport", "tunnel",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._handler = server.handler
        self.loop = server.loop
        self.transport: asyncio.Transport | None = None
        self.stream: EventStream | None = None
        self.tunnel: Tunnel | None = None
        """Set by a handler that answers None."""
        self._parser = httptools.HttpRequestParser(self)
        self._out: list[bytes] = []
        self._place: Place | None = None
        self._head: asyncio.TimerHandle | None = None
        self._reset()

    def _reset(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._overflow = False
        self._reader: BodyReader | None = None
        self._fault: str | None = None

    # asyncio side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._place = self._server.place_of(transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._end_head()
        self._server.connections.discard(self)
        if self.stream is not None:
            self.stream.on_loss()
        if self.tunnel is not None:
            self.tunnel.on_loss()

    def data_received(self, data: bytes) -> None:
        if self.tunnel is not None:
            self.tunnel.feed(data)
            return
        if self.stream is not None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            tunnel: Tunnel | None = self.tunnel  # may have been set by the handler
            if tunnel is not None and (rest := data[upgrade.args[0] :]):
                tunnel.feed(rest)
        except httptools.HttpParserError:
            # libprocess closes a connection that it cannot parse without an answer.
            self._write_out()
            if self.transport is not None:
                self.transport.close()
            return
        self._write_out()

    def _write_out(self) -> None:
        if self._out and self.transport is not None:
            self.transport.write(b"".join(self._out) if len(self._out) > 1 else self._out[0])
        self._out.clear()

    def _end_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    # httptools side

    def on_message_begin(self) -> None:
        self._reset()
        if self.transport is not None:
            self._head = self.loop.call_later(HEAD_S_MAX, self.transport.abort)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[_header_name(name)] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        server = self._server
        self._end_head()
        self._fault = server.guard.fault(self._headers)
        if server.body_readers is not None and self.transport is not None and self._fault is None:
            path = self._url.decode("latin-1").partition("?")[0]
            self._reader = server.body_readers(path, self._headers, self.transport)

    def on_body(self, body: bytes) -> None:
        if self._reader is not None:
            self._reader.feed(body)
            return
        self._size += len(body)
        if self._size > BODY_BYTES_MAX:
            self._overflow = True
            self._body.clear()
        elif not self._overflow:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self.stream is not None:
            return
        path, _, query = self._url.decode("latin-1").partition("?")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        method = self._parser.get_method().decode("ascii")
        if self._fault is not None:
            answer: Response | bytes | None = plain(403, self._fault)
        elif self._reader is not None:
            answer = self._reader.finish()
        elif self._overflow:
            answer = plain(413, f"The body exceeds {BODY_BYTES_MAX} bytes")
        else:
            answer = self._handler(Request(method, path, query, self._headers, body, self))
        if answer is None:
            self._write_out()
            if self._place is not None:
                self._place.work()  # a stream or a tunnel, which does not give way to other connections
            return
        self._out.append(answer if isinstance(answer, bytes) else answer.encode())
        if not self._parser.should_keep_alive():
            self._write_out()
            if self.transport is not None:
                self.transport.close()


class HttpServer:
    """A server on one port; `stop` closes every connection."""

    def __init__(self, handler: Handler, guard: Guard, body_readers: BodyReaders | None = None) -> None:
        self.handler = handler
        self.guard = guard
        self.body_readers = body_readers
        self.connections: set[Connection] = set()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._listener: BoundedListener | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        self._listener = BoundedListener(family, connections_max=CONNECTIONS_MAX)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(address)
        except OSError as error:
            self._listener.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
        self._server = await self.loop.create_server(
            lambda: Connection(self), sock=self._listener, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S if tls else None
        )
        self.port = self._listener.getsockname()[1]

    def place_of(self, transport: asyncio.Transport) -> Place | None:
        """Return the place of a connection among those of the server."""
        assert self._listener is not None
        return self._listener.place_of(transport.get_extra_info("socket").fileno(), transport.abort)

    def pause(self) -> None:
        """Refuse connections until the next start, as after the death of the process."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._drop(list(self.connections))

    def _drop(self, connections: list[Connection]) -> None:
        for connection in connections:
            if connection.transport is not None:
                connection.transport.abort()

    def drop_connections(self, apart_from: Connection) -> None:
        self._drop([connection for connection in self.connections if connection is not apart_from])

    async def stop(self) -> None:
        self.pause()
        # Let connection_lost run before the loop ends.
        await asyncio.sleep(0)
