"""Bounded reading of request bodies and lines, and the headers that Connect defines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager

from starlette.requests import Request

from peloton.model.text import quote
from services.servers.places import Places
from services.web.faults import Refusal, too_busy

BODY_BYTES_MAX = 4 * 2**20
"""Maximum size of a request, and of each line of a streamed one. Larger messages require gRPC."""
BODIES_BYTES_MAX = 8 * BODY_BYTES_MAX
"""Maximum size of all requests in progress; a streamed one counts as one full body."""
READERS_MAX = 100
"""Bodies that are being read; one more ends the reading of the oldest."""
BODY_S_MAX = 60.0
"""Time for a whole body, in seconds; a streamed one has that of its call."""
READ_S_MAX = 30.0
"""Timeout between two pieces of a body, in seconds."""
TIMEOUT_S_MAX = 600.0
"""Maximum value of the header Connect-Timeout-Ms, in seconds."""
RETRY_AFTER_S = 1.0


class Bodies:
    """Reader of bodies with a common bound on their total size."""

    def __init__(self) -> None:
        self._held_bytes = 0
        self._readers = Places(READERS_MAX, "bodies that are being read", "bodies")

    @contextmanager
    def memory(self) -> Iterator[BodyMemory]:
        """Return a reservation for one request until it is answered."""
        memory = BodyMemory(self)
        try:
            yield memory
        finally:
            memory.release()

    @contextmanager
    def reading(self, memory: BodyMemory) -> Iterator[None]:
        """Read a body. Raises ResourceExhausted when it has to give way to a later one."""
        with self._readers.hold(memory.release):
            yield

    def release(self, size_bytes: int) -> None:
        self._held_bytes -= size_bytes

    def hold(self, size_bytes: int) -> None:
        """Reserve memory, which bodies that are not read yet give up, the oldest first. Raises Refusal."""
        while self._held_bytes + size_bytes > BODIES_BYTES_MAX and self._readers.free_oldest():
            pass
        if self._held_bytes + size_bytes > BODIES_BYTES_MAX:
            text = f"requests in progress have {self._held_bytes:,} bytes, the bound is {BODIES_BYTES_MAX:,}"
            raise too_busy(text, RETRY_AFTER_S)
        self._held_bytes += size_bytes


class BodyMemory:
    """Memory reserved by one request."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.bytes = 0

    def hold(self, size_bytes: int) -> None:
        self._bodies.hold(size_bytes)
        self.bytes += size_bytes

    def release(self) -> None:
        self._bodies.release(self.bytes)
        self.bytes = 0

    async def body(self, request: Request) -> bytes:
        """Read the whole body. Raises Refusal."""
        pieces = []
        try:
            async with asyncio.timeout(BODY_S_MAX), aclosing(_pieces(request)) as read:
                with self._bodies.reading(self):
                    async for piece in read:
                        self.hold(len(piece))
                        if self.bytes > BODY_BYTES_MAX:
                            raise _too_large("the body")
                        pieces.append(piece)
        except TimeoutError:
            text = f"the body has not come within {BODY_S_MAX:g} s"
            raise Refusal("deadline_exceeded", text, status=408) from None
        return b"".join(pieces)

    async def lines(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the non-empty lines of the body without their line ends. Raises Refusal."""
        self.hold(BODY_BYTES_MAX)
        kept = bytearray()
        async with aclosing(_pieces(request)) as read:
            async for piece in read:
                *whole, rest = piece.split(b"\n")
                for end in whole:
                    kept += end
                    if kept.strip():
                        yield bytes(kept)
                    kept.clear()
                kept += rest
                if len(kept) > BODY_BYTES_MAX:
                    raise _too_large("a line")
        if kept.strip():
            yield bytes(kept)


async def _pieces(request: Request) -> AsyncGenerator[bytes, None]:
    pieces = request.stream()
    while True:
        try:
            async with asyncio.timeout(READ_S_MAX):
                piece = await anext(pieces, None)
        except TimeoutError:
            text = f"nothing of the body has come for {READ_S_MAX:g} s"
            raise Refusal("deadline_exceeded", text, status=408) from None
        if piece is None:
            return
        yield piece


def _too_large(what: str) -> Refusal:
    text = f"{what} has more than {BODY_BYTES_MAX:,} bytes: send what is so large over gRPC, or in pieces"
    return Refusal("resource_exhausted", text, status=413)


def check_headers(request: Request, media_type: str) -> None:
    """Check the media type, encoding and protocol version of a request. Raises Refusal."""
    headers = request.headers
    given = headers.get("content-type", "")
    kind, _, rest = given.partition(";")
    charset = rest.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != media_type or charset not in ("", "utf-8"):
        text = f"the content type is {quote(given)}, want {media_type}"
        raise Refusal("invalid_argument", text, status=415, headers={"Accept-Post": media_type})
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        text = f"the body has the encoding {quote(encoding)}: send it as it is"
        raise Refusal("invalid_argument", text, status=415, headers={"Accept-Encoding": "identity"})
    version = headers.get("connect-protocol-version", "1")
    if version != "1":
        raise Refusal("invalid_argument", f"Connect-Protocol-Version is {quote(version)}, want '1'")


def timeout_of(request: Request, default_s: float | None) -> float | None:
    """Return the timeout of the call in seconds, None for no bound. Raises Refusal."""
    text = request.headers.get("connect-timeout-ms")
    if text is None:
        return default_s
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    if not is_number or not 0 < int(text) <= TIMEOUT_S_MAX * 1000:
        wanted = f"want milliseconds from 1 to {TIMEOUT_S_MAX * 1000:.0f}"
        raise Refusal("invalid_argument", f"Connect-Timeout-Ms is {quote(text)}, {wanted}")
    return int(text) / 1000
