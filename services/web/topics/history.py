"""Shared parts of charts: time ranges, and series whose values are null where no sample was recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence

from peloton.api.convert_time import rfc3339
from peloton.errors import InvalidArgument
from peloton.model.text import quote
from peloton.model.times import NS_PER_S

HOUR_S = 3_600
HOURS = (1, 6, 24, 168, 720, 8_760)
"""Time ranges of charts, in hours."""
DIGITS = 3

Values = list[float | None]


def start_of(hours: str) -> str:
    """Return the start of a time range as RFC 3339.

    Raises InvalidArgument for other numbers of hours, since each range is a separately polled topic.
    """
    if hours not in map(str, HOURS):
        raise InvalidArgument(f"{quote(hours)} hours: want {', '.join(map(str, HOURS))}")
    return rfc3339(time.time_ns() - int(hours) * HOUR_S * NS_PER_S)


def with_gaps(values: Sequence[float], covered_s: Sequence[int]) -> Values:
    return [round(value, DIGITS) if covered else None for value, covered in zip(values, covered_s, strict=True)]
