"""Gangs that others have passed in their queue, and since when: the clock of backfill.

No row stores it: a new leader of the resource manager starts the clock again.
"""

from __future__ import annotations

from collections.abc import Mapping

from peloton.model.ids import JobId
from peloton.model.times import NS_PER_S
from peloton.scheduling.admission import Admission
from peloton.scheduling.backfill import BACKFILL_MAX_S, Backfill
from services.resmgr.ledger import PENDING, JobLedger


class PassedGangs:
    """The waiting runs that others pass, by (job, start).

    A cycle adds at most ``PASSED_MAX`` of a queue, and drops runs that no longer wait.
    """

    def __init__(self, max_s: int = BACKFILL_MAX_S) -> None:
        self.max_s = max_s
        self._since_ns: dict[tuple[JobId, int], int] = {}

    def note(self, admission: Admission, jobs: Mapping[JobId, JobLedger], now_ns: int) -> None:
        """Add the runs that a cycle lets others pass, and drop runs that no longer wait.

        The rest of a run that was admitted in part keeps its clock.
        """
        rests = {(one.run.job_id, one.run.start): one.rest_start for one in admission.admitted if one.is_part}
        for (job_id, start), rest_start in rests.items():
            if (job_id, start) in self._since_ns:
                self._since_ns.setdefault((job_id, rest_start), self._since_ns[job_id, start])
        for key in [key for key in self._since_ns if not _waits(jobs, *key)]:
            del self._since_ns[key]
        for job_id, start in admission.passed:
            self._since_ns.setdefault((job_id, rests.get((job_id, start), start)), now_ns)

    def backfill(self, now_ns: int) -> Backfill:
        """Return the whole seconds for which each run may still be passed."""
        most_ns = self.max_s * NS_PER_S
        left_ns = {key: since_ns + most_ns - now_ns for key, since_ns in self._since_ns.items()}
        return Backfill(self.max_s, {key: max(-(-left // NS_PER_S), 0) for key, left in left_ns.items()})


def _waits(jobs: Mapping[JobId, JobLedger], job_id: JobId, start: int) -> bool:
    ledger = jobs.get(job_id)
    return ledger is not None and start < len(ledger.states) and bool(ledger.states[start] == PENDING)
