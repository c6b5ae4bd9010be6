"""Requests to an apiserver and its answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.hostmgr.kubernetes.apiserver import wire
from services.hostmgr.kubernetes.apiserver.connection import AnswerReader, lines_of
from services.hostmgr.kubernetes.apiserver.kubeconfig import UserEntry
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Refused, Request, pause_before_repeat_s
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, chunk_answer, run_scripted, status
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S, chunk

PODS = "/api/v1/namespaces/peloton/pods"
POD = Request("POST", PODS, b'{"kind":"Pod"}')


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Cut data into pieces, none of them empty."""
    ends = sorted({place % len(data) for place in places} - {0}) if data else []
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True) if begin < end]


# Requests and answers.


def test_a_request_is_what_an_apiserver_reads() -> None:
    """The request has method, path, body and its type, and the credentials; nothing else that costs bytes."""
    seen: list[Asked] = []

    def serve(asked: Asked) -> Iterator[bytes]:
        seen.append(asked)
        yield answer(201, {"kind": "Pod", "metadata": {"name": "p"}})

    with run_scripted(serve) as server, api_of(server, UserEntry(token="t-1")) as api:
        created, address = api.ask(POD), server.address

    headers = {
        "host": address,
        "authorization": "Bearer t-1",
        "accept": "application/json",
        "user-agent": "peloton",
        "content-type": "application/json",
        "content-length": "14",
    }
    assert [Asked("POST", PODS, headers, b'{"kind":"Pod"}')] == seen
    assert (201, True, {"kind": "Pod", "metadata": {"name": "p"}}) == (created.status, created.is_ok, created.json())


def test_a_status_says_why() -> None:
    """A Status has a reason and a message; another body has its readable text alone."""
    refused = Answer(409, b'{"kind":"Status","reason":"AlreadyExists","message":"pods \\"p\\" already exists"}')

    assert ("AlreadyExists", 'HTTP 409: pods "p" already exists') == (refused.reason, refused.message)
    put_off = Answer(429, b"Too many requests\n")
    assert ("", "HTTP 429: Too many requests") == (put_off.reason, put_off.message)
    assert ("", "HTTP 500") == (Answer(500).reason, Answer(500).message)


def test_answers_come_in_the_order_of_requests() -> None:
    """The order is independent of the connections and the number of requests."""
    requests = [Request("GET", f"/{number}") for number in range(300)]

    with run_scripted(lambda asked: [answer(200, asked.path.encode())]) as server, api_of(server) as api:
        answers = api.ask_all(requests)
        again = api.ask_all(requests)

    assert [request.path.encode() for request in requests] == [a.body for a in answers if isinstance(a, Answer)]
    assert answers == again
    assert server.connections <= wire.CONNECTIONS_MAX


def test_bodies_larger_than_any_buffer_pass_both_ways() -> None:
    """Eight MB there and back on each of several connections."""
    body = bytes(range(256)) * (1 << 15)
    requests = [Request("POST", "/echo", body)] * 3

    with run_scripted(lambda asked: [answer(200, asked.body)]) as server, api_of(server) as api:
        answers = api.ask_all(requests)

    assert [True] * 3 == [isinstance(a, Answer) and a.body == body for a in answers]


@settings(deadline=None)
@given(
    bodies=st.lists(st.lists(st.binary(min_size=1, max_size=40), max_size=4), min_size=1, max_size=3),
    places=st.lists(st.integers(0, 2000), max_size=12),
)
def test_answers_may_be_cut_anywhere(bodies: list[list[bytes]], places: list[int]) -> None:
    """Chunks of HTTP and pieces of TCP have nothing to do with each other."""
    data = b"".join(chunk_answer() + b"".join(map(chunk, body)) + chunk(b"") for body in bodies)
    reader = AnswerReader()
    found = []
    for piece in cut(data, places):
        for byte in range(len(piece)):  # one answer is taken before the next one begins
            reader.feed(piece[byte : byte + 1])
            if reader.is_complete:
                found.append((reader.status, b"".join(reader.take())))
                reader.begin()

    assert [(200, b"".join(body)) for body in bodies] == found


@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.lists(st.integers(0))
)
def test_lines_may_be_cut_anywhere(lines: list[bytes], places: list[int]) -> None:
    """Every line is returned once and whole; a last one without its end is not."""
    text = b"".join(line + b"\n" for line in lines)

    assert lines == list(lines_of(cut(text, places)))
    assert lines == list(lines_of([*cut(text, places), b"no end"]))


def test_an_answer_may_end_with_its_connection() -> None:
    """One without a length, as old proxies send it; the connection is not used again."""
    without_length = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall"

    with run_scripted(lambda asked: [without_length, b""]) as server, api_of(server) as api:
        assert [b"all", b"all"] == [api.ask(Request("GET", "/")).body for _ in range(2)]
        assert server.connections == 2


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "/\u00fc"])
def test_a_path_must_be_escaped(path: str) -> None:
    """An unescaped path would end the line of the request."""
    with (
        run_scripted(lambda asked: [answer(200)]) as server,
        api_of(server) as api,
        pytest.raises(ValueError, match="esc"),
    ):
        api.ask(Request("GET", path))


# What goes wrong.


def test_a_request_that_is_put_off_is_repeated() -> None:
    """Priority and fairness answer 429 with plain text and a time."""
    tries: list[str] = []

    def serve(asked: Asked) -> Iterator[bytes]:
        tries.append(asked.path)
        if tries.count(asked.path) < 3:
            yield answer(429, b"Too many requests, please try again later.\n", "Retry-After: 0")
        else:
            yield answer(201)

    with run_scripted(serve) as server, api_of(server) as api:
        answers = api.ask_all([Request("POST", "/a"), Request("POST", "/b")])

    assert [201, 201] == [a.status for a in answers if isinstance(a, Answer)]
    assert {"/a": 3, "/b": 3} == {path: tries.count(path) for path in tries}


@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(st.sampled_from(["429", "503", "break", "break within", "close"]), max_size=3), max_size=30))
def test_every_request_is_answered_whatever_goes_wrong(faults: list[list[str]]) -> None:
    """Each request fails in its own way, and then is answered; no answer belongs to another request."""
    left = {f"/{number}": list(some) for number, some in enumerate(faults)}

    def serve(asked: Asked) -> Iterator[bytes]:
        whole = answer(200, asked.path.encode())
        match left[asked.path].pop() if left[asked.path] else "":
            case "429":
                yield answer(429, b"Too many requests")
            case "503":
                yield answer(503, status(503, "ServiceUnavailable"))
            case "break":
                yield b""
            case "break within":
                yield whole[:-1]
                yield b""
            case "close":
                yield answer(200, asked.path.encode(), "Connection: close")
                yield b""
            case _:
                yield whole

    with pytest.MonkeyPatch.context() as patch, run_scripted(serve) as server, api_of(server) as api:
        patch.setattr(wire, "BACKOFF_S", 0.0001)
        answers = api.ask_all([Request("GET", path) for path in left])
    assert [Answer(200, path.encode()) for path in left] == answers


def test_what_is_repeated_and_when() -> None:
    """The pause is the time that the apiserver states or a growing one, within bounds; a decision of the apiserver is
    never retried.
    """
    budget = Answer(429, b'{"kind":"Status","details":{"causes":[{"reason":"DisruptionBudget"}]}}', 1)

    assert 1.0 == pause_before_repeat_s(Answer(429, retry_after_s=1), 1)
    assert [0.1, 0.2, 0.4, 0.8, 1.6, None] == [pause_before_repeat_s(Answer(503), n) for n in range(1, 7)]
    assert wire.BACKOFF_MAX_S == pause_before_repeat_s(Answer(429, retry_after_s=3600), 1)
    assert [None] * 5 == [pause_before_repeat_s(a, 1) for a in (budget, *map(Answer, (200, 404, 409, 422)))]


def test_a_create_whose_connection_broke_is_sent_again() -> None:
    """The name makes a retry safe: the second answer says that the pod exists."""
    created: list[bytes] = []

    def lose(asked: Asked) -> Iterator[bytes]:
        created.append(asked.body)
        if len(created) == 1:
            yield b""
        yield answer(409, status(409, "AlreadyExists"))

    with run_scripted(lose) as server, api_of(server) as api:
        assert api.ask(POD).reason == "AlreadyExists"
    assert [POD.body] * 2 == created


def test_a_connection_that_was_closed_while_idle_is_not_used() -> None:
    """The next request has a connection of its own, and no try is lost."""
    closed = threading.Event()

    def serve(asked: Asked) -> Iterator[bytes]:
        yield answer(200)
        yield b""

    with run_scripted(serve) as server, api_of(server) as api:
        assert api.ask(Request("GET", "/")).is_ok
        held = api.take()
        while held is not None and held.is_quiet:
            closed.wait(0.001)
        if held is not None:
            api.give_back(held)
        assert api.take() is None
        assert api.ask(Request("POST", "/")).is_ok
        assert 2 == server.connections


def test_without_an_apiserver_every_request_fails() -> None:
    """Requests without an apiserver fail at once."""
    with (
        socket.socket() as silent,  # it has a port, which no other process can use, and does not listen
        run_scripted(lambda asked: [answer(200)]) as server,
        api_of(server) as api,
    ):
        silent.bind(("127.0.0.1", 0))
        api.access.host, api.access.port = silent.getsockname()
        assert [True] * 3 == [isinstance(a, ConnectionRefusedError) for a in api.ask_all([POD] * 3)]
        with pytest.raises(ConnectionRefusedError):
            api.stream("/")


def test_an_answer_that_does_not_come_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request alone fails. Its timeout ends as soon as the other answer has arrived."""
    over = threading.Event()
    passed_s = 0.0
    finish = wire._Batch._finish

    def finished(batch: wire._Batch, index: int, found: Answer | OSError) -> None:
        nonlocal passed_s
        finish(batch, index, found)
        passed_s = 10 * TIMEOUT_S

    def serve(asked: Asked) -> Iterator[bytes]:
        if asked.path == "/never":
            over.wait(TIMEOUT_S)
        yield answer(200)

    monkeypatch.setattr(wire, "POLL_S", 0.01)
    monkeypatch.setattr(wire._Batch, "_finish", finished)
    monkeypatch.setattr(wire, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s))
    with run_scripted(serve) as server, api_of(server) as api:
        never, other = api.ask_all([Request("GET", "/never"), Request("GET", "/")], timeout_s=TIMEOUT_S)
        over.set()

    assert isinstance(never, TimeoutError)
    assert Answer(200) == other


def test_a_token_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    """The token is read once the apiserver rejects the old one; a rejection of the new one is final."""
    file = tmp_path / "token"
    file.write_text("old")
    good = ["Bearer old"]

    def serve(asked: Asked) -> Iterator[bytes]:
        yield answer(200 if asked.headers["authorization"] in good else 401, b"", "X: y")

    with run_scripted(serve) as server, api_of(server, UserEntry(token_file=str(file))) as api:
        assert api.ask(Request("GET", "/")).is_ok
        file.write_text("new\n")
        good[:] = ["Bearer new"]
        assert [200] * 4 == [a.status for a in api.ask_all([Request("GET", "/")] * 4) if isinstance(a, Answer)]
        good.clear()
        assert api.ask(Request("GET", "/")).status == 401
        with pytest.raises(Refused):
            api.stream("/")


def test_close_ends_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for its answer fails, and a stream ends."""
    monkeypatch.setattr(wire, "POLL_S", 0.01)
    over, waits = threading.Event(), threading.Event()

    def serve(asked: Asked) -> Iterator[bytes]:
        if asked.path == "/stream":
            yield chunk_answer() + chunk(b"line\n")
        else:
            waits.set()
        over.wait(TIMEOUT_S)

    failures: list[OSError] = []

    def ask(api: ApiServer) -> None:
        try:
            api.ask(Request("GET", "/never"))
        except OSError as error:
            failures.append(error)

    with run_scripted(serve) as server, api_of(server) as api, api.stream("/stream", silence_s=None) as stream:
        lines = iter(stream)
        assert next(lines) == b"line"
        thread = threading.Thread(target=ask, args=(api,))
        thread.start()
        assert waits.wait(TIMEOUT_S)
        api.close()
        thread.join()
        assert list(lines) == []
        over.set()
    assert ["the connection to the apiserver was closed here"] == [str(error) for error in failures]
