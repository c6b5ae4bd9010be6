"""A small HTTP client that shows everything: status, headers, bytes, and the records of a stream as they come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

DATE = re.compile(r"Date: [^\r]*")
# A raw exchange counts as over after so many seconds without a byte.
QUIET_S = 0.3


async def exchange(port: int, data: bytes) -> bytes:
    """Send exact bytes and collect whatever comes back until the peer closes or falls silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    result = b""
    try:
        writer.write(data)
        while piece := await _next(reader):
            result += piece
    except ConnectionError:
        pass
    finally:
        writer.close()
    return result


async def _next(reader: asyncio.StreamReader) -> bytes:
    """Empty when the peer has closed or has fallen silent."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(reader.read(65536), QUIET_S)
    return b""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """Parsed JSON, else text."""
        if self.headers.get("Content-Type", "").startswith("application/json"):
            return orjson.loads(self.body)
        return self.body.decode("utf-8")


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    return int(head[0].split(" ", 2)[1]), headers


def encode(method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + f"\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


async def call(port: int, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(encode(method, path, {**headers, "Connection": "close"}, body))
        status, answered = await read_head(reader)
        return Answer(status, answered, await reader.read())
    finally:
        writer.close()


class Stream:
    """One SUBSCRIBE; `on_event` is called with each record, then with None when the stream ends."""

    def __init__(self, on_event: Callable[[Any], None]) -> None:
        self._on_event = on_event
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self.closed = False
        self._writer: asyncio.StreamWriter | None = None
        self._job: asyncio.Task[None] | None = None

    async def open(self, port: int, path: str, headers: dict[str, str], body: bytes) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        self._writer.write(encode("POST", path, headers, body))
        self.status, self.headers = await read_head(reader)
        if self.status != 200:
            self.body = await reader.readexactly(int(self.headers["Content-Length"]))
            self._writer.close()
            return
        self._job = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        pending = b""
        try:
            while True:
                size = int(await reader.readuntil(b"\r\n"), 16)
                data = await reader.readexactly(size + 2)
                if size == 0:
                    self.ended = True
                    break
                pending += data[:-2]
                while b"\n" in pending:
                    length, rest = pending.split(b"\n", 1)
                    if len(rest) < int(length):
                        break
                    self._on_event(orjson.loads(rest[: int(length)]))
                    pending = rest[int(length) :]
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        self.closed = True
        self._on_event(None)

    async def close(self) -> None:
        self.closed = True
        if self._writer is not None:
            self._writer.close()
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)
