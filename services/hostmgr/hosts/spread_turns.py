"""Turns of placements of a job under a hard bound on skew: each counts the pods that the previous one launched.

A host manager has the turns of its own cluster. While one is under way it does not count pods of the job for placements
in other clusters, and ``federation`` counts before the lease and again after it: of two placements that start at once
in two clusters, at least one sees the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from peloton.errors import Unavailable
from peloton.model.host import HostLease
from peloton.model.ids import JobId

Holder = tuple[JobId, bool]
"""A job's pods outside a gang, or its gang."""


@dataclass(slots=True)
class _Turn:
    lease_id: str
    until_s: float
    is_launching: bool = False


class SpreadTurns:
    def __init__(self, lease_s: float, clock: Callable[[], float]) -> None:
        self._lease_s, self._clock = lease_s, clock
        self._leasing = threading.Lock()  # from the count of pods to the lease
        self._lock = threading.Lock()
        self._turns: dict[Holder, _Turn] = {}

    def lease(self, holder: Holder, lease: Callable[[], HostLease]) -> HostLease:
        """Counts pods and leases hosts. Raises Unavailable while the job's gang, or its other pods, have a lease with
        hosts, and while pods of the job are being launched."""
        with self._leasing:
            self.check(holder)
            began_s = self._clock()
            found = lease()
            with self._lock:
                self._turns.pop(holder, None)
                if found.hosts:
                    self._turns[holder] = _Turn(found.lease_id, began_s + self._lease_s)
            return found

    def check(self, holder: Holder) -> None:
        """Raises Unavailable while another turn of the job is under way."""
        with self._lock:
            now_s = self._clock()
            kept = {one: turn for one, turn in self._turns.items() if turn.is_launching or turn.until_s > now_s}
            self._turns = kept
            job_id, is_gang = holder
            mine = kept.get(holder)
            if (job_id, not is_gang) in kept or (mine is not None and mine.is_launching):
                raise Unavailable(f"other pods of job {job_id} are being placed, which count for its spread")

    @contextmanager
    def launching(self, lease_id: str) -> Iterator[None]:
        """Keeps the turn of the lease until its pods are committed."""
        with self._lock:
            own = [turn for turn in self._turns.values() if turn.lease_id == lease_id]
            for turn in own:
                turn.is_launching = True
        try:
            yield
        finally:
            for turn in own:
                turn.is_launching = False
            self.end(lease_id)

    def end(self, lease_id: str) -> None:
        """Ends the turn of a released lease, unless its pods are being launched."""
        with self._lock:
            self._turns = {
                one: turn for one, turn in self._turns.items() if turn.lease_id != lease_id or turn.is_launching
            }
