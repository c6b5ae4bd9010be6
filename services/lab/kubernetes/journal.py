"""Journal of the store in a file: one line for each write, compacted from time to time.

A line is passed to the operating system before its write is answered, so that it survives the process; without fsync it
does not survive the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from services.lab.kubernetes.resources import Json

NAME = "journal.jsonl"
LINES_MIN = 50_000
"""A journal with fewer lines is never rewritten."""
LINES_PER_OBJECT = 4
"""A journal with more lines than this for each object is rewritten."""


class Journal:
    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lines = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._file = -1

    def read(self) -> Iterator[tuple[str, Json | list[str], int]]:
        """Yield resource, object or [namespace, name] of a deleted one, and version. A truncated last line is
        skipped.
        """
        if not self._path.exists():
            return
        whole = 0
        with self._path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                resource, body, version = orjson.loads(line)
                whole += len(line)
                yield resource, body, version
        os.truncate(self._path, whole)

    def put(self, resource: str, encoded: bytes, version: int) -> None:
        self._write(b'["%s",%s,%d]\n' % (resource.encode(), encoded, version))

    def delete(self, resource: str, namespace: str, name: str, version: int) -> None:
        self._write(orjson.dumps([resource, [namespace, name], version]) + b"\n")

    def is_long(self, objects: int) -> bool:
        return self._lines > max(LINES_MIN, objects * LINES_PER_OBJECT)

    def rewrite(self, objects: Iterable[tuple[str, bytes, int]], version: int) -> None:
        """Write resource, encoded object and version of each; ``version`` is the store's own."""
        fresh = self._path.with_suffix(".new")
        count = 1
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        with fresh.open("wb") as out:
            out.write(b'["",[],%d]\n' % version)
            for resource, encoded, written_at in objects:
                out.write(b'["%s",%s,%d]\n' % (resource.encode(), encoded, written_at))
                count += 1
        self.close()
        fresh.replace(self._path)
        self._lines = count

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, line: bytes) -> None:
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"{self._path}: {written} of {len(line)} bytes written")
        self._lines += 1
