"""A database with storage in memory as its mirror: every call goes to both, and both return the same."""

from __future__ import annotations

from functools import partial
from typing import Any

from services.storage.storage import Storage
from tests.doubles.storage.storage import MemoryStorage

MIRRORED = ("jobs", "configs", "pods", "host_pods", "admission")
OWN = frozenset({"events", "status_log", "snapshot"})
"""Reads that go to the database alone: pods in memory have no events, and the memory has no earlier jobs."""


class Mirrored:
    """Returns the answers of the database, and checks that the memory answers alike."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.memory = MemoryStorage(storage.db.clock_ns)

    def __getattr__(self, name: str) -> Any:
        mine = getattr(self.storage, name)
        return _Repository(mine, getattr(self.memory, name)) if name in MIRRORED else mine


class _Repository:
    def __init__(self, mine: Any, memory: Any) -> None:
        self._mine, self._memory = mine, memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mine, name) if name in OWN else partial(self._both, name)

    def _both(self, name: str, *args: Any, **named: Any) -> Any:
        answer = getattr(self._mine, name)(*args, **named)
        assert getattr(self._memory, name)(*args, **named) == answer
        return answer
