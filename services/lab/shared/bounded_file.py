"""Reads files that people name: regular ones, up to a size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

BYTES_MAX = 64 * 2**20


def read_bounded(path: Path) -> str:
    """Return the text of a file. Raises OSError, and ValueError for a device, a pipe, a large file or no UTF-8."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise ValueError(f"more than {BYTES_MAX:,} bytes")
    return content.decode("utf-8")
