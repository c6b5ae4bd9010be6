"""The scheduler of these tests leaves no connection behind."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.lab.mesos.scheduler import WAIT_S, request


async def test_a_call_that_is_cancelled_closes_its_connection() -> None:
    """A cancelled call closes its connection, for example if a scheduler closes while it acknowledges a status."""
    called, closed = asyncio.Event(), asyncio.Event()

    async def wait_for_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        called.set()
        await reader.read()
        closed.set()
        writer.close()

    async with asyncio.timeout(WAIT_S), await asyncio.start_server(wait_for_the_end, "127.0.0.1", 0) as server:
        call = asyncio.create_task(request(server.sockets[0].getsockname()[1], "GET", "/"))
        await called.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await closed.wait()


def test_a_connection_left_open_fails_the_test_that_opened_it() -> None:
    """The test fails at the end of its event loop, not when the garbage collector runs."""
    left: list[asyncio.StreamWriter] = []

    async def leave() -> None:
        async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            left.append(writer)

    with pytest.raises(AssertionError, match="connections left open"):
        asyncio.run(leave())
