"""Acts that tests insert between two transactions of one call."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from services.storage.storage import Storage


def before_write(storage: Storage, number: int, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call ``act`` before the write of this number, the first being 1."""
    write, count = storage.db.write, itertools.count(1)

    def count_write(work: Callable[[sa.Connection], Any]) -> Any:
        if next(count) == number:
            act()
        return write(work)

    monkeypatch.setattr(storage.db, "write", count_write)
