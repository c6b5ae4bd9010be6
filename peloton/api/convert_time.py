"""Conversion of times from unix nanoseconds to the wire: RFC 3339 in UTC. 0 is "unset", the empty text."""

from __future__ import annotations

from datetime import UTC, datetime

from peloton.model.times import NS_PER_S


def rfc3339(time_ns: int) -> str:
    """Return the time with the needed digits of the second: none for a whole second, nine for a nanosecond."""
    if time_ns == 0:
        return ""
    seconds, nanos = divmod(time_ns, NS_PER_S)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{_clock(seconds)}{fraction}Z"


def unix_seconds(text: str) -> int:
    """Return the unix seconds of a time in RFC 3339, in UTC if it names no zone; fractions are dropped. Raises
    ValueError, OverflowError."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def rfc3339_seconds(time_ns: int) -> str:
    return f"{_clock(time_ns // NS_PER_S)}Z" if time_ns else ""


def _clock(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
