"""The ports of leadership: an election of one role, and the directory in which other processes find its leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from services.fence import Fence


class Election(Protocol):
    """Candidacy of this process for one role. ``fence`` passes its writes and messages while it leads."""

    @property
    def fence(self) -> Fence: ...

    async def win(self, stand_by: Callable[[], None] = lambda: None) -> None:
        """Return when this process leads, with an epoch above those of all leaders before; call ``stand_by`` when
        another process leads."""

    async def announce(self, address: str) -> None:
        """Publish the address of this leader. Raises Unavailable when leadership is already lost."""

    async def hold(self) -> None:
        """Raise Unavailable when leadership is lost. The process must stop acting as leader at once."""

    async def resign(self) -> None:
        """Let the next process lead at once."""


class Directory(Protocol):
    """Addresses of leaders. Times are unix seconds."""

    def leader(self, role: str, now_s: float) -> str | None:
        """Return the address of the leader, "" before it serves; None when there is none."""
        ...

    def clusters(self, now_s: float) -> dict[str, str]:
        """Return all clusters -> address of the leader, empty without a leader."""
        ...
