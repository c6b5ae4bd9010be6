"""v0 JobManager.Restart, Start and Stop: rolling operations on service jobs. Errors are gRPC statuses."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.errors import InvalidArgument, NotFound
from peloton.model.job import JobRecord, JobType
from peloton.model.update import UpdateSpec, UpdateType
from services.api.calls import Calls, check_wanted
from services.api.ids import known_id
from services.api.ranges import clipped
from services.api.wake import Wake
from services.storage.storage import Storage


class RollingJobs:
    def __init__(self, records: Storage, calls: Calls, wake: Wake) -> None:
        self._records = records
        self._calls = calls
        self._wake = wake

    async def Restart(self, request: job_pb2.RestartRequest, context: Any) -> job_pb2.RestartResponse:
        batch_size = request.restartConfig.batchSize
        roll = partial(self._roll, request, UpdateType.RESTART, batch_size, context)
        job = await self._calls.write(request.ByteSize(), roll)
        return job_pb2.RestartResponse(resourceVersion=job.config_version, updateID=_update_id(job))

    async def Start(self, request: job_pb2.StartRequest, context: Any) -> job_pb2.StartResponse:
        batch_size = request.startConfig.batchSize
        roll = partial(self._roll, request, UpdateType.START, batch_size, context)
        job = await self._calls.write(request.ByteSize(), roll)
        return job_pb2.StartResponse(resourceVersion=job.config_version, updateID=_update_id(job))

    async def Stop(self, request: job_pb2.StopRequest, context: Any) -> job_pb2.StopResponse:
        batch_size = request.stopConfig.batchSize
        roll = partial(self._roll, request, UpdateType.STOP, batch_size, context)
        job = await self._calls.write(request.ByteSize(), roll)
        return job_pb2.StopResponse(resourceVersion=job.config_version, updateID=_update_id(job))

    async def _roll(
        self,
        request: job_pb2.RestartRequest | job_pb2.StartRequest | job_pb2.StopRequest,
        kind: UpdateType,
        batch_size: int,
        context: Any,
    ) -> JobRecord:
        job = await self._record_or_not_found(request.id, "job not found")
        if job.type is not JobType.SERVICE:
            raise InvalidArgument(f"{kind} supported only for service jobs")
        spans = clipped(request.ranges, job.instance_count) if request.ranges else []
        instances = [i for start, count in spans for i in range(start, start + count)]
        check_wanted(context)
        job = await self._calls.run(
            self._records.create_update,
            job.job_id,
            request.resourceVersion,
            kind,
            UpdateSpec(batch_size=batch_size),
            None,
            b"",
            instances,
            "",
            time.time_ns(),
        )
        self._wake.changed(job.job_id)
        return job

    async def _record(self, wire: peloton_pb2.JobID) -> JobRecord | None:
        job_id = known_id(wire)
        return await self._calls.run(self._records.job, job_id) if job_id else None

    async def _record_or_not_found(self, wire: peloton_pb2.JobID, text: str) -> JobRecord:
        record = await self._record(wire)
        if record is None:
            raise NotFound(text)
        return record


def _update_id(job: JobRecord) -> peloton_pb2.UpdateID:
    return peloton_pb2.UpdateID(value=job.update_id)
