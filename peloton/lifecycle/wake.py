"""Wake-ups of job workflows that no signal has reached.

Each change of a job by other actors than its workflow stores a wake-up in the same transaction, and the settle that
counts the change deletes it. A remaining wake-up means a lost signal; a sweep finds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.job import JobProgress
from peloton.model.times import NS_PER_S

TIMER_GRACE_S = 60
"""Seconds by which a workflow's own timer for its next deadline may be late before a sweep wakes it."""
POLL_S = 240
"""Seconds between polls of a job, plus the grace, while workflows that it started are under way, which might fail
without a signal, or while its service is being created."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Stored wake-up of a job. ``noted_ns`` rises with each change; a sweep wakes the workflow from ``due_ns`` on."""

    noted_ns: int
    due_ns: int

    @property
    def is_unseen(self) -> bool:
        """True if the workflow has not seen the last change."""
        return self.due_ns <= self.noted_ns


def next_due_ns(wake: Wake | None, progress: JobProgress, now_ns: int) -> int | None:
    """Return the new ``due_ns`` after a settle that saw this wake-up: 0 = delete it, None = unchanged.

    Deadlines, updates and gang launches begin with a change, which has a wake-up; so a settle without a change writes
    nothing.
    """
    if wake is None:
        return None
    wait_s = _wait_s(progress)
    if not wait_s:
        return 0
    if not (wake.is_unseen or wake.due_ns <= now_ns):
        return None
    return now_ns + int((wait_s + TIMER_GRACE_S) * NS_PER_S)


def _wait_s(progress: JobProgress) -> float:
    """Return the seconds until the job has to be polled without a change; 0 = never."""
    has_others = progress.update_id or progress.creation_id or progress.gang_run or progress.hosts_wait
    waits = (progress.deadline_s, POLL_S if has_others else 0.0)
    return min((wait for wait in waits if wait), default=0.0)


def shown_by_ns(wake: Wake | None, now_ns: int) -> int | None:
    """Return the new ``due_ns`` of a job counted without its workflow, which is woken soon to show the counts."""
    return None if wake is None else now_ns + TIMER_GRACE_S * NS_PER_S
