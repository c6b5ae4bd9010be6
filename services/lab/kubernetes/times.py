"""Timestamps of objects: UTC, in whole seconds."""

from __future__ import annotations

import time
from calendar import timegm
from functools import lru_cache

FORM = "%Y-%m-%dT%H:%M:%S"


def stamp(wall_s: float | None = None) -> str:
    """Return the timestamp of a time, by default of now."""
    return _stamp(int(time.time() if wall_s is None else wall_s))


@lru_cache(maxsize=16)
def _stamp(second: int) -> str:
    return time.strftime(f"{FORM}Z", time.gmtime(second))


def seconds_of(text: str) -> float:
    """Return the time of a timestamp without its fraction."""
    return float(timegm(time.strptime(text[:19], FORM)))
