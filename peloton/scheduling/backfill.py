"""Backfill: gangs that fit are admitted although one in front of them in their queue has to wait, for a bounded time.

An ordinary gang that has to wait blocks its queue at once. A gang in one of the other queues waits for its pool's
reservation, controller limit or slack, which may be held for weeks: gangs behind it that fit go first until it has been
passed for ``max_s``. From then on it blocks its queue, and has the next free resources that suffice for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from peloton.model.ids import JobId
from peloton.model.reason import NOT_BACKFILLED
from peloton.scheduling.gangs import GangRun, QueueKind

BACKFILL_MAX_S = 300
"""Default of the seconds for which a waiting gang may be passed."""
PASSED_MAX = 100
"""Limit of waiting runs of one queue that one pass passes; the next one blocks the queue."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """The seconds for which runs may still be passed: ``left_s`` by (job, start) for runs that were passed before."""

    max_s: int = BACKFILL_MAX_S
    left_s: Mapping[tuple[JobId, int], int] = field(default_factory=dict)

    def time_left_s(self, run: GangRun) -> int:
        """Return the seconds for which gangs behind the run may still go first; NOT_BACKFILLED where they never may."""
        if run.queue is QueueKind.ORDINARY:
            return NOT_BACKFILLED
        return self.left_s.get((run.job_id, run.start), self.max_s)

    def lets_pass(self, run: GangRun, passed_count: int) -> bool:
        """Return whether gangs behind the run go first, after ``passed_count`` others of its queue were passed."""
        return passed_count < PASSED_MAX and self.time_left_s(run) > 0


DEFAULT_BACKFILL = Backfill()
