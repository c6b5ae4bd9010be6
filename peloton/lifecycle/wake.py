"""When the workflow of a job is woken although no signal has reached it.

Each change of a job by others than its workflow notes a wake-up in the transaction of the change, and the settle that
counts the change takes the note back. A note that stays has lost its signal: a sweep finds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.job import JobProgress
from peloton.model.times import NS_PER_S

TIMER_GRACE_S = 60
"""A workflow has a timer of its own for its next deadline. A sweep wakes it when that timer is so late."""
LOOK_S = 240
"""Until a job is looked at, and the grace, while workflows that it started are under way, which might fail silently, or
while its service is being created."""


@dataclass(frozen=True, slots=True)
class Wake:
    """The note of a job. ``noted_ns``: rises with each change; ``due_ns``: a sweep wakes the workflow from then on."""

    noted_ns: int
    due_ns: int

    @property
    def is_unseen(self) -> bool:
        """The workflow has yet to look at the last change."""
        return self.due_ns <= self.noted_ns


def next_due_ns(wake: Wake | None, progress: JobProgress, now_ns: int) -> int | None:
    """The new ``due_ns`` after a settle that saw this note: 0 = forget the note, None = it stays as it is.

    A deadline, an update and a launch of a gang begin with a change, which has a note; so a settle without a change
    writes nothing.
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
    """Seconds until the job is to be looked at though nothing changes; 0 = never."""
    has_others = progress.update_id or progress.creation_id or progress.gang_run or progress.hosts_wait
    waits = (progress.deadline_s, LOOK_S if has_others else 0.0)
    return min((wait for wait in waits if wait), default=0.0)


def shown_by_ns(wake: Wake | None, now_ns: int) -> int | None:
    """The new ``due_ns`` of a job that was counted without its workflow, which is woken soon to show the counts."""
    return None if wake is None else now_ns + TIMER_GRACE_S * NS_PER_S
