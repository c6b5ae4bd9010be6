"""Validates and stores new batch jobs, services and daemons of the v0 API."""

from __future__ import annotations

import time
from collections.abc import Sequence

from peloton.api import convert
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from peloton.model.secret import Secret
from services.api.calls import Calls
from services.api.quotas import PodQuota
from services.api.v1.specs import Specs
from services.api.validation import clamp_max_failures, daemon_count_fault, secret_fault
from services.storage.jobs.jobs import Jobs


class NewJobs:
    def __init__(self, jobs: Jobs, specs: Specs, calls: Calls, quota: PodQuota) -> None:
        self._jobs, self._specs, self._calls, self._quota = jobs, specs, calls, quota
        self.creators = quota.creators

    async def config_refusal(self, config: job_pb2.JobConfig) -> str:
        """Return the reason to reject the configuration, or ""."""
        return await self._specs.refusal(config) or daemon_count_fault(config)

    async def secret_refusal(self, config: job_pb2.JobConfig) -> str:
        """Return the reason to reject the secrets of the configuration, or ""."""
        return await self._calls.run(secret_fault, config, True)

    async def clamp(self, config: job_pb2.JobConfig) -> None:
        """Limit the number of retries of the configuration, in place."""
        await self._calls.run(clamp_max_failures, config)

    async def store(
        self, job_id: JobId, config: job_pb2.JobConfig, creator: str, secrets: Sequence[Secret] = ()
    ) -> JobRecord:
        """Store a validated job of a user. Raises AlreadyExists, ResourceExhausted."""
        now_ns = time.time_ns()
        config.changeLog.CopyFrom(peloton_pb2.ChangeLog(version=1, createdAt=now_ns, updatedAt=now_ns))
        record = convert.new_job_record(job_id, config, now_ns, creator)
        async with self._quota.creating(record):
            await self._calls.run(self._jobs.create, record, config, now_ns, secrets)
        return record
