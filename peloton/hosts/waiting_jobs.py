"""Jobs that found too few hosts, and are woken when there are more."""

from __future__ import annotations

from collections.abc import Collection

from peloton.hosts.announced import Holder
from peloton.model.ids import JobId

WAITING_JOBS_MAX = 10_000
"""Limit of waiting jobs; further jobs retry on their own."""


class WaitingJobs:
    def __init__(self) -> None:
        self._all: set[Holder] = set()
        self._for_leases: set[Holder] = set()  # holders that found hosts leased

    def add(self, holder: Holder, for_leases: bool) -> None:
        if len(self._all) < WAITING_JOBS_MAX:
            self._all.add(holder)
            if for_leases:
                self._for_leases.add(holder)

    def pop_all(self) -> set[JobId]:
        waiting, self._all = self._all, set()
        self._for_leases.clear()
        return {job for job, _ in waiting}

    def pop_for_leases(self, apart: Collection[Holder]) -> set[JobId]:
        popped = self._for_leases.difference(apart)
        self._all -= popped
        self._for_leases -= popped
        return {job for job, _ in popped}
