"""How much of a host's slack revocable pods may have: cpu that ordinary pods were given and do not use.

A share of what they were given is held back, because ordinary pods can become busy faster than revocable ones can be
evicted. A rise in use counts at once, a fall little by little. While the last estimate lies between the next one and
all that is unused it stays, so that noise changes no room. Amounts are thousandths of a cpu."""

from __future__ import annotations

MARGIN_PERCENT = 10
"""Of the allocation, held back."""
FALL_PERCENT = 50
"""Of a fall in use that one estimate believes."""
STEP = 10
"""Estimates are multiples of this, so that noise of one percent of a cpu changes nothing."""


def smoothed(before: int, measured: int) -> int:
    """Use for the estimate: never less than what was measured."""
    return measured if measured >= before else measured + (before - measured) * (100 - FALL_PERCENT) // 100


def target(allocated: int, used: int) -> int:
    """The estimate, when it changes."""
    return max(0, allocated - _reserve(allocated) - used) // STEP * STEP


def estimate(last: int, allocated: int, used: int) -> int:
    """The next one after ``last``: never negative, never more than ``allocated - used``."""
    wanted = target(allocated, used)
    unused = max(0, allocated - used)
    if last > unused:
        return wanted
    is_worth_a_change = wanted - last >= max(_reserve(allocated), STEP)
    return wanted if is_worth_a_change else last


def _reserve(allocated: int) -> int:
    return -(-allocated * MARGIN_PERCENT // 100)
