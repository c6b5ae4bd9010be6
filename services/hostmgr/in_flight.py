"""Launches in flight: pods that have not reached the cluster yet, and hosts that may still receive pods."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class InFlight(Generic[T]):
    """Things in flight, counted; a thing is in flight until its last launch ends. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[T] = Counter()

    @contextmanager
    def launching(self, things: Sequence[T]) -> Iterator[None]:
        with self._lock:
            self._counts.update(things)
        try:
            yield
        finally:
            with self._lock:
                self._counts.subtract(things)
                for thing in things:
                    if self._counts[thing] <= 0:
                        del self._counts[thing]

    def __contains__(self, thing: T) -> bool:
        with self._lock:
            return thing in self._counts
