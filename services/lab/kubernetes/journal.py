"""Journal of the store in a file: one line for each write, compacted from time to time.

A line is passed to the operating system before its write is answered, so that it survives the process; without fsync it
does not survive the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

NAME = "journal.jsonl"
LINES_MIN = 50_000
"""A journal with fewer lines is never rewritten."""
LINES_PER_OBJECT = 4
"""A journal with more lines than this for each object is rewritten."""


class Journal:
    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lines = 0
        self._file = -1
        folder.mkdir(parents=True, exist_ok=True)

    def read(self) -> Iterator[Any]:
        """Yield the decoded lines. A truncated last line is removed: its write was never answered."""
        whole = 0
        with open(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "rb+") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                yield orjson.loads(line)
            lines.truncate(whole)

    def append(self, line: bytes) -> None:
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"{self._path}: {written} of {len(line)} bytes written")
        self._lines += 1

    def is_long(self, objects: int) -> bool:
        return self._lines > max(LINES_MIN, objects * LINES_PER_OBJECT)

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the journal by these lines."""
        fresh = self._path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        self._lines = 0
        with fresh.open("wb") as out:
            for line in lines:
                out.write(line)
                self._lines += 1
        self.close()
        fresh.replace(self._path)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
