"""Reports of latencies over HTTP, well-formed and malformed."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from peloton.model.advice import PodLatency
from peloton.model.ids import JobId
from services.hostmgr.latency_endpoint import BODY_BYTES_MAX, CONNECTIONS_MAX, LINES_MAX, LatencyEndpoint
from services.hostmgr.latency_reports import LatencyReports
from tests.conformance.hostmgr.world import wait

JOB = JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000d")
LATE_S = 0.2


def line(instance: int = 0, **changed: Any) -> dict[str, Any]:
    return {"pod": f"{JOB}-{instance}-1", "p50_ms": 4, "p95_ms": 20.5, "p99_ms": 80, "requests": 7} | changed


def lines(*rows: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows) + b"\n"


class World:
    def __init__(self, request_s_max: float = 10.0, pods_max: int = 100_000) -> None:
        self.reports = LatencyReports(lambda: 0.0, pods_max)
        self.endpoint = LatencyEndpoint("127.0.0.1", 0, self.reports, request_s_max)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.endpoint.port), timeout=30)

    def send(self, whole: bytes) -> tuple[int, str]:
        """Send bytes and return status and text of the answer."""
        with self.connect() as connection:
            connection.sendall(whole)
            return answer(connection)

    def post(self, body: bytes, path: str = "/v1/latencies") -> tuple[int, str]:
        return self.send(f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def answer(connection: socket.socket) -> tuple[int, str]:
    found = b""
    while piece := connection.recv(65_536):
        found += piece
    head, _, text = found.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, text.decode().strip()


@pytest.fixture
def make() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def new(**how: Any) -> World:
        made.append(World(**how))
        return made[-1]

    yield new
    for world in made:
        world.endpoint.stop()


def test_a_report_is_kept(make: Callable[..., World]) -> None:
    """Empty lines are ignored, and the last line of a pod counts, whether or not it names the run."""
    world = make()

    answered = world.post(b"\n" + lines(line(), line(3), line(p99_ms=90, pod=f"{JOB}-0")) + b"\r\n")

    assert (200, "2 pods") == answered
    assert {JOB: {0: PodLatency(4, 20.5, 90, 7), 3: PodLatency(4, 20.5, 80, 7)}} == world.reports.pop_news()
    assert (200, "0 pods") == world.post(b"")


WANT = "line 2: want an object with pod, p50_ms, p95_ms, p99_ms and requests, and nothing else"
MILLISECONDS = "want a number of milliseconds from 0 to 3600000"


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (b"{", "line 2 is no JSON"),
        (b"\xff\xfe", "line 2 is no JSON"),
        (b"[" * 100_000, "line 2 is no JSON"),
        (b"1" * 10_000, "line 2 is no JSON"),
        (b"[]", WANT),
        (b"{}", WANT),
        (lines(line(more=1)), WANT),
        (lines(line(p50_ms=True)), f"line 2: p50_ms: {MILLISECONDS}"),
        (lines(line(p99_ms=float("nan"))), f"line 2: p99_ms: {MILLISECONDS}"),
        (lines(line(p99_ms=float("inf"))), f"line 2: p99_ms: {MILLISECONDS}"),
        (lines(line(p99_ms=10**400)), f"line 2: p99_ms: {MILLISECONDS}"),
        (lines(line(p50_ms=-1)), f"line 2: p50_ms: {MILLISECONDS}"),
        (lines(line(p95_ms="1")), f"line 2: p95_ms: {MILLISECONDS}"),
        (lines(line(p50_ms=30)), "line 2: want p50_ms <= p95_ms <= p99_ms, not 30.0, 20.5, 80.0"),
        (lines(line(requests=1.5)), "line 2: requests: want a whole number from 0 to 1000000000000"),
        (lines(line(requests=-1)), "line 2: requests: want a whole number from 0 to 1000000000000"),
        (lines(line(pod="web")), "line 2: pod: want JOB-INSTANCE or JOB-INSTANCE-RUN"),
        (lines(line(pod=[])), "line 2: pod: want JOB-INSTANCE or JOB-INSTANCE-RUN"),
        (lines(line(pod=f"{JOB}")), "line 2: pod: want JOB-INSTANCE or JOB-INSTANCE-RUN"),
        (lines(line(pod=f"{JOB}-01")), "line 2: pod: want JOB-INSTANCE or JOB-INSTANCE-RUN"),
        (lines(line(pod=f"{JOB}-1-{'9' * 5_000}")), "line 2: pod: want JOB-INSTANCE or JOB-INSTANCE-RUN"),
        (lines(line(pod=f"{JOB.upper()}-1-1")), "line 2: pod: want JOB-INSTANCE or JOB-INSTANCE-RUN"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_taken(make: Callable[..., World], bad: bytes, fault: str) -> None:
    """The good line before the bad one is dropped too."""
    world = make()

    assert (400, fault) == world.post(lines(line()) + bad)
    assert set() == world.reports.jobs()


def test_too_much_is_refused_with_the_numbers(make: Callable[..., World]) -> None:
    """Limits hold for the bytes, before they are read, for the lines, and for the pods that are kept."""
    world = make(pods_max=2)

    assert (413, "1048577 bytes, at most 1048576 are taken at once") == world.post(b" " * (BODY_BYTES_MAX + 1))
    assert (413, "10001 lines, at most 10000 are taken at once") == world.post(b"1\n" * (LINES_MAX + 1))
    assert (200, "2 pods") == world.post(lines(line(0), line(1)))
    refused = "latencies of 2 pods are kept, of 1 more are reported: at most 2"
    assert (429, refused) == world.post(lines(line(0), line(2)))


@pytest.mark.parametrize(
    ("whole", "status"),
    [
        (b"POST /v1/latencies HTTP/1.1\r\n\r\n", 400),
        (b"POST /v1/latencies HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/latencies HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", 400),
        (b"POST /v1/latencies HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /v1/latencies HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", 413),
        (b"POST /other HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 404),
        (b"GET /v1/latencies HTTP/1.1\r\n\r\n", 501),
        (b"rubbish\r\n\r\n", 400),
        (b"POST /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"POST /v1/latencies HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
    ],
)
def test_what_is_no_report_is_refused(make: Callable[..., World], whole: bytes, status: int) -> None:
    """A malformed request is answered with its HTTP status; the next report is accepted."""
    world = make()

    assert status == world.send(whole)[0]
    assert (200, "1 pods") == world.post(lines(line()))


def test_a_slow_client_is_cut_off(make: Callable[..., World]) -> None:
    """The connection is closed after the timeout, even if a byte is sent now and then; other
    clients are served meanwhile.
    """
    world = make(request_s_max=LATE_S)
    head = b"POST /v1/latencies HTTP/1.1\r\nContent-Length: 100\r\n\r\n"
    with world.connect() as slow, world.connect() as silent:
        slow.sendall(head)
        assert (200, "1 pods") == world.post(lines(line()))
        slow.settimeout(0.01)
        assert wait(lambda: drip(slow), "the end").startswith(b"HTTP/1.0 408 ")
        assert (0, "") == answer(silent)


def drip(connection: socket.socket) -> bytes:
    """Send a byte, and return the received bytes."""
    with suppress(OSError):
        connection.sendall(b"x")
    with suppress(TimeoutError):
        return connection.recv(65_536)
    return b""


def test_a_request_that_ends_early_is_refused(make: Callable[..., World]) -> None:
    """The answer has the number of bytes received."""
    world = make()
    with world.connect() as connection:
        connection.sendall(b"POST /v1/latencies HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc")
        connection.shutdown(socket.SHUT_WR)

        assert (400, "3 of 100 bytes came") == answer(connection)


def test_connections_at_a_time_are_bounded(make: Callable[..., World]) -> None:
    """A report beyond the bound takes the place of the oldest connection that sends nothing."""
    world = make()
    waiting = [world.connect() for _ in range(CONNECTIONS_MAX)]
    assert (200, "1 pods") == world.post(lines(line()))
    assert b"" == waiting[0].recv(1)
    for connection in waiting:
        connection.close()
