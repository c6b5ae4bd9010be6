"""Jobs of schedules, created by workers with the rules of the API."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from contextlib import suppress

from peloton.api.v0.job import job_pb2
from peloton.errors import AlreadyExists, InvalidArgument, NotFound, Reason, Unavailable
from peloton.lifecycle.schedule import job_id_of, job_name_of
from peloton.model.job import JobRecord
from peloton.model.schedule import JobStart, ScheduledRun
from peloton.ports import CALL_DEADLINE_S
from services.api.backlog import POLL_S, Backlogs, Bounds, excess
from services.api.calls import Calls, make_overloaded
from services.api.new_jobs import NewJobs
from services.api.quotas import Submissions
from services.api.v1.lockdown import Locks
from services.storage.jobs.jobs import Jobs

CREATE_S = 25.0
"""Timeout of one creation."""


class ScheduledJobs:
    """Implementation of ``ports.ScheduledJobs``, called in threads, which runs on the event loop that creates it.

    ``start_of`` returns the parameters to start the workflow of a job.
    """

    def __init__(
        self,
        jobs: Jobs,
        new_jobs: NewJobs,
        locks: Locks,
        backlogs: Backlogs,
        bounds: Bounds,
        calls: Calls,
        submissions: Submissions,
        start_of: Callable[[JobRecord], JobStart],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs, self._new_jobs, self._locks = jobs, new_jobs, locks
        self._backlogs, self._bounds, self._calls, self._start_of = backlogs, bounds, calls, start_of
        self._submissions = submissions
        self._reached: tuple[str, str] | None = None
        self._counted_at_s = -POLL_S

    def create(self, run: ScheduledRun) -> JobStart:
        deadline_s = CALL_DEADLINE_S.get()
        left_s = CREATE_S if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)
        creating = asyncio.run_coroutine_threadsafe(self._create(run), self._loop)
        try:
            return creating.result(min(left_s, CREATE_S))
        except TimeoutError:
            raise Unavailable(f"the job of schedule {run.schedule} is not stored after {CREATE_S:g} s") from None

    async def _create(self, run: ScheduledRun) -> JobStart:
        job_id = job_id_of(run)
        if (stored := await self._calls.run(self._jobs.get, job_id)) is not None:
            return await self._calls.run(self._start_of, stored)
        await self._locks.check("Write")
        await self._check_backlog()
        if self._submissions.are_limited:
            self._submissions.take(run.creator, await self._new_jobs.creators.find_subjects(run.creator))
        config = job_pb2.JobConfig.FromString(base64.b64decode(run.config))
        config.name = job_name_of(config.name, run.scheduled_ns)
        refusal = await self._new_jobs.config_refusal(config) or await self._new_jobs.secret_refusal(config)
        if refusal:
            raise InvalidArgument(refusal)
        await self._new_jobs.clamp(config)
        with suppress(AlreadyExists):  # an earlier attempt was slow
            await self._new_jobs.store(job_id, config, run.creator)
        if (stored := await self._calls.run(self._jobs.get, job_id)) is None:
            raise NotFound(f"job {job_id} was deleted while it was created")
        return await self._calls.run(self._start_of, stored)

    async def _check_backlog(self) -> None:
        """Raise ResourceExhausted while the API would reject new jobs."""
        now_s = time.monotonic()
        if now_s - self._counted_at_s >= POLL_S:
            self._counted_at_s = now_s
            self._reached = excess(await self._calls.run(self._backlogs.backlog), self._bounds)
        if self._reached is not None:
            raise make_overloaded(*self._reached).because(Reason.QUEUE_FULL, rule=self._reached[0])
