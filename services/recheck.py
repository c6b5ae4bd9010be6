"""The pace of a question that reads as much as there are jobs, and whose answer changes only after an event."""

from __future__ import annotations

import time
from collections.abc import Callable

LAG_S = 120.0
"""Seconds after an event in which lists of Temporal may still lag behind it, and workers come and go."""
REST_S = 600.0
"""Seconds between two questions while no event is seen, in case that one was missed."""


class Recheck:
    """The question is due with each look for LAG_S after an event, and else every REST_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: object = None
        self._event_s = self._asked_s = float("-inf")

    def is_due(self, seen: object) -> bool:
        """Return whether to ask now. ``seen`` differs from the last one after an event. It is to be called with each
        look, also where nothing can be asked: an event that is taken back is two events."""
        now_s = self._clock()
        if seen != self._seen:
            self._seen, self._event_s = seen, now_s
        return now_s - self._event_s < LAG_S or now_s - self._asked_s >= REST_S

    def note_answer(self, has_found: bool) -> None:
        """Note that the question was answered. One that has found something may find more, and is due again."""
        self._asked_s = self._clock()
        if has_found:
            self._event_s = self._asked_s
