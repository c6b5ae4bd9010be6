"""Waker of jobs, which signals at leisure what has only to be shown, and sends the end of a job with its signal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from temporalio.client import Client

from peloton.model.ids import JobId
from peloton.model.job import JobEnd
from services.storage.storage import Storage
from services.temporal.connection import END
from services.wakers.lifecycles import JOB
from services.wakers.wake_line import Due, Rank
from services.wakers.waker import Waker
from workflows.policies import Policies

log = logging.getLogger(__name__)

SHOW_S = 5.0
"""Seconds until a job is signalled whose counts of pods are its only change."""
ENDED = "its pods have ended, and it with them"
"""Cause of a signal with the end of the job."""
FORGET_S = 1.0
"""Seconds for which ended jobs are gathered after their signals, so that one transaction deletes their wakes."""


class JobWaker(Waker):
    """Implements ``ports.Lifecycles``."""

    def __init__(self, client: Client, stored: Storage, policies: Policies, **options: Any) -> None:
        super().__init__(JOB, client, stored, policies, **options)
        self._shown_later: dict[str, asyncio.TimerHandle] = {}  # at most one for each job that runs
        self._ends: dict[JobId, JobEnd] = {}  # of jobs whose signal is queued
        self._signalled: set[JobId] = set()  # jobs that have ended, and whose workflows know it
        self._forgetting: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Leave the wakes of jobs that were signalled: the sweep finds their workflows closed."""
        if self._forgetting is not None:
            self._forgetting.cancel()
            await asyncio.gather(self._forgetting, return_exceptions=True)
        await super().close()

    def jobs_swept(self, job_ids: Iterable[JobId], cause: str = "a change was found by the sweep") -> None:
        """Queue signals to jobs with the lowest priority."""
        self.wake(job_ids, cause, Rank.SWEEP)

    def show_later(self, job_ids: Iterable[JobId]) -> None:
        """Signal jobs after SHOW_S, unless they are signalled earlier. Call it in the event loop."""
        for job_id in job_ids:
            if job_id not in self._shown_later:
                self._shown_later[job_id] = self._loop.call_later(
                    SHOW_S, self.jobs_changed, [job_id], "pods were counted"
                )

    def has_queued(self, job_id: JobId) -> bool:
        with self._lock:
            return job_id in self._line

    def jobs_ended(self, ends: dict[JobId, JobEnd]) -> None:
        """Signal the ends of jobs that were settled without their workflows. Call it in the event loop."""
        self._ends.update(ends)
        self.jobs_changed(ends, ENDED)

    async def _wake(self, due: Due) -> None:
        if timer := self._shown_later.pop(due.key, None):
            timer.cancel()
        end = self._ends.pop(JobId(due.key), None)
        if due.causes == {ENDED}:  # after another change, or a failed attempt, the workflow reads the rows itself
            END.set(end)
        await super()._wake(due)

    async def _signal(self, key: str) -> None:
        await super()._signal(key)
        if END.get() is not None:
            self._note_signalled(key)

    def _on_needless(self, key: str) -> None:
        self._note_signalled(key)

    def _note_signalled(self, key: str) -> None:
        self._signalled.add(JobId(key))
        if self._forgetting is None:
            self._forgetting = self._loop.create_task(self._forget(), name="deletion of wakes of ended jobs")

    async def _forget(self) -> None:
        await asyncio.sleep(FORGET_S)
        signalled, self._signalled, self._forgetting = self._signalled, set(), None
        try:
            await asyncio.to_thread(self._stored.wakes.forget_signalled, sorted(signalled))
        except Exception as error:  # of storage: the sweep finds the wakes later
            log.warning("wakes of %d ended jobs not deleted: %s", len(signalled), error)
