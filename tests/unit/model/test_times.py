"""Conversion of timestamps to unix nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from peloton.model.times import unix_ns


def test_a_moment_is_reported_to_the_microsecond_in_any_zone() -> None:
    """Microseconds are exact in any time zone, which floats are not."""
    moment = datetime(2026, 11, 27, 3, 4, 5, 123_457, UTC)

    assert 1_795_748_645_123_457_000 == unix_ns(moment)
    assert unix_ns(moment) == unix_ns(moment.astimezone(timezone(timedelta(hours=2))))
    assert 0 == unix_ns(None)
