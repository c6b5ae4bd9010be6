"""Timeouts of waits: short on a quiet machine, so that a failure is reported soon, and longer on a busy one."""

from __future__ import annotations

import os
from collections.abc import Callable

Condition = Callable[..., bool]
"""A function whose further parameters have defaults, as those of a lambda in a loop."""

QUIET_S = 30.0
"""Seconds in which anything that a test waits for comes on a quiet machine."""
LONGEST_S = 180.0
"""Less than the five minutes after which workflows check by themselves: a lost wake-up is a failure."""
POLLS_PER_WAIT = 8


def timeout_s(quiet_s: float = QUIET_S) -> float:
    """Return ``quiet_s`` times the load average per core, at least ``quiet_s`` and at most ``LONGEST_S``.

    Ask again at each check: the load average follows a load that begins during the wait only after some seconds.
    """
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return max(quiet_s, min(quiet_s * load, LONGEST_S))


def pause_s(waited_s: float, least_s: float, most_s: float) -> float:
    """Return the pause before the next poll, an eighth of the time waited so far: polls take much of the CPU of a test
    that waits for long, and a short wait still ends soon.
    """
    return min(max(least_s, waited_s / POLLS_PER_WAIT), most_s)
