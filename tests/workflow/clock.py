"""Virtual time, which passes only as events happen."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

START_NS = 1_800_000_000 * 10**9


class VirtualClock:
    """A heap of events by time; events of the same time happen in the order in which they were added."""

    def __init__(self) -> None:
        self._now_ns = START_NS
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def now_ns(self) -> int:
        return self._now_ns

    @property
    def elapsed_s(self) -> float:
        return (self._now_ns - START_NS) / 1e9

    def after(self, delay_s: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._heap, (self._now_ns + round(delay_s * 1e9), next(self._order), act))

    def step(self) -> bool:
        """Run the next event; False when there is none."""
        if not self._heap:
            return False
        self._now_ns, _, act = heapq.heappop(self._heap)
        act()
        return True

    def stop(self) -> None:
        """Forget all pending events."""
        self._heap.clear()
