"""Connections over real sockets: clients that send too much or too slowly, and clients that do not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from services.aurorabridge import app
from services.aurorabridge.backend import Backend
from services.aurorabridge.method import Refusal
from services.servers import asgi_server
from services.servers import http_connection as connection
from tests.unit.aurorabridge.calling import ENCODINGS, details_of

pytestmark = pytest.mark.slow

MIB = 2**20
TEXT = "x" * 32 * MIB
HEAD = "POST /api HTTP/1.1\r\nhost: bridge\r\nRpc-Procedure: ReadOnlyScheduler::getTierConfigs\r\n"
CALL = (HEAD + "content-length: 1\r\n\r\n\0").encode()


async def refuse(backend: Backend, arguments: Any) -> Any:
    raise Refusal("tiers")


@asynccontextmanager
async def serving(method: Any = refuse, request_s: float = 40.0) -> AsyncIterator[int]:
    """Serve one method; yield the port."""
    stop, ports = asyncio.Event(), asyncio.Queue[int]()
    application = app.create_app(Backend("127.0.0.1:1"), {"getTierConfigs": method})
    task = asyncio.create_task(
        asgi_server.serve(
            application, "aurorabridge", "127.0.0.1", 0, stop=stop, serves=ports.put_nowait,
            request_s=request_s, ws="none",
        )
    )  # fmt: skip
    try:
        yield await ports.get()
    finally:
        stop.set()
        await task


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    sizes = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:")]
    return int(head.split()[1]), await reader.readexactly(int(sizes[0]))


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """Read until the server closes the connection, in whichever way."""
    found = b""
    try:
        while piece := await reader.read(MIB):
            found += piece
    except ConnectionError:
        pass
    return found


async def test_a_connection_serves_calls_with_pauses() -> None:
    """The bounds of a request do not hold between two of them, also when both are sent at once."""
    async with serving(request_s=1.0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for sent in (CALL, CALL * 2):
            writer.write(sent)
            for _ in range(sent.count(HEAD.encode())):
                status, body = await read_answer(reader)

                assert 200 == status
                assert ["getTierConfigs", "tiers"] == details_of(ENCODINGS["bare"].read("getTierConfigs", body))[1]
            await asyncio.sleep(1.2 if sent == CALL * 2 else 0)
        writer.close()


async def test_answers_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nagle's algorithm is off: it would hold each answer back until the client acknowledges its head."""
    options = []

    class Seen(connection.Connection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            options.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(asgi_server, "Connection", Seen)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CALL)
        await read_answer(reader)
        writer.close()

    assert [1] == options


async def test_a_body_beyond_the_bound_is_refused_while_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes after the bound is passed, without an end of the body; then the connection is closed."""
    monkeypatch.setattr(app, "BODY_BYTES_MAX", MIB)
    async with serving(request_s=4.0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((HEAD + "transfer-encoding: chunked\r\n\r\n").encode())
        answered = asyncio.create_task(read_answer(reader))
        sent = 0
        try:
            while sent < 1024 * MIB:  # the server closes the connection before it has read a gigabyte
                writer.write(b"10000\r\n" + bytes(2**16) + b"\r\n")
                sent += 2**16
                await writer.drain()
                await asyncio.sleep(0.001)
        except ConnectionError:
            pass

        assert (413, f"the body has more than {MIB:,} bytes\n".encode()) == await answered
        assert MIB < sent < 1024 * MIB
        writer.close()


async def test_a_body_that_is_sent_too_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time counts for the whole body: single bytes do not extend it."""
    monkeypatch.setattr(app, "BODY_S_MAX", 0.3)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((HEAD + "content-length: 1000\r\n\r\n").encode())
        answered = asyncio.create_task(read_answer(reader))
        for _ in range(1000):
            if answered.done():
                break
            writer.write(b"\0")
            await asyncio.sleep(0.02)

        assert (408, b"the body has not arrived within 0.3 s\n") == await answered
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"POST /api HT", HEAD.encode(), (HEAD + "content-length: 9\r\n\r\n").encode()])
async def test_a_request_that_does_not_end_closes_its_connection(sent: bytes) -> None:
    """A client that holds a connection without a whole request does not hold it for long."""
    async with serving(request_s=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)

        assert b"" == await read_to_end(reader)
        writer.close()


async def test_a_head_beyond_the_bound_closes_its_connection() -> None:
    """The server would keep all headers in memory, and one of any length."""
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD.encode() + b"x: " + b"y" * (connection.HEAD_BYTES_MAX + 1))

        assert b"" == await read_to_end(reader)
        writer.close()


async def test_an_answer_that_is_not_read_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large answer is held for a bounded time; the call counts until then."""
    monkeypatch.setattr(connection, "ANSWER_S_MAX", 5.0)
    monkeypatch.setattr(app, "CALLS_HELD_MAX", 1)
    texts = ["tiers", TEXT]

    async def refuse_at_length_once(backend: Backend, arguments: Any) -> Any:
        raise Refusal(texts.pop())

    async with serving(refuse_at_length_once) as port:
        with socket.create_connection(("127.0.0.1", port)) as unread:
            unread.sendall(CALL)
            got = len(await asyncio.to_thread(unread.recv, 1))
            statuses = set()
            while 200 not in statuses:  # the first call holds its place until its connection is closed
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(CALL)
                statuses.add((await read_answer(reader))[0])
                writer.close()
                await asyncio.sleep(0.2)
            with suppress(ConnectionError):
                while piece := await asyncio.to_thread(unread.recv, MIB):
                    got += len(piece)

            assert {503, 200} == statuses
            assert got < len(TEXT)
