"""Requests as servers read them: compressed ones within bounds, whole ones into messages."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.api.v0.peloton_pb2 import Label
from peloton.errors import InvalidArgument, ResourceExhausted
from services.access.caller import ON_BEHALF_OF, read_person
from services.servers.grpc_bounds import Receive, ReceiveOnThreads
from services.servers.grpc_requests import (
    KEPT_BYTES_MAX,
    SERVER_OPTIONS,
    UNPACKED_BYTES_IN_ALL_MAX,
    UNPACKED_BYTES_MAX,
    Requests,
    RequestsOfThreads,
    UnpackedMemory,
    unpack,
)
from services.servers.grpc_status import ErrorsToStatus

ONE, ALL, EACH, WATCH = "/any/One", "/any/All", "/any/Each", "/any/Watch"
LARGE = Label(key="a", value="b" * (UNPACKED_BYTES_MAX - 64)).SerializeToString()
TOO_LARGE = Label(key="a", value="b" * UNPACKED_BYTES_MAX).SerializeToString()


class Lengths:
    """Each method answers the size of its messages."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def one(request: Label, context: Any) -> bytes:
            return b"%d" % len(request.value)

        async def all_of(requests: AsyncIterator[Label], context: Any) -> bytes:
            return b" ".join([b"%d" % len(request.value) async for request in requests])

        async def each(requests: AsyncIterator[Label], context: Any) -> AsyncIterator[bytes]:
            async for request in requests:
                yield b"%d" % len(request.value)

        async def watch(request: Label, context: Any) -> AsyncIterator[bytes]:
            yield b"%d" % len(request.value)
            await asyncio.Event().wait()

        read: Any = Label.FromString
        return {
            WATCH: grpc.unary_stream_rpc_method_handler(cast(Any, watch), read),
            ONE: grpc.unary_unary_rpc_method_handler(cast(Any, one), read),
            ALL: grpc.stream_unary_rpc_method_handler(cast(Any, all_of), read),
            EACH: grpc.stream_stream_rpc_method_handler(cast(Any, each), read),
        }[details.method]


class LengthsOfThreads:
    def service(self, details: grpc.HandlerCallDetails) -> Any:
        read: Any = Label.FromString
        return grpc.unary_unary_rpc_method_handler(lambda request, _: b"%d" % len(request.value), read)


@pytest.fixture
async def channel() -> AsyncIterator[Any]:
    """Return a channel to a server that has memory for one large compressed request."""
    requests = Requests(UnpackedMemory(UNPACKED_BYTES_MAX))
    server = grpc.aio.server(interceptors=[Receive(), ErrorsToStatus("test"), requests], options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((cast(Any, Lengths()),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


@pytest.fixture
def channel_to_threads() -> Iterator[Any]:
    server = grpc.server(
        ThreadPoolExecutor(2), interceptors=[ReceiveOnThreads(), RequestsOfThreads()], options=SERVER_OPTIONS
    )
    server.add_generic_rpc_handlers((cast(Any, LengthsOfThreads()),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None)


async def test_compressed_requests_are_read(channel: Any) -> None:
    """A server reads requests with and without gzip, whatever the kind of the method."""
    request, packed = LARGE, grpc.Compression.Gzip
    length = b"%d" % len(Label.FromString(LARGE).value)

    assert await channel.unary_unary(ONE)(request, compression=packed) == length
    assert await channel.unary_unary(ONE)(request) == length
    assert await channel.stream_unary(ALL)(iter([request, request]), compression=packed) == length + b" " + length
    assert [one async for one in channel.stream_stream(EACH)(iter([request] * 5), compression=packed)] == [length] * 5


async def test_what_unpacks_to_too_much_is_refused(channel: Any) -> None:
    """A request that is too large when unpacked is refused with the numbers, and without a time to retry."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(ONE)(TOO_LARGE, compression=grpc.Compression.Gzip)

    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.details() == (
        f"a compressed message unpacks to {len(TOO_LARGE):,} bytes, the limit is 8,388,608: send it without "
        f"compression, or in pieces"
    )
    assert "retry-after-ms" not in dict(caught.value.trailing_metadata() or ())


async def test_a_watch_takes_no_memory_from_others(channel: Any) -> None:
    """A watch's compressed request counts until it is read, however long the watch lasts; therefore it has to be a
    small one.
    """
    packed = grpc.Compression.Gzip
    filters = [Label(value="b" * size).SerializeToString() for size in (KEPT_BYTES_MAX - 64, KEPT_BYTES_MAX)]
    watch = channel.unary_stream(WATCH)(filters[0], compression=packed)
    assert await watch.read() == b"%d" % (KEPT_BYTES_MAX - 64)

    length = await channel.unary_unary(ONE)(LARGE, compression=packed)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_stream(WATCH)(filters[1], compression=packed).read()

    assert length == b"%d" % len(Label.FromString(LARGE).value)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "the limit is 524,288: send it without compression" in str(caught.value.details())
    watch.cancel()


async def test_other_compressions_are_refused(channel: Any) -> None:
    """Other compressions than gzip are refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(ONE)(LARGE, compression=grpc.Compression.Deflate)

    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_bytes_that_are_no_message_are_the_callers_error(channel: Any) -> None:
    """The code is INVALID_ARGUMENT, not the UNKNOWN of gRPC."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(ONE)(b"\xff")

    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_server_with_threads_does_the_same(channel_to_threads: Any) -> None:
    """A server with threads reads compressed requests within the bound, and refuses the others."""
    call = channel_to_threads.unary_unary(ONE)
    codes = []
    for message in (TOO_LARGE, b"\xff" * 100):
        with pytest.raises(grpc.RpcError) as caught:
            call(message, compression=grpc.Compression.Gzip)
        codes.append(cast(Any, caught.value).code())

    assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT]
    assert call(LARGE, compression=grpc.Compression.Gzip) == b"%d" % len(Label.FromString(LARGE).value)


def test_compressed_requests_are_bounded_in_all() -> None:
    """A request beyond the bound is refused with a time to retry, and is read when the others are answered."""
    memory, packed = UnpackedMemory(), gzip.compress(bytes(UNPACKED_BYTES_MAX))
    first, *others = (memory.for_unpacked(packed) for _ in range(UNPACKED_BYTES_IN_ALL_MAX // UNPACKED_BYTES_MAX))
    for one in (first, *others):
        one.__enter__()

    with pytest.raises(ResourceExhausted, match=r"33,554,432 bytes and this one has 8,388,608") as caught:
        memory.for_unpacked(packed).__enter__()
    with memory.for_unpacked(b"not compressed"):
        pass
    first.__exit__(None, None, None)
    with memory.for_unpacked(packed):
        pass

    assert caught.value.retry_after_s == 1.0


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(bytes(2**20))[:-4] + (1000).to_bytes(4, "little"),
        gzip.compress(bytes(1000))[:-4] + (2**20).to_bytes(4, "little"),
        gzip.compress(bytes(1000)) + gzip.compress(bytes(1000)),
        gzip.compress(bytes(1000))[:-12] + (1000).to_bytes(4, "little"),
        b"\x1f\x8b",
    ],
    ids=["more than it says", "less than it says", "two of them", "cut off", "nothing"],
)
def test_what_is_not_what_it_says_is_refused(packed: bytes) -> None:
    """No more bytes are unpacked than a message declares, and one with a false size is rejected."""
    with pytest.raises(InvalidArgument, match="a compressed message"):
        unpack(packed)


def test_a_forwarded_call_names_its_user() -> None:
    """The name is percent-encoded, and a call without one has none."""
    assert "ann b" == read_person([("x", "y"), (ON_BEHALF_OF, "ann%20b")])
    assert "" == read_person(None)


def test_a_request_that_does_not_come_frees_its_thread() -> None:
    """A call that waits too long for its request is cancelled, and the next one is answered."""
    receive = ReceiveOnThreads(wait_s=0.1)
    server = grpc.server(ThreadPoolExecutor(1), interceptors=[receive, RequestsOfThreads()], options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((cast(Any, LengthsOfThreads()),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    never = threading.Event()

    def wait() -> Iterator[bytes]:
        never.wait()
        yield b""

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls: Any = channel
        held = calls.stream_unary(ONE).future(wait())
        assert b"0" == calls.unary_unary(ONE)(b"", timeout=20)
        assert grpc.StatusCode.CANCELLED == held.code()
        never.set()
    server.stop(None)
