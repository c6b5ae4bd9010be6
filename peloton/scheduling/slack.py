"""Slack: the cpu of a host that ordinary pods were given and do not use, and that revocable pods may have.

A share of the allocation is kept as a reserve, because ordinary pods can become busy faster than revocable ones can be
evicted. A rise in use counts at once, a fall little by little. While the last estimate lies between the next one and
all unused cpu it stays, so that noise changes nothing. Amounts are thousandths of a cpu.
"""

from __future__ import annotations

MARGIN_PERCENT = 10
"""Percent of the allocation kept as a reserve."""
FALL_PERCENT = 50
"""Percent of a fall in use that one estimate takes over."""
STEP = 10
"""Estimates are multiples of this, so that noise of one percent of a cpu changes nothing."""


def smooth(before: int, measured: int) -> int:
    """Return the use for the estimate: never less than the measured use."""
    return measured if measured >= before else measured + (before - measured) * (100 - FALL_PERCENT) // 100


def target(allocated: int, used: int) -> int:
    """Return the estimate as it would be if it changed now."""
    return max(0, allocated - _reserve(allocated) - used) // STEP * STEP


def estimate(last: int, allocated: int, used: int) -> int:
    """Return the next estimate after ``last``: never negative, never more than ``allocated - used``."""
    wanted = target(allocated, used)
    unused = max(0, allocated - used)
    if last > unused:
        return wanted
    is_worth_a_change = wanted - last >= max(_reserve(allocated), STEP)
    return wanted if is_worth_a_change else last


def _reserve(allocated: int) -> int:
    return -(-allocated * MARGIN_PERCENT // 100)
