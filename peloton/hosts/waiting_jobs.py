"""Jobs that found too few hosts, and are woken when there are more."""

from __future__ import annotations

from collections.abc import Collection

from peloton.hosts.announced import Holder
from peloton.model.ids import JobId

WAITING_JOBS_MAX = 10_000
"""Limit of waiting jobs; further jobs retry on their own."""


class WaitingJobs:
    """Jobs to wake, by the holders of their leases."""

    def __init__(self) -> None:
        self._all: set[Holder] = set()
        self._for_leases: set[Holder] = set()  # holders that found hosts leased

    def add(self, holder: Holder, for_leases: bool) -> None:
        """Add a holder that found too few hosts. ``for_leases``: others are leased, so a release may be enough."""
        if len(self._all) < WAITING_JOBS_MAX:
            self._all.add(holder)
            if for_leases:
                self._for_leases.add(holder)

    def pop_all(self) -> set[JobId]:
        """Return all jobs, and forget them."""
        waiting, self._all = self._all, set()
        self._for_leases.clear()
        return {job for job, _ in waiting}

    def pop_for_leases(self, excluded: Collection[Holder]) -> set[JobId]:
        """Return the jobs that wait for the end of leases, without the excluded holders, and forget them."""
        popped = self._for_leases.difference(excluded)
        self._all -= popped
        self._for_leases -= popped
        return {job for job, _ in popped}
