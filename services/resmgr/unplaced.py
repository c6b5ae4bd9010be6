"""The last placement reason of jobs with pods for which no host was found."""

from __future__ import annotations

from collections.abc import Container

from peloton.model.ids import JobId
from peloton.model.reason import PlacementReason

JOBS_MAX = 10_000
"""Limit of jobs; the oldest are forgotten."""


class Unplaced:
    def __init__(self) -> None:
        self._notes: dict[JobId, tuple[int, PlacementReason]] = {}  # the oldest first

    def note(self, job_id: JobId, count: int, why: PlacementReason) -> None:
        self.forget(job_id)
        self._notes[job_id] = (count, why)
        while len(self._notes) > JOBS_MAX:
            self.forget(next(iter(self._notes)))

    def forget(self, job_id: JobId) -> None:
        self._notes.pop(job_id, None)

    def of(self, job_id: JobId) -> tuple[int, PlacementReason]:
        """Return how many pods of the job the last placement left without a host, and why."""
        return self._notes.get(job_id, (0, ()))

    def latest(self) -> list[tuple[JobId, PlacementReason]]:
        """Return the jobs and reasons, the latest first."""
        return [(job_id, why) for job_id, (_, why) in reversed(self._notes.items())]

    def keep(self, jobs: Container[JobId]) -> None:
        """Forget all jobs but these."""
        self._notes = {job_id: note for job_id, note in self._notes.items() if job_id in jobs}
