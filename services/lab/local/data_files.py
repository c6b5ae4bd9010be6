"""Checks of the data folder of a local cluster before its first use."""

from __future__ import annotations

import shutil
from pathlib import Path

from peloton.errors import Unavailable
from services.storage import sqlite_files

FREE_MIN_BYTES = 64 << 20
DATABASES = ("peloton.db", "temporal.db")
FOLDERS = ("logs", "minicluster", "kubernetes")


def check(folder: Path) -> None:
    """Raise Unavailable for unusable files, on which parts would fail again and again.

    Files that an earlier version left readable for all become readable for their user only.
    """
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < FREE_MIN_BYTES:
        numbers = f"{free_bytes >> 20} MiB are free, {FREE_MIN_BYTES >> 20} are needed to start"
        raise Unavailable(f"the disk of data folder {folder} is full: {numbers}")
    for name in DATABASES:
        sqlite_files.check(folder / name)
    for path in folder.iterdir():
        if path.name.startswith((*DATABASES, *FOLDERS)) and not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)
