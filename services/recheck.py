"""Decides when an expensive check is due: one that reads every job, and whose result changes only after an event."""

from __future__ import annotations

import time
from collections.abc import Callable

LAG_S = 120.0
"""Seconds after an event in which Temporal's lists may lag behind, and workers may start and stop."""
REST_S = 600.0
"""Seconds between checks without an event, in case one was missed."""


class Recheck:
    """Makes a check due in every cycle for LAG_S after an event, and otherwise every REST_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: object = None
        self._event_s = self._checked_s = float("-inf")

    def is_due(self, seen: object) -> bool:
        """Return whether to check now. A changed value of ``seen`` is an event. The method must be called in every
        cycle, even if no check is possible, so that no change of the value is missed.
        """
        now_s = self._clock()
        if seen != self._seen:
            self._seen, self._event_s = seen, now_s
        return now_s - self._event_s < LAG_S or now_s - self._checked_s >= REST_S

    def record_check(self, has_found: bool) -> None:
        """Record that the check ran. If it found something, it may find more and is due again."""
        self._checked_s = self._clock()
        if has_found:
            self._event_s = self._checked_s
