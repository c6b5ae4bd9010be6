"""Costly questions that many ask: an answer is used for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

REST_PER_QUESTION = 10
"""An answer is used for at least so many times as long as it took to find: however many ask, and however large the
installation is, the question takes at most a tenth of one connection."""


class Rested(Generic[T]):
    """Any thread asks. While one finds a new answer, the others have the last one."""

    def __init__(self, find: Callable[[], T], age_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``age_s``: an answer is used for at least so long."""
        self._find, self._age_s, self._clock = find, age_s, clock
        self._lock = threading.Lock()
        self._known: tuple[float, T] | None = None  # good until then, and what

    def get(self) -> T:
        """Raises what ``find`` raises; then the next one asks again."""
        known = self._known
        if known is not None and (self._clock() < known[0] or not self._lock.acquire(blocking=False)):
            return known[1]
        if known is None:
            self._lock.acquire()
        try:
            if self._known is not None and self._clock() < self._known[0]:
                return self._known[1]  # found while this one waited
            began_s = self._clock()
            found = self._find()
            ended_s = self._clock()
            self._known = ended_s + max(self._age_s, REST_PER_QUESTION * (ended_s - began_s)), found
            return found
        finally:
            self._lock.release()
