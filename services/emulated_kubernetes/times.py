"""Times as objects have them: UTC, in whole seconds."""

from __future__ import annotations

import time
from calendar import timegm
from functools import lru_cache

FORM = "%Y-%m-%dT%H:%M:%S"


def stamp(wall_s: float | None = None) -> str:
    """Of now, unless another time is given."""
    return _stamp(int(time.time() if wall_s is None else wall_s))


@lru_cache(maxsize=16)
def _stamp(second: int) -> str:
    return time.strftime(f"{FORM}Z", time.gmtime(second))


def seconds_of(text: str) -> float:
    """The time of a stamp; a fraction is left out."""
    return float(timegm(time.strptime(text[:19], FORM)))
