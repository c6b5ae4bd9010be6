"""RecordIO inside HTTP chunks: decimal length, newline, record; the master writes one record per chunk."""

from __future__ import annotations

from typing import Any

import orjson

LAST_CHUNK = b"0\r\n\r\n"


def encode(event: dict[str, Any]) -> bytes:
    """One HTTP chunk that holds one record."""
    return frame(orjson.dumps(event))


def frame(payload: bytes) -> bytes:
    record = b"%d\n%s" % (len(payload), payload)
    return b"%x\r\n%s\r\n" % (len(record), record)
