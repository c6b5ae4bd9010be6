"""The clock of a replay, which stops while the replay is late."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from services.emulation.clock import Clock

# Turns of the event loop after which all that was under way between the cluster and us has arrived.
QUIET_TURNS = 40
# The clock stands still during a call until this process has done nothing for so many waits of LOOK_S real seconds in a
# row, or for LOOKS_MAX of them: then the call may need it to go on. The cluster and its client are this one process.
STILL_LOOKS = 10
LOOKS_MAX = 200
LOOK_S = 0.05
BUSY_S = 0.005
"""Of CPU during one wait."""
INSTANT_S = 1e-6


class PacedClock(Clock):
    """On a busy machine the replay reaches a line late. If the clock went on meanwhile, an allocation tick or the end
    of a task could come before a call that precedes it in the recording."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self._until = math.inf

    def now(self) -> float:
        now = super().now()
        if now > self._until:
            self._start += (now - self._until) / self.scale
            now = self._until
            self._until += INSTANT_S  # no two moments are the same
        return now

    async def go_on_to(self, due: float) -> None:
        """Waits until the clock reaches ``due``, where it stops, and until all that was sent has arrived."""
        self._until = max(due, self.now())
        while (left := due - self.now()) > 0:
            await asyncio.sleep(left / self.scale)
        for _ in range(QUIET_TURNS):
            await asyncio.sleep(0)

    def run_on(self) -> None:
        self.now()  # what it stood still does not count
        self._until = math.inf

    @contextmanager
    def still(self) -> Iterator[None]:
        self._until = self.now()
        waking = asyncio.create_task(self._run_on_later())
        try:
            yield
        finally:
            waking.cancel()

    async def _run_on_later(self) -> None:
        still = 0
        for _ in range(LOOKS_MAX):
            began_s = time.process_time()
            await asyncio.sleep(LOOK_S)
            still = 0 if time.process_time() - began_s > BUSY_S else still + 1
            if still == STILL_LOOKS:
                break
        self.run_on()
