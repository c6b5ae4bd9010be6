"""Units of time. Stored times are unix nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NS_PER_S = 1_000_000_000
_EPOCH = datetime.fromtimestamp(0, UTC)


def unix_ns(moment: datetime | None) -> int:
    """Return a moment with its zone as unix nanoseconds; 0 for none."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1_000 if moment is not None else 0
