"""Bounded reads of the files that describe an emulated cluster."""

from __future__ import annotations

import os
import stat
from pathlib import Path

BYTES_MAX = 2**20


def read_text(path: Path | str) -> str:
    """Read a regular file of UTF-8. Raises OSError, also for other files and beyond the limit, and ValueError."""
    # A pipe without a writer would block the opening.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("no regular file")
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise OSError(f"more than {BYTES_MAX:,} bytes, its limit")
    return content.decode("utf-8")
