"""Logs of containers, written and read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.lab.kubernetes.nodes.container_logs import LINE_BYTES_MAX, LogFile, LogOptions, LogReader

TEXT = st.text(alphabet="ab\n\r\x00", max_size=40).map(str.encode)


def written(path: Path, *pieces: bytes, is_closed: bool = True) -> LogFile:
    """Write the pieces of a log, each one second after the one before."""
    times = iter(range(1_000_000_000, 2_000_000_000))
    log = LogFile(path, lambda: float(next(times)))
    for piece in pieces:
        log.feed(piece)
    if is_closed:
        log.close()
    return log


@given(pieces=st.lists(TEXT, max_size=8))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    """Every line is read back, however the log was cut, even a last line without an end."""
    path = tmp_path_factory.mktemp("log") / "x.log"
    written(path, *pieces)

    assert b"".join(pieces) == LogReader(path, LogOptions()).read()


def test_a_long_line_is_one_line(tmp_path: Path) -> None:
    """A long line is read as one line, although the log file stores it in pieces."""
    line = b"x" * (3 * LINE_BYTES_MAX) + b"\n"
    written(tmp_path / "x.log", b"first\n", line)

    assert line == LogReader(tmp_path / "x.log", LogOptions(tail_lines=1)).read()


def test_options(tmp_path: Path) -> None:
    """The options tail, since, bytes and timestamps select the text."""
    path = tmp_path / "x.log"
    written(path, b"one\n", b"two\n", b"three\n")

    assert b"two\nthree\n" == LogReader(path, LogOptions(tail_lines=2)).read()
    assert b"" == LogReader(path, LogOptions(tail_lines=0)).read()
    assert b"three\n" == LogReader(path, LogOptions(since="2001-09-09T01:46:42Z")).read()
    assert b"one\ntw" == LogReader(path, LogOptions(limit_bytes=6)).read()
    stamped = LogReader(path, LogOptions(tail_lines=1, has_timestamps=True)).read()
    assert b"2001-09-09T01:46:42.000000000Z three\n" == stamped


def test_a_reader_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """A reader continues where it stopped; its tail counts the lines that the file had at first."""
    path = tmp_path / "x.log"
    log = written(path, b"one\ntwo\n", is_closed=False)
    reader = LogReader(path, LogOptions(tail_lines=1))

    assert b"two\n" == reader.read()
    log.feed(b"three\nfo")
    assert b"three\n" == reader.read()
    log.feed(b"ur")
    log.close()
    assert b"four" == reader.read()
