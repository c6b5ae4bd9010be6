"""Logs of containers, line by line with the time, in files of the format of container runtimes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

PIECE_BYTES = 64 * 1024
LINE_BYTES_MAX = 16 * 1024
"""Bytes of a line. A longer one is stored in pieces, and read back as one."""
PIECES_MAX = 64
"""Pieces that one read returns, so that other containers have their turn."""
WHOLE, PARTIAL = b"F", b"P"


class LogFile:
    """Log of one run of a container, written from a pipe."""

    def __init__(self, path: Path, now_s: Callable[[], float]) -> None:
        self.path = path
        self._now_s = now_s
        self._file = path.open("ab", buffering=0)
        self._rest = b""
        self.is_open = True
        self.on_written: list[Callable[[], None]] = []
        """Called after each write, and at the end."""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest[:LINE_BYTES_MAX]], self._rest[LINE_BYTES_MAX:]
        head = nanoseconds(self._now_s()).encode()
        whole = data.count(b"\n")
        marks = [WHOLE] * whole + [PARTIAL] * (len(lines) - whole)
        self._write(b"".join(b"%s stdout %s %s\n" % (head, *row) for row in zip(marks, lines, strict=True)))

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            head = nanoseconds(self._now_s()).encode()
            # A last line without an end is read back without one.
            self._write(b"%s stdout %s %s\n" % (head, PARTIAL, self._rest) if self._rest else b"")
            self._file.close()
            self._tell()

    def _write(self, data: bytes) -> None:
        if data:
            with contextlib.suppress(OSError):  # the disk is full: the container runs on
                self._file.write(data)
            self._tell()

    def _tell(self) -> None:
        for follower in tuple(self.on_written):
            follower()

    def drain(self, descriptor: int) -> bool:
        """Read what the pipe holds; False when it has ended."""
        for _ in range(PIECES_MAX):
            try:
                data = os.read(descriptor, PIECE_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.feed(data)
        return True


class LogOptions(NamedTuple):
    """Query of a GET of a log."""

    tail_lines: int | None = None
    since: str = ""
    """Time of the earliest lines; empty: all."""
    limit_bytes: int | None = None
    has_timestamps: bool = False


class LogReader:
    """Reads a log from where it last stopped."""

    def __init__(self, path: Path, options: LogOptions) -> None:
        self._path = path
        self._options = options
        self._offset = 0
        self._left = options.limit_bytes
        self._is_mid_line = False
        self._is_first = True

    def read(self) -> bytes:
        """Return the data since the last call; empty for a missing log."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return b""
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        rows = [row.split(b" ", 3) for row in data.split(b"\n")[:-1]]  # time, stream, mark, text
        lines = [(at, text if mark == PARTIAL else text + b"\n") for at, _, mark, text in rows]
        if since := self._options.since.removesuffix("Z").encode():  # so that whole seconds come before fractions
            lines = [line for line in lines if line[0] >= since]
        if self._is_first and self._options.tail_lines is not None:
            starts = [i for i in range(len(lines)) if i == 0 or lines[i - 1][1].endswith(b"\n")]
            first = starts[-self._options.tail_lines :][:1] if self._options.tail_lines else []
            lines = lines[first[0] :] if first else []
        self._is_first = False
        text = b"".join(self._shown(at, text) for at, text in lines)
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def _shown(self, at: bytes, text: bytes) -> bytes:
        starts, self._is_mid_line = not self._is_mid_line, not text.endswith(b"\n")
        return at + b" " + text if self._options.has_timestamps and starts else text


def nanoseconds(wall_s: float) -> str:
    """Format the time as logs do."""
    moment = datetime.fromtimestamp(wall_s, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}000Z"
