"""Avoidance of flapping hosts, which leave their cluster and return repeatedly: the rule, and the duration.

A host that has just returned looks empty, and soon loses the pods placed on it. As in ``avoidance``, each repetition
doubles the time for which the host is avoided.
"""

from __future__ import annotations

from dataclasses import dataclass

from peloton.lifecycle.avoidance import FOR_ALL
from peloton.model.misfit import FlappingHost, HostRule, Misfit, Refused

RETURNS_MIN = 3
WINDOW_S = 600.0
"""Seconds within which RETURNS_MIN returns make a host avoided."""


@dataclass(frozen=True, slots=True)
class Returns:
    """Returns of a host. ``times``: recent number of times that the host was avoided."""

    at_s: tuple[float, ...] = ()
    times: int = 0
    until_s: float = 0.0
    why: Misfit = Refused(HostRule.FLAPPING)  # noqa: RUF009 - frozen

    def is_avoided(self, now_s: float) -> bool:
        return now_s < self.until_s

    def is_over(self, now_s: float) -> bool:
        """True if the record equals a new one."""
        is_old = not self.at_s or now_s - self.at_s[-1] > WINDOW_S
        return is_old and (not self.times or now_s - self.until_s > FOR_ALL.longest_s)


def after_return(record: Returns, now_s: float, may_avoid: bool) -> Returns:
    """Return the record after a return of the host. Unless ``may_avoid``, the return is only counted."""
    at_s = (*(at for at in record.at_s if now_s - at <= WINDOW_S), now_s)[-RETURNS_MIN:]
    if len(at_s) < RETURNS_MIN or not may_avoid or record.is_avoided(now_s):
        return Returns(at_s, record.times, record.until_s, record.why)
    times = record.times + 1 if now_s - record.until_s <= FOR_ALL.longest_s else 1
    seconds = min(FOR_ALL.first_s * 2.0 ** (times - 1), FOR_ALL.longest_s)
    within_s = max(round(now_s - at_s[0]), 1)
    return Returns((), times, now_s + seconds, FlappingHost(len(at_s), within_s))
