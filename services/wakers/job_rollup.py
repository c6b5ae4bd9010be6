"""Roll-up of pods: counts of jobs whose pods changed are stored together, also the end of a job; only jobs that need
more are woken; those that have ended receive their end.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from peloton.model.ids import JobId
from peloton.model.job import RolledUp
from services.wakers.job_waker import JobWaker

log = logging.getLogger(__name__)

COUNTED_JOBS_MAX = 2_000
"""Jobs whose pods one query counts."""


class JobRollUp:
    """Implements ``ports.PodLifecycles``: stores the counts of pods by ``roll_up``, ``interval_s`` apart, and passes on
    the jobs to wake. Construct it in its event loop.
    """

    def __init__(
        self,
        roll_up: Callable[[Sequence[JobId], int], RolledUp],
        waker: JobWaker,
        interval_s: float,
    ) -> None:
        self._roll_up, self._waker, self._interval_s = roll_up, waker, interval_s
        self._lock = threading.Lock()
        self._to_count: dict[JobId, set[str]] = {}  # jobs whose pods changed, with the causes
        self._is_count_due = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._counting = self._loop.create_task(self._count(), name="counting of changed pods")

    async def close(self) -> None:
        self._counting.cancel()
        await asyncio.gather(self._counting, return_exceptions=True)

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        self._waker.jobs_changed(job_ids, cause)

    def pods_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        with self._lock:
            before = len(self._to_count)
            for job_id in job_ids:
                self._to_count.setdefault(job_id, set()).add(cause)
            if before or not self._to_count:
                return
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._is_count_due.set)

    async def _count(self) -> None:
        while True:
            await self._is_count_due.wait()
            with self._lock:
                chosen = {key: self._to_count.pop(key) for key in list(self._to_count)[:COUNTED_JOBS_MAX]}
                if not self._to_count:
                    self._is_count_due.clear()
            if quiet := {key: causes for key, causes in chosen.items() if not self._waker.has_queued(key)}:
                await self._count_jobs(quiet)
            await asyncio.sleep(self._interval_s)

    async def _count_jobs(self, quiet: Mapping[JobId, Iterable[str]]) -> None:
        """Update the counts of pods, except for jobs in the queue of signals, whose workflows count them."""
        try:
            rolled = await asyncio.to_thread(self._roll_up, sorted(quiet), time.time_ns())
        except Exception as error:  # of storage: the workflows read again, and retry
            log.warning("pods of %d jobs not counted, retrying: %s", len(quiet), error)
            rolled = RolledUp(list(quiet), [])
        for job_id in rolled.needs_work:
            for cause in quiet[job_id]:
                self._waker.jobs_changed([job_id], cause)
        self._waker.show_later(rolled.display_only)
        self._waker.jobs_ended(rolled.ended)
