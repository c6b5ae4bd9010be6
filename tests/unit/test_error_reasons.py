"""Errors have reasons, which travel in the details of a gRPC status; clients compare them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from peloton.api import error_details
from peloton.api.error_details import Details, details_of, encode, reason_of
from peloton.api.limits import is_connection_failure, was_never_sent
from peloton.client.watching import is_overflow
from peloton.errors import (
    ERRORS,
    METADATA_CHARS_MAX,
    Aborted,
    Internal,
    NotFound,
    PelotonError,
    Reason,
    ResourceExhausted,
    Unavailable,
)
from services.api.forward import relay
from services.api.v1.ids import prefix_error
from services.servers.grpc_bounds import ReceiveOnThreads
from services.servers.grpc_errors import DETAILS_BYTES_MAX, from_grpc, trailing_of
from services.servers.grpc_requests import RequestsOfThreads
from services.servers.grpc_status import ErrorsToStatus
from services.web.faults import refusal_of

HEADERS_BYTES_MAX = 8 * 1024
MISSING = ("POOL_NOT_FOUND", {"pool": "/a/b"})


def missing_pool() -> PelotonError:
    return NotFound("resource pool not found").because(Reason.POOL_NOT_FOUND, pool="/a/b")


class Refusing:
    """A method of a server with an event loop that raises an error."""

    def __init__(self, make: Callable[[], Exception]) -> None:
        self._make = make

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def refuse(request: bytes, context: Any) -> bytes:
            raise self._make()

        return grpc.unary_unary_rpc_method_handler(cast(Any, refuse))


class Relaying:
    """A method that forwards to another server."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def forward(request: bytes, context: Any) -> bytes:
            return await relay(self._channel, "/any/Refuse", request, context, "the leader")

        return grpc.unary_unary_rpc_method_handler(cast(Any, forward))


class ThreadRefusing:
    """A method of a server with threads: an empty request is refused, and any other one meets a bug."""

    def refuse(self, request: bytes, context: Any) -> bytes:
        raise KeyError(request) if request else missing_pool()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(cast(Any, self.refuse))


@asynccontextmanager
async def serving(handler: Any) -> AsyncIterator[str]:
    server = grpc.aio.server(interceptors=[ErrorsToStatus("test")])
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def call(address: str) -> grpc.aio.AioRpcError:
    """Return the error of a call."""
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await cast(Any, channel.unary_unary("/any/Refuse"))(b"")
    return caught.value


@contextmanager
def serving_by_threads() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1), interceptors=[ReceiveOnThreads(), RequestsOfThreads()])
    server.add_generic_rpc_handlers((cast(Any, ThreadRefusing()),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


REASONS = {str(reason): reason for reason in Reason}


def test_each_class_has_a_reason_of_its_own_code() -> None:
    """The general reason of each class is in the table, with the code of the class."""
    assert {code: REASONS[error.reason].code for code, error in ERRORS.items()} == {code: code for code in ERRORS}
    assert {one.code for one in Reason} == set(ERRORS)


async def test_a_reason_arrives_with_its_metadata() -> None:
    """Code and text are as before; reason and metadata are in the details, which hold code and text, too."""
    async with serving(Refusing(missing_pool)) as address:
        error = await call(address)

    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "resource pool not found")
    assert details_of(error.trailing_metadata()) == Details(*MISSING)
    status = Status.FromString(dict(error.trailing_metadata())[error_details.KEY])
    assert (status.code, status.message) == (5, "resource pool not found")


def test_a_reason_arrives_from_a_server_with_threads() -> None:
    """The host manager's server has threads; a client of the role raises the error with its reason."""
    with serving_by_threads() as address, grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            cast(Any, channel.unary_unary("/any/Refuse"))(b"")
        error = caught.value

    translated = from_grpc(error, "host manager")
    assert (type(translated), translated.reason, translated.metadata) == (NotFound, *MISSING)


def test_a_bug_of_a_server_with_threads_is_internal() -> None:
    """The client reads the name of the method, and the log has the stack."""
    with serving_by_threads() as address, grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            cast(Any, channel.unary_unary("/any/Refuse"))(b"x")
        error: Any = caught.value

    expected = (grpc.StatusCode.INTERNAL, "Refuse failed; the server's log says why")
    assert expected == (error.code(), error.details())


def test_a_prefixed_error_keeps_its_reason() -> None:
    """The v1 API prefixes texts of errors as the original does; reason and metadata stay."""
    with pytest.raises(NotFound) as caught, prefix_error("fail to get job"):
        raise missing_pool()

    assert (caught.value.reason, caught.value.metadata) == MISSING


async def test_a_forwarded_call_keeps_its_reason() -> None:
    """The api forwards calls of other roles, with the details of their refusals."""
    async with (
        serving(Refusing(missing_pool)) as other,
        grpc.aio.insecure_channel(other) as channel,
        serving(Relaying(channel)) as address,
    ):
        error = await call(address)

    assert details_of(error.trailing_metadata()) == Details(*MISSING)


async def test_a_time_to_retry_is_in_the_details() -> None:
    """RESOURCE_EXHAUSTED that may be repeated has a RetryInfo, and the older metadata."""
    async with serving(Refusing(lambda: ResourceExhausted("full", 1.5).because(Reason.QUEUE_FULL, rule="jobs"))) as at:
        error = await call(at)

    assert details_of(error.trailing_metadata()) == Details("QUEUE_FULL", {"rule": "jobs"}, 1.5)
    assert dict(error.trailing_metadata())["retry-after-ms"] == "1500"


async def test_an_unexpected_error_has_a_reason() -> None:
    """A bug is INTERNAL_ERROR; an error with another status on the wire keeps that status and its code."""
    async with serving(Refusing(lambda: ValueError("x"))) as address:
        internal = await call(address)
    async with serving(Refusing(lambda: Aborted("not ended", status="INTERNAL"))) as address:
        aborted = await call(address)

    assert (internal.code(), reason_of(internal)) == (grpc.StatusCode.INTERNAL, Internal.reason)
    assert (aborted.code(), reason_of(aborted)) == (grpc.StatusCode.INTERNAL, Reason.STATE_CONFLICT)
    assert dict(aborted.trailing_metadata())["peloton-code"] == "ABORTED"


@pytest.mark.parametrize("letter", ["n", "%", "漢"])
def test_the_longest_error_fits_a_header(letter: str) -> None:
    """Text, details and metadata together stay below the bound of clients."""
    error = Unavailable(letter * 100_000).because(Reason.LOCKED_DOWN, kind=letter * 100_000)
    details_bytes = sum(len(value) * 4 / 3 for key, value in trailing_of(error))

    assert len(error.metadata["kind"]) == METADATA_CHARS_MAX
    assert DETAILS_BYTES_MAX + details_bytes + 200 < HEADERS_BYTES_MAX


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no status",
        Status(code=5).SerializeToString(),
        encode(5, "", Details("X")).replace(error_details.DOMAIN.encode(), b"another"[:7]),
    ],
)
def test_an_error_without_our_details_has_no_reason(value: bytes) -> None:
    """An older server, or a proxy with reasons of its own, leaves the decision to the code."""
    assert details_of([(error_details.KEY, value)] if value else []) == Details()


class Call:
    """An error as a client sees it."""

    def __init__(self, text: str, details: Details | None, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        self._text, self._details, self._code = text, details, code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._text

    def trailing_metadata(self) -> list[tuple[str, bytes]]:
        return [] if self._details is None else [(error_details.KEY, encode(14, "", self._details))]


def test_only_the_library_means_a_missing_connection() -> None:
    """An UNAVAILABLE with a reason is of a server, whatever it quotes."""
    text = "failed to connect to all addresses"

    assert is_connection_failure(Call(text, None))
    assert was_never_sent(Call(text, None))
    assert not is_connection_failure(Call(text, Details(Unavailable.reason)))
    assert not was_never_sent(Call(text, Details(Unavailable.reason)))


@pytest.mark.parametrize(
    ("details", "resumes"),
    [(None, True), (Details(Reason.WATCH_OVERFLOW), True), (Details(Reason.STATE_CONFLICT), False)],
)
def test_the_code_decides_for_an_error_without_a_reason(details: Details | None, resumes: bool) -> None:
    """An older server gives no reason: a client resumes a watch that was ABORTED. It does not for another reason."""
    assert is_overflow(cast(Any, Call("event overflow", details, grpc.StatusCode.ABORTED))) is resumes


async def test_json_over_http_shows_the_details() -> None:
    """The gateway returns the messages as Connect defines details, readable below ``debug``."""
    async with serving(Refusing(lambda: ResourceExhausted("full", 2.0).because(Reason.QUEUE_FULL, rule="jobs"))) as at:
        body = refusal_of(await call(at)).content()

    info, retry = body["details"]
    assert (body["code"], body["message"]) == ("resource_exhausted", "full")
    assert (info["type"], info["debug"]) == (
        ErrorInfo.DESCRIPTOR.full_name,
        {"reason": "QUEUE_FULL", "domain": "peloton", "metadata": {"rule": "jobs"}},
    )
    assert (retry["type"], retry["debug"]) == ("google.rpc.RetryInfo", {"retryDelay": "2s"})
