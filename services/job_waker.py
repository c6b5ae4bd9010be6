"""Waker of jobs, which also counts the pods that changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from temporalio.client import Client

from peloton.model.ids import JobId
from peloton.model.job import RolledUp
from services.lifecycles import JOB
from services.storage.storage import Storage
from services.wake_line import Due, Rank
from services.waker import Waker
from workflows.policies import Policies

log = logging.getLogger(__name__)

COUNTED_JOBS_MAX = 2_000
"""Jobs whose pods one query counts."""
SHOW_S = 5.0
"""Seconds until a job is signalled whose counts of pods are its only change."""


class JobWaker(Waker):
    """Implements ``ports.PodLifecycles``. A job whose only change is in its counts of pods is signalled after
    ``show_s``, unless it is signalled earlier for another reason.
    """

    def __init__(
        self, client: Client, stored: Storage, policies: Policies, *, show_s: float = SHOW_S, **options: Any
    ) -> None:
        super().__init__(JOB, client, stored, policies, **options)
        self._show_s = show_s
        self._to_count: dict[str, set[str]] = {}  # jobs whose pods changed, with the causes
        self._is_count_due = asyncio.Event()
        self._shown_later: dict[str, asyncio.TimerHandle] = {}  # at most one for each job that runs
        self._counting = self._loop.create_task(self._count(), name="counting of changed pods")

    async def close(self) -> None:
        self._counting.cancel()
        await asyncio.gather(self._counting, return_exceptions=True)
        await super().close()

    def jobs_swept(self, job_ids: Iterable[JobId], cause: str = "a change was found by the sweep") -> None:
        """Queue signals to jobs with the lowest priority."""
        self.wake(job_ids, cause, Rank.SWEEP)

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
                quiet = {JobId(key): causes for key, causes in chosen.items() if key not in self._line}
                if not self._to_count:
                    self._is_count_due.clear()
            if quiet:
                await self._count_jobs(quiet)
            await asyncio.sleep(self._interval_s)

    async def _count_jobs(self, quiet: Mapping[JobId, Iterable[str]]) -> None:
        """Update the counts of pods, except for jobs in the queue, whose workflows count them."""
        try:
            rolled = await asyncio.to_thread(self._stored.jobs.roll_up, sorted(quiet), time.time_ns())
        except Exception as error:  # of storage: the workflows read again, and retry
            log.warning("pods of %d jobs not counted, retrying: %s", len(quiet), error)
            rolled = RolledUp(list(quiet), [])
        for job_id in rolled.needs_work:
            for cause in quiet[job_id]:
                self.wake([job_id], cause)
        for job_id in rolled.display_only:
            if job_id not in self._shown_later:
                self._shown_later[job_id] = self._loop.call_later(
                    self._show_s, self.jobs_changed, [job_id], "pods were counted"
                )

    async def _wake(self, due: Due) -> None:
        if timer := self._shown_later.pop(due.key, None):
            timer.cancel()
        await super()._wake(due)
