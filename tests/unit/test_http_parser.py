"""The parser that stands in for http-parser, by the calls pymesos makes."""

import gzip
import signal
from collections.abc import Iterator

import pytest
from http_parser.http import HttpParser

EVENTS = b'20\n{"type":"HEARTBEAT"}' * 3
CHUNKS = [EVENTS[:7], EVENTS[7:8], EVENTS[8:]]
STREAM = (
    b"HTTP/1.1 200 OK\r\n"
    b"Transfer-Encoding: chunked\r\n"
    b"Mesos-Stream-Id: 130ae4e3-6b13-4ef4-baa9-9f2e85c3e9af\r\n"
    b"Via: one\r\n"
    b"VIA: two\r\n"
    b"Content-Type: application/json\r\n"
    b"\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in CHUNKS) + b"0\r\n\r\n"
)
HEAD_LENGTH = STREAM.index(b"\r\n\r\n") + 4


def read_in(*pieces: bytes) -> tuple[HttpParser, bytes]:
    """Feeds pieces as pymesos does: take the body after each read, stop at an error."""
    parser = HttpParser()
    body = b""
    for piece in pieces:
        assert parser.execute(piece, len(piece)) == len(piece), parser.get_errstr()
        if parser.is_partial_body():
            body += parser.recv_body()
    return parser, body


@pytest.mark.parametrize("at", range(1, len(STREAM)))
def test_a_stream_split_anywhere(at: int) -> None:
    """A chunked response read in two pieces is the same response, wherever it is cut."""
    parser, body = read_in(STREAM[:at], STREAM[at:])
    assert body == EVENTS
    assert parser.get_headers() == {
        "Transfer-Encoding": "chunked",
        "Mesos-Stream-Id": "130ae4e3-6b13-4ef4-baa9-9f2e85c3e9af",
        "Via": "one, two",
        "Content-Type": "application/json",
    }
    assert (parser.get_status_code(), parser.is_chunked(), parser.is_message_complete()) == (200, True, True)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 4096])
def test_a_stream_in_pieces_of_one_size(size: int) -> None:
    """Reading a byte at a time gives the same body as reading all at once."""
    parser, body = read_in(*(STREAM[start : start + size] for start in range(0, len(STREAM), size)))
    assert body == EVENTS
    assert parser.is_message_complete()


def test_what_is_known_before_the_headers_end() -> None:
    """Status and completeness are not reported before the empty line."""
    parser, body = read_in(STREAM[: HEAD_LENGTH - 1])
    assert (parser.is_headers_complete(), parser.get_status_code(), body) == (False, 0, b"")
    parser.execute(STREAM[HEAD_LENGTH - 1 : HEAD_LENGTH], 1)
    assert (parser.is_headers_complete(), parser.get_status_code(), parser.is_partial_body()) == (True, 200, False)
    assert not parser.is_message_complete()


def test_the_body_is_handed_out_once() -> None:
    """recv_body empties the buffer; with nothing new there is no partial body."""
    parser = HttpParser()
    parser.execute(STREAM, len(STREAM))
    assert parser.is_partial_body()
    assert (parser.recv_body(), parser.recv_body()) == (EVENTS, b"")
    assert not parser.is_partial_body()


def test_only_the_given_length_is_read() -> None:
    """A buffer may be longer than the received bytes."""
    parser = HttpParser()
    assert parser.execute(STREAM + b"rubbish", len(STREAM)) == len(STREAM)
    assert parser.is_message_complete()


def test_a_redirect_with_a_length() -> None:
    """A response with a length and no chunks has the address of the leading master."""
    parser, body = read_in(
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: //10.0.0.2:5050\r\nContent-Length: 3\r\n\r\nabc"
    )
    assert (parser.get_status_code(), parser.get_headers()["Location"]) == (307, "//10.0.0.2:5050")
    assert (parser.is_chunked(), parser.is_message_complete(), body) == (False, True, b"abc")


def test_an_answer_without_a_body() -> None:
    """202 with length 0, the answer to every call, is complete with its headers."""
    parser, body = read_in(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    assert (parser.is_headers_complete(), parser.is_message_complete(), body) == (True, True, b"")


def test_chunked_must_be_the_last_coding() -> None:
    """A list of codings is chunked when it ends in chunked, in any case; the body is still encoded."""
    packed = gzip.compress(b"hello", mtime=0)
    parser, body = read_in(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)
    )
    assert (parser.is_chunked(), body) == (True, packed)


def test_trailers_are_no_headers() -> None:
    """Fields behind the last chunk do not change the headers."""
    parser, _ = read_in(STREAM[:-2] + b"Via: three\r\n\r\n")
    assert (parser.get_headers()["Via"], parser.is_message_complete()) == ("one, two", True)


def test_a_second_response_is_ignored() -> None:
    """Bytes behind the response, in the same read or later, change no result."""
    second = b"HTTP/1.1 500 Broken\r\nVia: three\r\nContent-Length: 1\r\n\r\nx"
    parser, body = read_in(STREAM + second, second, b"rubbish")
    assert (parser.get_status_code(), parser.get_headers()["Via"], body) == (200, "one, two", EVENTS)
    assert parser.get_errno() == 0


BROKEN = {
    "not HTTP": b"SSH-2.0-OpenSSH\r\n",
    "no status": b"HTTP/1.1 abc\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n",
    "a chunk without a length": STREAM[:HEAD_LENGTH] + b"xyz\r\n",
    "a chunk longer than it says": STREAM[:HEAD_LENGTH] + b"1\r\nabc\r\n",
    "a length that is no number": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
}


@pytest.mark.parametrize("case", BROKEN)
def test_errors(case: str) -> None:
    """Broken input is not consumed, results in an error number and a text, and ends the reading."""
    parser = HttpParser()
    assert parser.execute(BROKEN[case], len(BROKEN[case])) == 0
    assert parser.get_errno() != 0
    assert parser.get_errstr()
    assert parser.execute(STREAM, len(STREAM)) == 0
    assert not parser.is_message_complete()


def test_pymesos_asks_for_the_error_number_by_a_call() -> None:
    """The parser has no attribute errno, with which pymesos would expect another library, whose errors it half
    ignores.
    """
    assert not hasattr(HttpParser(), "errno")


@pytest.fixture
def interrupt_handler_kept() -> Iterator[None]:
    """Restores the handler of SIGINT, which an import of pymesos replaces."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupt_handler_kept")
def test_pymesos_takes_this_parser() -> None:
    """The installed pymesos imports this parser, and the constant that it uses."""
    process = pytest.importorskip("pymesos.process")
    from http_parser.pyparser import INVALID_CHUNK

    assert process.HttpParser is HttpParser
    assert INVALID_CHUNK
