"""RecordIO inside HTTP chunks: decimal length, newline, record; the master writes one record per chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

LENGTH_DIGITS_MAX = 20


def encode(event: dict[str, Any]) -> bytes:
    """Encode one record as one HTTP chunk."""
    return frame(orjson.dumps(event))


def frame(payload: bytes) -> bytes:
    record = b"%d\n%s" % (len(payload), payload)
    return b"%x\r\n%s\r\n" % (len(record), record)


class RecordError(Exception):
    """Invalid or oversized record."""


class Records:
    """Decoder that splits received bytes into records."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        while True:
            head, mark, body = self._rest.partition(b"\n")
            if not mark and len(head) <= LENGTH_DIGITS_MAX:
                return
            if not head.isdigit() or len(head) > LENGTH_DIGITS_MAX or int(head) > self._limit:
                raise RecordError(f"expected the length of a record, at most {self._limit}, got {head[:40]!r}")
            if len(body) < int(head):
                return
            self._rest = body[int(head) :]
            yield body[: int(head)]
