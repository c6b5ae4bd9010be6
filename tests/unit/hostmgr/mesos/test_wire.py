"""Bytes to and from a Mesos master."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from services.hostmgr.mesos import wire
from services.hostmgr.mesos.wire import EventStream, MesosRefusal, Pipe
from tests.unit.hostmgr.mesos.sockets import ACCEPTED, TIMEOUT_S, Requests, Server, answer, chunk, record, stream_head

Serve = Callable[[socket.socket], None]
RECORDS = [b'{"type":"SUBSCRIBED"}', b"", b'{"type":"HEARTBEAT"}', b"x" * 300]


def until(done: threading.Event) -> Serve:
    """Return a handler that answers nothing."""

    def wait(_: socket.socket) -> None:
        done.wait(TIMEOUT_S)

    return wait


@pytest.fixture
def serve() -> Iterator[Callable[[Serve], Server]]:
    servers: list[Server] = []

    def one(handle: Serve) -> Server:
        servers.append(Server(handle))
        return servers[-1]

    yield one
    for server in servers:
        server.close()


def sending(*pieces: bytes) -> Serve:
    """Answer the first request with these bytes, one packet each, and close."""

    def handle(connection: socket.socket) -> None:
        Requests(connection).next()
        for piece in pieces:
            connection.sendall(piece)

    return handle


def read_all(stream: EventStream) -> list[bytes]:
    """Return all records until the stream ends."""
    found: list[bytes] = []
    is_open = True
    while is_open:
        ready, _, _ = select.select([stream.sock], [], [], TIMEOUT_S)
        assert ready, "the server neither sends nor closes"
        records, is_open = stream.read()
        found += records
    stream.close()
    return found


def open_stream(server: Server) -> EventStream:
    return EventStream(server.address, b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
def test_records_are_cut_wherever_chunks_end(size: int, serve: Callable[[Serve], Server]) -> None:
    """A record may begin and end anywhere in a chunk: the length, the newline and the body can all be torn."""
    body = b"".join(record(r) for r in RECORDS)
    chunks = b"".join(chunk(body[i : i + size]) for i in range(0, len(body), size))

    stream = open_stream(serve(sending(stream_head() + chunks + b"0\r\n\r\n")))

    assert RECORDS == read_all(stream)
    assert (200, "s-1") == (stream.status, stream.headers["mesos-stream-id"])


def test_a_record_may_be_torn_at_every_byte_of_the_wire(serve: Callable[[Serve], Server]) -> None:
    """Whatever a packet holds, the records come out whole."""
    text = stream_head() + b"".join(chunk(record(r)) for r in RECORDS[:3]) + b"0\r\n\r\n"

    for cut in range(1, len(text), 3):
        assert RECORDS[:3] == read_all(open_stream(serve(sending(text[:cut], text[cut:])))), cut


def test_records_before_the_end_are_not_lost(serve: Callable[[Serve], Server]) -> None:
    """The records of a master that dies without a last chunk count, and the stream is over."""
    stream = open_stream(serve(sending(stream_head() + chunk(record(b"said")) + b"5\r\n4\nha")))

    assert [b"said"] == read_all(stream)


def test_a_refused_subscription_has_its_text(serve: Callable[[Serve], Server]) -> None:
    """An answer other than 200 gives no records."""
    stream = open_stream(serve(sending(answer(b"403 Forbidden", b"12\nno"))))

    assert [] == read_all(stream)
    assert (403, b"12\nno") == (stream.status, stream.error)


@pytest.mark.parametrize("garbage", [b"hello\n", b"-5\n12345", b"\n", b"9" * 40, b"x" * 30])
def test_what_is_no_record_breaks_the_stream(garbage: bytes, serve: Callable[[Serve], Server]) -> None:
    """The stream fails instead of buffering without limit."""
    stream = open_stream(serve(sending(stream_head() + chunk(garbage))))

    with pytest.raises(Exception, match=r"callback|record"):
        read_all(stream)
    stream.close()


def test_reading_does_not_wait(serve: Callable[[Serve], Server]) -> None:
    """The result has no records if no data has arrived, and the stream is open."""
    done = threading.Event()
    stream = open_stream(serve(until(done)))

    assert ([], True) == stream.read()
    done.set()
    stream.close()


# The pipe.


def answering(*refused: int, after: int = 1) -> Serve:
    """Answer 202 to every call but the refused ones; answers are sent when ``after`` of them are due."""

    def handle(connection: socket.socket) -> None:
        requests, number, held = Requests(connection), 0, b""
        while requests.next() is not None:
            held += answer(b"400 Bad Request", b"call %d" % number) if number in refused else ACCEPTED
            number += 1
            if number % after == 0:
                connection.sendall(held)
                held = b""

    return handle


def test_answers_come_in_the_order_of_the_calls(serve: Callable[[Serve], Server]) -> None:
    """A refused call in the middle is named, the others are accepted."""
    pipe = Pipe(serve(answering(1, 3)).address)

    answers = pipe.post([b"{}"] * 5, "s")

    assert [None, "HTTP 400: call 1", None, "HTTP 400: call 3", None] == [a and str(a) for a in answers]
    assert [None] == pipe.post([b"{}"], "s")
    pipe.close()


def test_calls_are_pipelined(serve: Callable[[Serve], Server]) -> None:
    """A whole window is sent before the first answer is there."""
    pipe = Pipe(serve(answering(after=wire.PIPELINE_CALLS_MAX)).address)

    assert [None] * wire.PIPELINE_CALLS_MAX == pipe.post([b"{}"] * wire.PIPELINE_CALLS_MAX, "s")
    pipe.close()


def test_any_number_of_calls_passes(serve: Callable[[Serve], Server]) -> None:
    """Calls beyond the window wait for answers, so that no side blocks on a full buffer."""
    count = wire.PIPELINE_CALLS_MAX * 20 + 7
    server = serve(answering(0, count - 1))
    pipe = Pipe(server.address)

    answers = pipe.post([b"x" * 5_000] * count, "s")

    assert [0, count - 1] == [number for number, refusal in enumerate(answers) if refusal]
    assert (count, 1) == (len(answers), server.connections)
    pipe.close()


def test_a_call_larger_than_the_window_passes(serve: Callable[[Serve], Server]) -> None:
    """One call may be larger than all that is otherwise in flight."""
    pipe = Pipe(serve(answering()).address)

    assert [None, None] == pipe.post([b"x" * (wire.PIPELINE_BYTES_MAX * 3), b"{}"], "s")
    pipe.close()


def test_a_connection_that_ends_half_way_is_an_error(serve: Callable[[Serve], Server]) -> None:
    """The error says that the number of delivered calls is unknown."""

    def half(connection: socket.socket) -> None:
        requests = Requests(connection)
        for _ in range(3):
            requests.next()
        connection.sendall(ACCEPTED)

    pipe = Pipe(serve(half).address)

    with pytest.raises(ConnectionError):
        pipe.post([b"{}"] * 3, "s")
    pipe.close()


def test_what_is_no_http_is_an_error(serve: Callable[[Serve], Server]) -> None:
    """A server that speaks something else is as good as none."""
    pipe = Pipe(serve(sending(b"220 smtp ready\r\n")).address)

    with pytest.raises(ConnectionError, match="not an HTTP answer"):
        pipe.post([b"{}"], "s")
    pipe.close()


def test_a_master_that_hangs_is_an_error(serve: Callable[[Serve], Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """The call fails after CALL_TIMEOUT_S."""
    monkeypatch.setattr(wire, "CALL_TIMEOUT_S", 0.05)
    done = threading.Event()
    pipe = Pipe(serve(until(done)).address)

    with pytest.raises(TimeoutError):
        pipe.post([b"{}"], "s")
    done.set()
    pipe.close()


def test_a_call_names_its_stream(serve: Callable[[Serve], Server]) -> None:
    """Mesos refuses calls of a subscription that is over by this header."""
    heads: list[bytes] = []

    def noting(connection: socket.socket) -> None:
        requests = Requests(connection)
        while requests.next() is not None:
            heads.append(requests.head)
            connection.sendall(ACCEPTED)

    pipe = Pipe(serve(noting).address)
    pipe.post([b"{}"], "stream-7")
    pipe.close()

    assert b"\r\nMesos-Stream-Id: stream-7\r\n" in heads[0]


def test_a_refusal_knows_its_status() -> None:
    """The error has the status and the message for callers."""
    refusal = MesosRefusal(503, "No leader elected")

    assert (503, "HTTP 503: No leader elected") == (refusal.status, str(refusal))
