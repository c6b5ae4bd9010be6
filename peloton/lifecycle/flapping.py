"""Hosts that leave their cluster and come back again and again: from when on pods rather go elsewhere, and how long.

A host that has just come back looks empty, and loses what it gets. As in ``avoidance``, each time it happens again the
host is avoided for twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass

from peloton.lifecycle.avoidance import FOR_ALL
from peloton.model.reason import HostRule, Misfit

RETURNS_MIN = 3
WINDOW_S = 600.0
"""A host that came back so often within this time is avoided."""


@dataclass(frozen=True, slots=True)
class Returns:
    """What is remembered of a host. ``times``: how often it has been avoided lately."""

    at_s: tuple[float, ...] = ()
    times: int = 0
    until_s: float = 0.0
    why: Misfit = Misfit(HostRule.FLAPPING)  # noqa: RUF009 - frozen

    def is_avoided(self, now_s: float) -> bool:
        return now_s < self.until_s

    def is_over(self, now_s: float) -> bool:
        """A new record would say as much."""
        is_old = not self.at_s or now_s - self.at_s[-1] > WINDOW_S
        return is_old and (not self.times or now_s - self.until_s > FOR_ALL.longest_s)


def after_return(record: Returns, now_s: float, may_avoid: bool) -> Returns:
    """The host was gone and is back. ``may_avoid``: else it is only remembered."""
    at_s = (*(at for at in record.at_s if now_s - at <= WINDOW_S), now_s)[-RETURNS_MIN:]
    if len(at_s) < RETURNS_MIN or not may_avoid or record.is_avoided(now_s):
        return Returns(at_s, record.times, record.until_s, record.why)
    times = record.times + 1 if now_s - record.until_s <= FOR_ALL.longest_s else 1
    seconds = min(FOR_ALL.first_s * 2.0 ** (times - 1), FOR_ALL.longest_s)
    within_s = max(round(now_s - at_s[0]), 1)
    return Returns((), times, now_s + seconds, Misfit(HostRule.FLAPPING, wanted=len(at_s), left=within_s))
