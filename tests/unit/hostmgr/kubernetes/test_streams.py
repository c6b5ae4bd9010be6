"""Answers of an apiserver that are streamed line by line."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from services.hostmgr.kubernetes.apiserver import connection
from services.hostmgr.kubernetes.apiserver.connection import lines_of
from services.hostmgr.kubernetes.apiserver.wire import Refused
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, chunk_answer, run_scripted, status
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S, chunk


def test_a_stream_gives_lines_as_they_come() -> None:
    """Each line is returned at once, even one that is longer than a read."""
    long = b"x" * (3 * connection.READ_BYTES)
    go_on = threading.Event()

    def serve(asked: Asked) -> Iterator[bytes]:
        yield chunk_answer() + chunk(b"one\ntw")
        assert go_on.wait(TIMEOUT_S)
        yield chunk(b"o\n") + chunk(long)
        yield chunk(b"\n") + chunk(b"")

    with run_scripted(serve) as server, api_of(server) as api, api.stream("/") as stream:
        lines = iter(stream)
        assert next(lines) == b"one"
        go_on.set()
        assert [b"two", long] == list(lines)


def test_a_stream_that_breaks_off_is_an_error() -> None:
    """A stream that the apiserver ends is none."""
    with (
        run_scripted(lambda asked: [chunk_answer() + chunk(b"a\n"), b""]) as server,
        api_of(server) as api,
        api.stream("/") as stream,
        pytest.raises(ConnectionError, match="within its answer"),
    ):
        list(stream)


def test_a_stream_that_is_refused_says_why() -> None:
    """The error has the whole answer."""
    expired = status(410, "Expired", "too old resource version: 1 (5908)")

    with (
        run_scripted(lambda asked: [answer(410, expired)]) as server,
        api_of(server) as api,
        pytest.raises(Refused, match="too old resource version") as refused,
    ):
        api.stream("/")
    assert (410, "Expired") == (refused.value.answer.status, refused.value.answer.reason)


def test_a_line_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line above the bound fails instead of filling the memory."""
    monkeypatch.setattr(connection, "LINE_BYTES_MAX", 10)

    with pytest.raises(ConnectionError, match="more than 10 bytes"):
        list(lines_of([b"\n123456", b"78901"]))


def test_a_silent_stream_is_given_up() -> None:
    """An apiserver sends bookmarks: without anything the connection is dead."""
    over = threading.Event()

    def serve(asked: Asked) -> Iterator[bytes]:
        yield chunk_answer()
        over.wait(TIMEOUT_S)

    with run_scripted(serve) as server, api_of(server) as api, api.stream("/", silence_s=0.05) as stream:
        with pytest.raises(TimeoutError):
            list(stream)
        over.set()
