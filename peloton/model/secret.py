"""Secrets of jobs: files that all containers of a job have."""

from __future__ import annotations

from dataclasses import dataclass, field

SECRETS_MAX = 20
"""Of one job."""
SECRETS_BYTES_MAX = 64 * 1024
"""Of all secrets of one job: they travel with each launch."""


@dataclass(frozen=True, slots=True)
class Secret:
    """``revision`` rises when the data is replaced in place. Without data it refers to one that is stored."""

    secret_id: str
    path: str
    data: bytes = field(default=b"", repr=False)
    revision: int = 0
