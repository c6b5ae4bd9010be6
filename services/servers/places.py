"""Places of tasks of an event loop: a bounded number, of which the oldest gives way, and counts by holder."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from peloton.errors import Reason, ResourceExhausted

RETRY_AFTER_S = 1.0


class Places:
    """Places of tasks. When all are held, the task that has held one longest gives way to the next."""

    def __init__(self, count_max: int, what: str, rule: str) -> None:
        """``what``: the holders, in the error of one that gives way; ``rule``: the name of the bound there."""
        self._count_max, self._what, self._rule = count_max, what, rule
        self._holders: OrderedDict[_Holder, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    @contextmanager
    def hold(self, release: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold a place. ``release`` is called when the block gives way. Raises ResourceExhausted in it then."""
        task = asyncio.current_task()
        assert task is not None
        holder = _Holder(task, release)
        while len(self._holders) >= self._count_max:
            self._holders.popitem(last=False)[0].give_way()
        self._holders[holder] = None
        try:
            yield
        except asyncio.CancelledError:
            if not holder.has_given_way:
                raise
            task.uncancel()
            text = (
                f"{self._what} reach their bound: the oldest gives way to another; try again in {RETRY_AFTER_S:.0f} s"
            )
            raise ResourceExhausted(text, RETRY_AFTER_S).because(Reason.OVERLOADED, rule=self._rule) from None
        finally:
            self._holders.pop(holder, None)

    def free_oldest(self) -> bool:
        """Let the oldest of the other tasks give way. Returns whether there was one."""
        own = asyncio.current_task()
        oldest = next((holder for holder in self._holders if holder.task is not own), None)
        if oldest is None:
            return False
        del self._holders[oldest]
        oldest.give_way()
        return True


class Tally:
    """Counts of places by their holders."""

    def __init__(self) -> None:
        self._held = Counter[Hashable]()

    def count(self, holder: Hashable) -> int:
        return self._held[holder]

    @contextmanager
    def hold(self, holder: Hashable) -> Iterator[None]:
        """Count a place of the holder until the block ends."""
        self._held[holder] += 1
        try:
            yield
        finally:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]


class _Holder:
    def __init__(self, task: asyncio.Task[Any], release: Callable[[], None]) -> None:
        self.task, self._release, self.has_given_way = task, release, False

    def give_way(self) -> None:
        self.has_given_way = True
        self._release()
        self.task.cancel()
