"""Times in the format of the protocol."""

from __future__ import annotations

NANOS_PER_SECOND = 1_000_000_000


def in_nanoseconds(seconds: float) -> dict[str, int]:
    """Return a TimeInfo or DurationInfo."""
    return {"nanoseconds": int(seconds * NANOS_PER_SECOND)}
