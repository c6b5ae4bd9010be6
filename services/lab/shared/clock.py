"""Scaled time, and one heap of timers for the whole cluster: simulated tasks need no asyncio timers of their own."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class Timer:
    """A pending call; `cancel` makes the heap skip it."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.function: Callable[..., None] | None = function
        self.args = args

    def cancel(self) -> None:
        self.function = None
        self.args = ()


class Clock:
    """A clock of scaled time: `now` is protocol seconds since the start, `wall` the matching Unix time."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._start = time.monotonic()
        self._start_wall = time.time()
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._handle_due = 0.0

    def now(self) -> float:
        return (time.monotonic() - self._start) * self.scale

    def wall(self) -> float:
        return self._start_wall + self.now()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arm()

    def stop(self) -> None:
        """Forget every timer; nothing fires afterwards."""
        self._heap.clear()
        self._loop = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def call_later(self, delay_s: float, function: Callable[..., None], *args: Any) -> Timer:
        return self.call_at(self.now() + delay_s, function, *args)

    def call_at(self, due: float, function: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(function, args)
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, timer))
        if self._handle is None or due < self._handle_due:
            self._arm()
        return timer

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        await future

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap and self._loop is not None:
            self._handle_due = self._heap[0][0]
            delay = max(0.0, (self._handle_due - self.now()) / self.scale)
            self._handle = self._loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        """Run the timers that are due; timers added meanwhile wait for the next iteration of the loop."""
        self._handle = None
        self._handle_due = float("inf")
        heap = self._heap
        # A little slack: timers a millisecond apart share one wake-up.
        limit = self.now() + 0.001 * self.scale
        due = []
        while heap and heap[0][0] <= limit:
            due.append(heapq.heappop(heap)[2])
        for timer in due:
            function = timer.function
            if function is None:
                continue
            timer.function = None
            try:
                function(*timer.args)
            except Exception:
                # One broken timer must not silence the others (heartbeats, retries).
                log.exception("timer %r failed", function)
        self._arm()
