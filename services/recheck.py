"""Pace of a check that reads every job, and whose result changes only after an event."""

from __future__ import annotations

import time
from collections.abc import Callable

LAG_S = 120.0
"""Seconds after an event for which lists of Temporal may lag behind it, and workers start and stop."""
REST_S = 600.0
"""Seconds between two checks without an event, in case one was missed."""


class Recheck:
    """Decides when a check is due: each time for LAG_S after an event, otherwise every REST_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: object = None
        self._event_s = self._asked_s = float("-inf")

    def is_due(self, seen: object) -> bool:
        """Return whether to check now. ``seen`` differs from the previous value after an event. Call it in every cycle,
        even when no check is possible: an event that is undone counts as two.
        """
        now_s = self._clock()
        if seen != self._seen:
            self._seen, self._event_s = seen, now_s
        return now_s - self._event_s < LAG_S or now_s - self._asked_s >= REST_S

    def note_answer(self, has_found: bool) -> None:
        """Note that the check ran. One that found something may find more, and is due again."""
        self._asked_s = self._clock()
        if has_found:
            self._event_s = self._asked_s
