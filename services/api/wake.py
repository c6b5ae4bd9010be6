"""Wake-up of the workflow that owns a job, after the commit of a change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from peloton.errors import Reason, Unavailable
from peloton.model.ids import JobId
from peloton.ports import Lifecycles

log = logging.getLogger(__name__)

START_TIMEOUT_S = 10.0


class Wakers(Lifecycles, Protocol):
    """Signals to workflows; calls that are not asynchronous never block, and are repeated until delivered."""

    async def start_job(self, job_id: JobId) -> None:
        """Ensure that the workflow ``job/<id>`` runs; starts nothing twice."""
        ...

    def migrations_changed(self, migration_ids: Iterable[str]) -> None: ...

    def rebalances_changed(self, clusters: Iterable[str]) -> None: ...


class Wake:
    def __init__(self, wakers: Wakers) -> None:
        self._wakers = wakers

    async def start(self, job_id: JobId) -> None:
        """Ensure that the job's workflow runs. Raises Unavailable when Temporal cannot be reached."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._wakers.start_job(job_id)
        except Exception as error:  # of any kind: the job is stored, and a repeated call starts its workflow
            log.warning("workflow of job %s not started: %s", job_id, error)
            self._wakers.jobs_changed([job_id], "the job was created")  # retried by the waker
            raise Unavailable(
                f"job {job_id} is stored, but its workflow could not be started yet "
                f"({type(error).__name__}: {error}); the api keeps trying, and it is "
                f"safe to repeat the call with the same id"
            ).because(Reason.JOB_NOT_STARTED, job=job_id) from error

    def wake(self, job_id: JobId) -> None:
        """Wake the job's workflow without waiting; the waker repeats the signal until it is delivered."""
        self._wakers.jobs_changed([job_id], "a call of the API")
