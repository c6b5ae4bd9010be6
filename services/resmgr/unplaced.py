"""What placement said last of jobs with pods for which it found no host."""

from __future__ import annotations

from collections.abc import Container

from peloton.model.ids import JobId
from peloton.model.reason import PlacementReason

JOBS_MAX = 10_000
"""The oldest are forgotten."""


class Unplaced:
    def __init__(self) -> None:
        self._notes: dict[JobId, tuple[int, PlacementReason]] = {}  # by when they were made

    def note(self, job_id: JobId, count: int, why: PlacementReason) -> None:
        self.forget(job_id)
        self._notes[job_id] = (count, why)
        while len(self._notes) > JOBS_MAX:
            self.forget(next(iter(self._notes)))

    def forget(self, job_id: JobId) -> None:
        self._notes.pop(job_id, None)

    def of(self, job_id: JobId) -> tuple[int, PlacementReason]:
        """How many pods of the job the last placement left without a host, and why."""
        return self._notes.get(job_id, (0, ()))

    def latest(self) -> list[tuple[JobId, PlacementReason]]:
        """The latest first."""
        return [(job_id, why) for job_id, (_, why) in reversed(self._notes.items())]

    def keep(self, jobs: Container[JobId]) -> None:
        """Forget all others."""
        self._notes = {job_id: note for job_id, note in self._notes.items() if job_id in jobs}
