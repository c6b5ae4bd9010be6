"""Times on the wire are RFC 3339 texts with up to nine digits of fraction."""

from __future__ import annotations

import re
from datetime import UTC, datetime


def parse_time(text: str) -> datetime | None:
    """Parse a time; None for an empty or malformed text. Fractions beyond microseconds are dropped."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def seconds_between(start: str, stop: str) -> float | None:
    first, last = parse_time(start), parse_time(stop)
    return (last - first).total_seconds() if first and last else None


def start_text(start: str) -> str:
    """Return a time of any precision in whole seconds; empty when there is none."""
    moment = parse_time(start)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else ""


def run_text(start: str, stop: str) -> str:
    """Return how long a run took, or has taken until now; empty before its start."""
    first = parse_time(start)
    return clock_text(((parse_time(stop) or datetime.now(UTC)) - first).total_seconds()) if first else ""


def clock_text(seconds: float) -> str:
    """Format seconds as HH:MM:SS, with as many hours as it takes."""
    whole = max(0, int(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def seconds_text(time_text: str) -> str:
    """Return an RFC 3339 time without fractions of a second; ``--`` when there is none."""
    return f"{time_text.partition('.')[0].removesuffix('Z')}Z" if time_text else "--"
