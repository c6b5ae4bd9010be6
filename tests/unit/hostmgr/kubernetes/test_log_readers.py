"""Logs read piece by piece."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from services.hostmgr.kubernetes.output import log_readers
from services.hostmgr.kubernetes.output.log_readers import LogReaders
from services.hostmgr.kubernetes.output.logs import PodLogs
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, chunk_answer, run_scripted
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S, chunk

FILE = "main/stdout"


class Log:
    """A log that grows and ends on request."""

    def __init__(self) -> None:
        self.text = b""
        self.is_over = False
        self.opened = 0
        self.more: queue.Queue[bytes | None] = queue.Queue()

    def serve(self, asked: Asked) -> Iterator[bytes]:
        if "/log?" not in asked.path:
            yield answer(404)
            return
        self.opened += 1
        yield chunk_answer()
        if self.text:
            yield chunk(self.text)
        while not self.is_over:
            more = self.more.get(timeout=TIMEOUT_S)
            if more is None:
                self.is_over = True
            else:
                self.text += more
                yield chunk(more)
        yield chunk(b"")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeouts, so that reads wait for data on a busy machine too."""
    monkeypatch.setattr(log_readers, "FIRST_WAIT_S", TIMEOUT_S)
    monkeypatch.setattr(log_readers, "SKIP_S", TIMEOUT_S)
    monkeypatch.setattr(log_readers, "END_WAIT_S", TIMEOUT_S)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def readers(log: Log) -> Iterator[LogReaders]:
    with run_scripted(log.serve) as server, api_of(server) as api:
        readers = LogReaders(PodLogs(api, "peloton"))
        yield readers
        readers.close()
        log.more.put(None)


def read_to(readers: LogReaders, offset: int, byte: int) -> bytes:
    """Read up to a byte, in as many calls as needed."""
    data = b""
    while offset + len(data) < byte:
        data += readers.read("p", FILE, offset + len(data), follow=True).data
    return data


def test_a_log_is_followed_over_one_stream(log: Log, readers: LogReaders) -> None:
    """Each call continues where the one before has stopped; the end is reported once the container has ended."""
    log.text = b"one\n"
    assert (b"one\n", False) == readers.read("p", FILE, 0, True)
    assert (b"", False) == readers.read("p", FILE, 4, True)
    log.more.put(b"two\n")
    assert b"two\n" == read_to(readers, 4, 8)
    log.more.put(None)
    while not (piece := readers.read("p", FILE, 8, True)).is_end:
        assert piece.data == b""
    assert log.opened == 1


def test_a_log_may_be_read_from_any_byte(log: Log, readers: LogReaders) -> None:
    """A log is read from any byte after a failover of the host manager, or by a client that has the beginning."""
    log.text, log.is_over = bytes(range(256)) * 40, True
    assert log.text[5000:] == read_to(readers, 5000, len(log.text))
    assert (b"", True) == readers.read("p", FILE, len(log.text) + 5, False)


def test_pieces_have_a_bound(log: Log, readers: LogReaders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long log is read in several pieces, without gaps and repetitions."""
    monkeypatch.setattr(log_readers, "PIECE_BYTES", 1000)
    log.text, log.is_over = bytes(range(256)) * 10, True
    data = b""
    while not (piece := readers.read("p", FILE, len(data), False)).is_end:
        assert len(piece.data) <= 1000
        data += piece.data
    assert log.text == data + piece.data
    assert log.opened == 1


def test_readers_that_are_not_used_are_closed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle reader is closed after a while, or when there are too many; the next read opens the log again."""
    now_s = 0.0
    monkeypatch.setattr(log_readers, "READERS_MAX", 1)
    monkeypatch.setattr(log_readers, "NEXT_WAIT_S", 0.001)
    log.text = b"text"
    with run_scripted(log.serve) as server, api_of(server) as api:
        readers = LogReaders(PodLogs(api, "peloton"), lambda: now_s)
        readers.read("p", FILE, 0, True)
        readers.read("q", FILE, 0, True)
        assert (b"", False) == readers.read("q", FILE, 4, True)
        assert log.opened == 2
        readers.read("p", FILE, 2, True)
        assert log.opened == 3
        now_s += log_readers.IDLE_S + 1
        readers.read("p", FILE, 0, True)
        readers.close()
        for _ in range(log.opened):
            log.more.put(None)
    assert log.opened == 4


def test_only_so_many_read_at_once(log: Log, readers: LogReaders, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit bounds the calls that unavailable nodes delay."""
    monkeypatch.setattr(log_readers, "TURN_S", 0.001)
    for _ in range(log_readers.AT_ONCE_MAX):
        readers._turns.acquire()
    with pytest.raises(OSError, match="8 logs are being read at once"):
        readers.read("p", FILE, 0, True)
    for _ in range(log_readers.AT_ONCE_MAX):
        readers._turns.release()
