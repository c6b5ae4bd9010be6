"""How much revocable cpu an agent tells its master of. No I/O, no clock; amounts are thousandths of a cpu.

Slack is what ordinary tasks were promised and do not use. A share of the promise is held back, for work that wakes up
faster than revocable tasks can leave. Use that rises counts at once, use that falls counts little by little; and while
the last word lies between the estimate and all that is unused, it stands: an offer is not withdrawn for noise.
"""

from __future__ import annotations

MARGIN_PERCENT = 10
"""Of the allocation, held back."""
FALL_PERCENT = 50
"""Of a fall in use that one estimate believes."""
STEP = 10
"""Estimates are multiples of this: Mesos offers no less cpu than 0.01."""


def smoothed(before: int, measured: int) -> int:
    """Use as the estimate sees it: never less than what was measured."""
    return measured if measured >= before else measured + (before - measured) * (100 - FALL_PERCENT) // 100


def target(allocated: int, used: int) -> int:
    """What may be told at most when the last word is to change."""
    return max(0, allocated - _reserve(allocated) - used) // STEP * STEP


def estimate(told: int, allocated: int, used: int) -> int:
    """The next word after ``told``: never negative, never more than ``allocated - used``."""
    wanted = target(allocated, used)
    unused = max(0, allocated - used)
    if told > unused:
        return wanted
    is_worth_telling = wanted - told >= max(_reserve(allocated), STEP)
    return wanted if is_worth_telling else told


def _reserve(allocated: int) -> int:
    return -(-allocated * MARGIN_PERCENT // 100)
