"""Server-sent events: frames, resumption, beats, and bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest
from starlette.requests import Request

from services.access.forwarded import FORWARDED
from services.aurorabridge.events import stream as module
from services.aurorabridge.events.stream import Streams
from tests.unit.aurorabridge.event_doubles import JOB, Log, pod, task_of, until


class Tasks:
    of = staticmethod(task_of)


class Client:
    """A client over ASGI; ``is_reading`` cleared: it does not take what is sent."""

    def __init__(self, streams: Streams, last_id: str | None = None, address: str = "10.0.0.1") -> None:
        headers = [(b"last-event-id", last_id.encode())] if last_id is not None else []
        self.scope = {"type": "http", "method": "GET", "path": "/events", "headers": headers, "query_string": b""}
        self.scope["client"] = (address, 4711)
        self.streams = streams
        self.status = 0
        self.text = ""
        self.is_ended = False
        self.is_reading = asyncio.Event()
        self.is_reading.set()
        self.leaves = asyncio.Event()

    async def run(self) -> None:
        response = await self.streams.answer(Request(self.scope))
        await response(self.scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.is_reading.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.text += message["body"].decode()
            self.is_ended = not message.get("more_body", False)

    @property
    def frames(self) -> list[dict[str, str]]:
        pieces = self.text.split("\n\n")[:-1]
        return [dict(line.split(": ", 1) for line in piece.splitlines() if line[0] != ":") for piece in pieces]

    @property
    def events(self) -> list[tuple[str, str, str]]:
        """Return id, task and status of each event."""
        found = []
        for frame in self.frames:
            if "data" in frame:
                task = orjson.loads(frame["data"])["task"]
                found.append((frame["id"], task["assignedTask"]["taskId"], task["status"]))
        return found


async def test_pages_of_browsers_are_refused() -> None:
    """A page of another site, which a browser names, gets nothing."""
    client = Client(streams_of(Log()))
    client.scope["headers"] = [(b"origin", b"http://elsewhere")]
    await client.run()

    assert 403 == client.status


def streams_of(log: Log, **bounds: float) -> Streams:
    return Streams(cast(Any, log), cast(Any, Tasks), **bounds)


@asynccontextmanager
async def open_stream(client: Client) -> AsyncIterator[asyncio.Task[None]]:
    running = asyncio.create_task(client.run())
    try:
        yield running
    finally:
        client.leaves.set()
        await running


async def test_stream_begins_with_the_present() -> None:
    """A client without an id gets the present revision, and then each change with its revision."""
    log = Log()
    log.append(pod(0))
    client = Client(streams_of(log))
    async with open_stream(client):
        await until(lambda: client.frames)
        log.append(pod(1, "INITIALIZED"), pod(1, "FAILED"))
        await until(lambda: len(client.frames) == 3)

    assert [{"id": "1"}, {"id": "2"}] == client.frames[:2]
    assert [("3", f"{JOB}-1-1", "FAILED")] == client.events
    assert "task" == client.frames[2]["event"]
    assert 200 == client.status


async def test_stream_resumes_after_an_id() -> None:
    """A client that names its last id misses nothing; a watch that ends makes it resume."""
    log = Log()
    log.append(pod(0), pod(1), pod(2))
    log.ends_after = [1]
    streams = streams_of(log)
    first = Client(streams, "1")
    await first.run()
    second = Client(streams, first.events[-1][0])
    async with open_stream(second):
        await until(lambda: second.events)

    assert first.is_ended
    assert [("2", f"{JOB}-1-1", "RUNNING"), ("3", f"{JOB}-2-1", "RUNNING")] == [*first.events, *second.events]


@pytest.mark.parametrize(("last_id", "status"), [("2", 410), ("x", 400), ("-1", 400), ("9" * 20, 400), ("²", 400)])
async def test_ids_that_no_stream_can_resume_from(last_id: str, status: int) -> None:
    """An id whose changes are kept no more is gone, and one that is no id is refused."""
    log = Log()
    log.oldest = 9
    client = Client(streams_of(log), last_id)
    await client.run()

    assert (status, True) == (client.status, client.is_ended)


async def test_beats_of_an_idle_stream() -> None:
    """Comments keep an idle connection alive."""
    client = Client(streams_of(Log(), beat_s=0.005))
    async with open_stream(client):
        await until(lambda: client.text.count(": beat\n\n") > 2)


async def test_slow_client_is_disconnected() -> None:
    """A client that takes nothing for a while ends, reads no watch meanwhile, and makes room for another one."""
    log = Log()
    streams = streams_of(log, slow_s=0.05)
    client = Client(streams)
    async with open_stream(client) as running:
        await until(lambda: client.frames)
        client.is_reading.clear()
        log.append(*(pod(n) for n in range(1_000)))
        await until(running.done)

    assert log.read < 10
    assert 0 == streams.open_count


async def test_number_of_streams_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more client is refused until another one leaves."""
    monkeypatch.setattr(module, "CLIENTS_MAX", 1)
    streams = streams_of(Log())
    first, second, third = Client(streams), Client(streams), Client(streams)
    async with open_stream(first):
        await until(lambda: first.frames)
        await second.run()
    async with open_stream(third):
        await until(lambda: third.frames)

    assert (200, 503, 200) == (first.status, second.status, third.status)


async def test_one_client_has_a_share_of_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another stream of a client is refused until one of them ends; clients at other addresses, or with credentials,
    have shares of their own.
    """
    monkeypatch.setattr(module, "PER_CLIENT_MAX", 1)
    streams = streams_of(Log())
    first, second, third = Client(streams), Client(streams), Client(streams)
    other, known = Client(streams, address="10.0.0.2"), Client(streams)
    async with open_stream(first), open_stream(other):
        await until(lambda: first.frames and other.frames)
        await second.run()
        FORWARDED.set((("authorization", "Bearer a"),))
        async with open_stream(known):
            await until(lambda: known.frames)
        FORWARDED.set(())
    async with open_stream(third):
        await until(lambda: third.frames)

    assert [200, 429, 200, 200, 200] == [one.status for one in (first, second, third, other, known)]


async def test_closed_bridge_ends_its_streams() -> None:
    """A bridge that stops ends each stream properly, so that clients resume at another one."""
    streams = streams_of(Log())
    client = Client(streams)
    async with open_stream(client) as running:
        await until(lambda: client.frames)
        streams.close()
        await until(running.done)

    assert client.is_ended
