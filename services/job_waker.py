"""Waker of jobs, which signals at leisure what has only to be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from temporalio.client import Client

from peloton.model.ids import JobId
from services.lifecycles import JOB
from services.storage.storage import Storage
from services.wake_line import Due, Rank
from services.waker import Waker
from workflows.policies import Policies

SHOW_S = 5.0
"""Seconds until a job is signalled whose counts of pods are its only change."""


class JobWaker(Waker):
    """Implements ``ports.Lifecycles``."""

    def __init__(self, client: Client, stored: Storage, policies: Policies, **options: Any) -> None:
        super().__init__(JOB, client, stored, policies, **options)
        self._shown_later: dict[str, asyncio.TimerHandle] = {}  # at most one for each job that runs

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

    async def _wake(self, due: Due) -> None:
        if timer := self._shown_later.pop(due.key, None):
            timer.cancel()
        await super()._wake(due)
