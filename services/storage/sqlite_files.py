"""Checks of SQLite files, and messages about damaged or unwritable ones."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from peloton.errors import Unavailable

CHECK_S = 5.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNWRITABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def fault_of(error: BaseException | None, path: str) -> str:
    """Return the fault of the file that an SQLite error reports; "" for other errors."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return ""
    if code & 0xFF in _DAMAGED:
        return f"{path} is damaged: {error}; restore it from a backup, or move it away to begin with an empty one"
    return f"{path} cannot be written: {error}" if code & 0xFF in _UNWRITABLE else ""


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, reports a damaged file."""
    while error is not None:
        code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
        if code is not None and code & 0xFF in _DAMAGED:
            return True
        error = error.__cause__
    return False


def check(path: Path) -> None:
    """Check a file, for at most CHECK_S seconds. Raises Unavailable if it is damaged."""
    if not path.exists() or not path.stat().st_size:
        return
    deadline_s = time.monotonic() + CHECK_S
    connection = sqlite3.connect(path, isolation_level=None)
    connection.set_progress_handler(lambda: time.monotonic() > deadline_s, 10_000)
    try:
        ((answer,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        if fault := fault_of(error, str(path)):
            raise Unavailable(fault) from None
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise Unavailable(f"{path} cannot be used: {error}") from None
    else:
        if answer != "ok":
            damaged = sqlite3.DatabaseError(" ".join(str(answer).split()))
            damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise Unavailable(fault_of(damaged, str(path)))
    finally:
        connection.close()
