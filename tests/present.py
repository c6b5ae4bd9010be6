"""Values that may be absent by their type, and never are in a test."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def require(value: T | None) -> T:
    """Return a value that is there, and fail for None."""
    assert value is not None
    return value
