"""Copies of SQLite files in use: the online backup takes committed pages of the -wal file, too."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import chain, count
from pathlib import Path

from peloton.errors import Unavailable
from services.storage import sqlite_files

BUSY_S = 30.0
SIDE_FILES = "-wal", "-shm", "-journal"


def copy(source: Path, target: Path) -> None:
    """Copy a database as of one moment, into a single file; writers continue meanwhile. Raises Unavailable."""
    if not source.is_file():
        raise Unavailable(f"there is no database {source}")
    target.unlink(missing_ok=True)
    try:
        with (
            closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True, timeout=BUSY_S)) as from_db,
            closing(sqlite3.connect(target)) as to_db,
        ):
            from_db.backup(to_db, pages=-1)  # in one step: a write of another process restarts a copy in several
            to_db.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.DatabaseError as error:
        raise Unavailable(f"{source} is not copied: {error}") from error
    sqlite_files.check(target)


def put_back(copied: Path, target: Path) -> Path | None:
    """Replace a database that no process uses by a copy; return the new path of the replaced file, None without one."""
    replaced = None
    new = target.with_name(f"{target.name}.new")
    copy(copied, new)
    if target.exists():
        # The first one has the data before the loss, so later ones do not replace it.
        names = chain(["replaced"], (f"replaced-{number}" for number in count(2)))
        replaced = next(path for name in names if not (path := target.with_name(f"{target.name}.{name}")).exists())
        for suffix in ("", *SIDE_FILES):
            before, after = (path.with_name(path.name + suffix) for path in (target, replaced))
            after.unlink(missing_ok=True)  # of a file that was deleted without it
            if before.exists():
                before.rename(after)
    new.rename(target)
    return replaced
