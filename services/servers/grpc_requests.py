"""Decompresses and reads requests within bounds, before they are passed to a method.

By default gRPC decompresses a message of any size, and 240 KiB may become 240 MiB. The servers here receive messages
compressed and decompress gzip themselves: the size that a message declares is compared with the bounds first, and no
more than the declared size is decompressed. Uncompressed messages pass unchanged.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import grpc
import grpc.aio

from peloton.api.limits import MESSAGE_SIZES
from peloton.api.wire_faults import message_of
from peloton.errors import InvalidArgument, PelotonError, Reason, ResourceExhausted
from peloton.ports import PERSON
from services.access.caller import read_person
from services.servers.grpc_bounds import CONNECTION_OPTIONS, Incoming
from services.servers.grpc_errors import abort
from services.servers.grpc_handlers import AroundCalls, AroundCallsOnThreads, within

log = logging.getLogger(__name__)

UNPACKED_BYTES_MAX = 8 * 2**20
"""Decompressed size of one compressed message; larger ones must be sent uncompressed. In memory a message takes up to
sixty times its bytes.
"""
UNPACKED_BYTES_IN_ALL_MAX = 4 * UNPACKED_BYTES_MAX
"""Decompressed size of all compressed requests in progress together."""
KEPT_BYTES_MAX = 512 * 2**10
"""Decompressed size of a request that is answered with a stream. A watch keeps its request for days, and counts for the
bound on all requests only until it is read. The largest filter fits.
"""
RETRY_AFTER_S = 1.0
READ_AT_ONCE_BYTES_MAX = 2**20

_GZIP = b"\x1f\x8b"
"""First bytes of gzip data. A protobuf message cannot begin with them: they would be a field of an undefined type."""
_SIZE_BYTES = 4
"""Length of the decompressed size at the end of gzip data."""
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_IDENTITY_AND_GZIP = 1 << 0 | 1 << 2  # of gRPC's algorithms; to the others gRPC answers UNIMPLEMENTED

SERVER_OPTIONS = (
    *MESSAGE_SIZES,
    *CONNECTION_OPTIONS,
    ("grpc.per_message_decompression", 0),
    ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_AND_GZIP),
)
"""gRPC options of each server that reads its requests by one of the interceptors here."""


class UnpackedMemory:
    """Counts the decompressed bytes of compressed requests until each is answered or begins a stream. Thread-safe."""

    def __init__(self, bytes_max: int = UNPACKED_BYTES_IN_ALL_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lock = threading.Lock()

    @contextmanager
    def for_unpacked(self, raw: bytes, message_bytes_max: int = UNPACKED_BYTES_MAX) -> Iterator[None]:
        """Reserve the decompressed size of a message. Raises ResourceExhausted when it exceeds a bound."""
        size_bytes = measure_unpacked(raw)
        if size_bytes > message_bytes_max:
            raise ResourceExhausted(
                f"a compressed message unpacks to {size_bytes:,} bytes, the limit is {message_bytes_max:,}: send it "
                f"without compression, or in pieces"
            ).because(Reason.MESSAGE_TOO_LARGE, bytes=size_bytes, limit=message_bytes_max)
        with self._lock:
            if self._bytes + size_bytes > self._bytes_max:
                raise ResourceExhausted(
                    f"compressed requests have unpacked to {self._bytes:,} bytes and this one has {size_bytes:,}, the "
                    f"bound is {self._bytes_max:,}: try again in {RETRY_AFTER_S:.1f} s",
                    RETRY_AFTER_S,
                ).because(Reason.OVERLOADED, rule="unpacked_bytes")
            self._bytes += size_bytes
        try:
            yield
        finally:
            with self._lock:
                self._bytes -= size_bytes


def measure_unpacked(raw: bytes) -> int:
    """Return the decompressed size that a message declares; 0 for an uncompressed one."""
    return int.from_bytes(raw[-_SIZE_BYTES:], "little") if raw.startswith(_GZIP) else 0


def unpack(raw: bytes) -> bytes:
    """Return the message decompressed, to at most its declared size. Raises InvalidArgument."""
    if not raw.startswith(_GZIP):
        return raw
    size_bytes = measure_unpacked(raw)
    unpacker = zlib.decompressobj(_GZIP_FORMAT)
    try:
        message = unpacker.decompress(raw, size_bytes + 1)
    except zlib.error as error:
        raise InvalidArgument(f"a compressed message cannot be unpacked: {error}") from error
    if len(message) != size_bytes or not unpacker.eof or unpacker.unused_data:
        raise InvalidArgument(f"a compressed message says that it unpacks to {size_bytes:,} bytes, and does not")
    return message


def _as_wanted(read: Any, raw: bytes) -> Any:
    """Return the request as a method receives it. Raises InvalidArgument."""
    message = unpack(raw)
    return message if read is None else message_of(read.__self__, message)


class Requests(AroundCalls):
    """Interceptor that receives, decompresses and reads requests. It runs inside Receive, and inside ErrorsToStatus,
    which turns an error into a status.
    """

    def __init__(self, memory: UnpackedMemory | None = None) -> None:
        self._memory = memory or UnpackedMemory()

    def wrap(self, method: str, handler: Any) -> Any:
        read = handler.request_deserializer

        @asynccontextmanager
        async def one(incoming: Incoming, _: Any) -> AsyncIterator[Any]:
            raw = await incoming.read()
            with self._memory.for_unpacked(raw):
                yield await _read(read, raw)

        @asynccontextmanager
        async def keep(incoming: Incoming, _: Any) -> AsyncIterator[Any]:
            raw = await incoming.read()
            with self._memory.for_unpacked(raw, KEPT_BYTES_MAX):
                message = await _read(read, raw)
            yield message

        async def each(raws: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
            async for raw in raws:
                with self._memory.for_unpacked(raw):  # until the next one is requested
                    yield await _read(read, raw)

        def stream(raws: AsyncIterator[bytes], _: Any) -> aclosing[AsyncGenerator[Any, None]]:
            return aclosing(each(raws))

        around = stream if handler.request_streaming else keep if handler.response_streaming else one
        return within(handler, around, None)


async def _read(read: Any, raw: bytes) -> Any:
    """Decompress and read a request; a large one in a thread, so that other calls proceed meanwhile."""
    if len(raw) > READ_AT_ONCE_BYTES_MAX or raw.startswith(_GZIP):
        return await asyncio.to_thread(_as_wanted, read, raw)
    return _as_wanted(read, raw)


class RequestsOfThreads(AroundCallsOnThreads):
    """Interceptor of a server with threads, whose methods are all unary, inside ReceiveOnThreads: an error becomes the
    status of the call.
    """

    def __init__(self) -> None:
        self._memory = UnpackedMemory()

    def wrap(self, method: str, handler: Any) -> Any:
        read = handler.request_deserializer

        def answer(receive: Callable[[], bytes], context: Any) -> Any:
            PERSON.set(read_person(context.invocation_metadata()))
            try:
                raw = receive()
                with self._memory.for_unpacked(raw):
                    return handler.unary_unary(_as_wanted(read, raw), context)
            except PelotonError as error:
                abort(context, error)
            except Exception:
                name = method.rpartition("/")[2]
                log.exception("%s failed", name)
                context.abort(grpc.StatusCode.INTERNAL, f"{name} failed; the server's log says why")

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(answer, None, handler.response_serializer)
