"""Cached answers to expensive queries with many callers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

REST_PER_QUESTION = 10
"""Lifetime of an answer, as a multiple of the time it took to find: the query takes at most a tenth of one connection,
whatever the number of callers and the size of the installation.
"""


class Rested(Generic[T]):
    """Cache of one answer, for any thread. While one thread finds a new answer, the others receive the last one."""

    def __init__(self, find: Callable[[], T], age_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``age_s``: an answer is used for at least so long."""
        self._find, self._age_s, self._clock = find, age_s, clock
        self._lock = threading.Lock()
        self._known: tuple[float, T] | None = None  # good until then, and what

    def get(self) -> T:
        """Return the answer. Raises what ``find`` raises; the next caller then queries again."""
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
