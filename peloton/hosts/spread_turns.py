"""Turns of placements of a job under a hard bound on skew: each counts the pods that the previous one launched.

A host manager has the turns of its own cluster. While one is under way it does not count pods of the job for placements
in other clusters, and ``federation`` counts before the lease and again after it: of two placements that start at once
in two clusters, at least one sees the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from peloton.errors import Unavailable
from peloton.hosts.announced import Holder
from peloton.hosts.effects import event


@dataclass(slots=True)
class _Turn:
    lease_id: str
    until_s: float
    is_launching: bool = False


class SpreadTurns:
    """Turns of leases with hosts. Times are of the monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._turns: dict[Holder, _Turn] = {}

    @event()
    def check(self, holder: Holder, now_s: float) -> None:
        """Drop turns that have expired. Raises Unavailable while the job's gang, or its other pods, have a turn, and
        while pods of the job are being launched."""
        self._turns = {one: turn for one, turn in self._turns.items() if turn.is_launching or turn.until_s > now_s}
        job_id, is_gang = holder
        mine = self._turns.get(holder)
        if (job_id, not is_gang) in self._turns or (mine is not None and mine.is_launching):
            raise Unavailable(f"other pods of job {job_id} are being placed, which count for its spread")

    @event()
    def record_lease(self, holder: Holder, lease_id: str, began_s: float) -> None:
        """Begin the turn of a lease, instead of an earlier turn; the id of a lease without hosts is empty."""
        self._turns.pop(holder, None)
        if lease_id:
            self._turns[holder] = _Turn(lease_id, began_s + self._lease_s)

    @event()
    def launch_began(self, lease_id: str) -> None:
        """Keep the turn of the lease until its pods are committed."""
        for turn in self._turns.values():
            turn.is_launching |= turn.lease_id == lease_id

    @event()
    def launch_ended(self, lease_id: str) -> None:
        """End the turn of the lease, whose pods are committed or not launched."""
        self._turns = {one: turn for one, turn in self._turns.items() if turn.lease_id != lease_id}

    @event()
    def end(self, lease_id: str) -> None:
        """End the turn of a released lease, unless its pods are being launched."""
        self._turns = {one: turn for one, turn in self._turns.items() if turn.lease_id != lease_id or turn.is_launching}
