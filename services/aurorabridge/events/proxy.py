"""Client of a Kafka REST proxy: one connection per bucket, kept alive, with one POST at a time."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

import httptools

from peloton.errors import InvalidArgument
from peloton.model.text import quote

TIMEOUT_S = 60.0
ANSWER_BYTES_MAX = 2**20
READ_BYTES = 2**16
HEADERS = {"Producer-Type": "reliable", "Content-Type": "application/vnd.kafka.binary.v1"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


class ProxyUrl:
    """Address of a topic in the proxy. Raises InvalidArgument."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or _DEFAULT_PORTS[parts.scheme]
        except (KeyError, ValueError):
            parts, port = urlsplit(""), 0
        if not parts.hostname:
            raise InvalidArgument(f"address of the Kafka REST proxy {quote(url)}: want http(s)://HOST:PORT/PATH")
        self.host, self.port, self.is_secure = parts.hostname, port, parts.scheme == "https"
        lines = [
            f"POST {parts.path or '/'}{f'?{parts.query}' if parts.query else ''} HTTP/1.1",
            f"Host: {parts.netloc}",
        ]
        self.head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in HEADERS.items())]).encode()


class _Answer:
    """Head of an answer; its body is dropped. The parser calls the methods."""

    def __init__(self) -> None:
        self.status = 0
        self.is_complete = self.stays_open = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.stays_open = self._parser.should_keep_alive()
        self.is_complete = True


class Proxy:
    def __init__(self, url: ProxyUrl) -> None:
        self._url = url
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> int:
        """Return the status of the proxy's answer. Raises OSError, also after TIMEOUT_S."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if self._open is None:
                    url = self._url
                    self._open = await asyncio.open_connection(url.host, url.port, ssl=url.is_secure or None)
                reader, writer = self._open
                writer.write(self._url.head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
                answer = await _read(reader)
        except BaseException:
            self.close()
            raise
        if not answer.stays_open:
            self.close()
        return answer.status

    def close(self) -> None:
        """Close the connection; a request without its answer may have been received."""
        if self._open is not None:
            with contextlib.suppress(RuntimeError):  # of a loop that is closed
                self._open[1].close()
            self._open = None


async def _read(reader: asyncio.StreamReader) -> _Answer:
    answer, received = _Answer(), 0
    while not answer.is_complete:
        data = await reader.read(READ_BYTES)
        received += len(data)
        if not data or received > ANSWER_BYTES_MAX:
            raise ConnectionError(
                "the Kafka REST proxy closed the connection within its answer, or the answer is too long"
            )
        try:
            answer.feed(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the Kafka REST proxy sent no HTTP answer: {error}") from None
    return answer
