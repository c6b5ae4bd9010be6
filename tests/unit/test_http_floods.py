"""HTTP endpoints of roles under floods of connections: clients that send nothing, too little, or read nothing."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from peloton.api.tls_files import TlsPaths
from services.hostmgr.latency_endpoint import LatencyEndpoint
from services.hostmgr.latency_reports import LatencyReports
from services.lab.shared.http.cross_site import Guard
from services.lab.shared.http.server import HttpServer, plain
from services.servers import bounded_listener, http_connection
from services.servers.asgi_server import serve
from services.servers.bounded_listener import ENDED_MAX, WAITING_MAX, BoundedListener
from services.telemetry import scrape
from services.tls.authority import LocalAuthority
from services.tls.secured import TlsTransport
from services.tls.transport import PLAINTEXT, Transport
from tests.doubles.floods import COUNTS, holding, read_memory_mib

MEMORY_MIB = 400
"""Growth of the process with 3,000 hostile connections, those of the test among it."""
HEAD = b"POST /echo HTTP/1.1\r\nhost: localhost\r\n"
SENT = {
    "nothing": b"",
    "half a head": HEAD,
    "half a body": HEAD + b"content-length: 1000\r\n\r\nhalf",
    "no reading": b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n",
}


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def send_large(request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 2**16

    return StreamingResponse(pieces())


@asynccontextmanager
async def serving(transport: Transport = PLAINTEXT) -> AsyncIterator[int]:
    """Serve an application as roles web and aurorabridge do; yield the port."""
    app = Starlette(routes=[Route("/echo", echo, methods=["POST"]), Route("/large", send_large)])
    stop, ports = asyncio.Event(), asyncio.Queue[int]()
    task = asyncio.create_task(
        serve(app, "test", "127.0.0.1", 0, request_s=40.0, stop=stop, serves=ports.put_nowait, transport=transport)
    )
    try:
        yield await ports.get()
    finally:
        stop.set()
        await task


def post(port: int, path: str, body: bytes, context: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """Return status and body of an answer."""
    kind = http.client.HTTPConnection if context is None else partial(http.client.HTTPSConnection, context=context)
    with closing(kind("localhost", port, timeout=20)) as connection:
        connection.request("POST" if body else "GET", path, body or None)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("sent", SENT)
async def test_an_honest_client_is_answered_while_connections_are_held(sent: str, count: int) -> None:
    """Connections that wait for their client are bounded, and the newest of them is not the one that ends."""
    before_mib = read_memory_mib()
    async with serving() as port:
        manager = holding(port, count, SENT[sent])
        held = await asyncio.to_thread(manager.__enter__)
        try:
            for _ in range(3):
                assert (200, b"honest") == await asyncio.to_thread(post, port, "/echo", b"honest")
            assert read_memory_mib() - before_mib < MEMORY_MIB
        finally:
            manager.__exit__(None, None, None)
        assert count == len(held)
        assert (200, b"honest") == await asyncio.to_thread(post, port, "/echo", b"honest")


@pytest.fixture
def https(tmp_path: Path) -> tuple[Transport, ssl.SSLContext]:
    """Return TLS without certificates of clients, and the context of a client."""
    authority = LocalAuthority(tmp_path / "tls", "test")
    issued = authority.issue_role("web", ["localhost", "127.0.0.1"])
    transport = TlsTransport(TlsPaths(str(authority.ca_file), str(issued.cert), str(issued.key)), asks_clients=False)
    return transport, ssl.create_default_context(cafile=str(authority.ca_file))


@pytest.mark.parametrize("count", COUNTS)
async def test_handshakes_that_never_come_keep_no_one_out(https: tuple[Transport, ssl.SSLContext], count: int) -> None:
    """Connections without a handshake are bounded in number, and end after seconds."""
    transport, context = https
    before_mib = read_memory_mib()
    async with serving(transport) as port:
        manager = holding(port, count)
        held = await asyncio.to_thread(manager.__enter__)
        try:
            assert (200, b"honest") == await asyncio.to_thread(post, port, "/echo", b"honest", context)
            assert read_memory_mib() - before_mib < MEMORY_MIB
            held[-1].settimeout(bounded_listener.HANDSHAKE_S + 60)
            assert b"" == await asyncio.to_thread(held[-1].recv, 1)
        finally:
            manager.__exit__(None, None, None)


async def test_a_head_that_is_sent_too_slowly_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single bytes do not extend the time."""
    monkeypatch.setattr(http_connection, "HEAD_S_MAX", 0.5)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began_s = time.monotonic()
        reading = asyncio.create_task(reader.read())
        while not reading.done():
            writer.write(b"G")
            await asyncio.sleep(0.05)
            assert time.monotonic() - began_s < 60
        reading.exception()
        writer.close()


async def test_a_head_may_take_its_time_after_a_pause() -> None:
    """A connection serves the next request, too, and leaves its listener at the end."""
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(HEAD + b"content-length: 1\r\n\r\n")
            await asyncio.sleep(0.1)
            writer.write(b"x")
            assert b"200" in await reader.readuntil(b"\r\n\r\n")
            assert b"x" == await reader.readexactly(1)
        writer.close()


def scraping() -> Iterator[tuple[int, Callable[[int], tuple[int, bytes]]]]:
    yield scrape.serve("127.0.0.1", 0, lambda: b"one 1\n"), lambda port: post(port, "/metrics", b"")


def reporting() -> Iterator[tuple[int, Callable[[int], tuple[int, bytes]]]]:
    endpoint = LatencyEndpoint("127.0.0.1", 0, LatencyReports(time.monotonic))
    try:
        yield endpoint.port, lambda port: post(port, "/v1/latencies", b"\n")
    finally:
        endpoint.stop()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT"], ids=["silent", "half"])
@pytest.mark.parametrize("endpoint", [scraping, reporting])
def test_threads_are_not_held(
    endpoint: Callable[[], Iterator[tuple[int, Callable[[int], tuple[int, bytes]]]]], sent: bytes, count: int
) -> None:
    """The endpoints of Prometheus and of pods answer while connections that send nothing are held."""
    for port, ask in endpoint():
        with holding(port, count, sent):
            for _ in range(3):
                assert 200 == ask(port)[0]


def test_the_address_with_the_most_connections_loses_its_oldest() -> None:
    """A connection of another address stays, and one that is busy."""
    with BoundedListener(2, waiting_max=3, connections_max=5) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = listener.getsockname()
        clients, accepted = [], []

        def connect(source: str) -> None:
            clients.append(socket.create_connection(address, source_address=(source, 0)))
            accepted.append(listener.accept()[0])

        try:
            connect("127.0.0.2")
            for _ in range(3):
                connect("127.0.0.1")
            clients[1].settimeout(60)
            assert b"" == clients[1].recv(1), "the oldest of the address with the most"
            places = [listener.place_of(one.fileno(), one.close) for one in accepted]
            for place in places:
                assert place is not None
                place.work()
            assert 0 == listener.waiting_count
            for _ in range(2):
                connect("127.0.0.1")
            for place in (listener.place_of(one.fileno(), one.close) for one in accepted):
                assert place is not None
                place.work()
            with pytest.raises(ConnectionAbortedError):
                connect("127.0.0.1")
            places[0].wait()  # type: ignore[union-attr]
            clients[0].settimeout(60)
            connect("127.0.0.1")
            assert b"" == clients[0].recv(1)
        finally:
            for one in (*clients, *accepted):
                one.close()
        assert 0 == listener.waiting_count


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("sent", [b"", b"GET / HT"], ids=["silent", "half"])
async def test_emulated_clusters_are_not_held(sent: bytes, count: int) -> None:
    """The server of emulated masters, agents and apiservers answers, too."""
    server = HttpServer(lambda request: plain(200, "here"), Guard("127.0.0.1"))
    await server.start("127.0.0.1", 0)
    manager = holding(server.port, count, sent)
    await asyncio.to_thread(manager.__enter__)
    try:
        assert (200, b"here") == await asyncio.to_thread(post, server.port, "/", b"")
        assert len(server.connections) < WAITING_MAX + ENDED_MAX
    finally:
        manager.__exit__(None, None, None)
        await server.stop()
