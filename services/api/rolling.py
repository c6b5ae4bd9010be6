"""Restart, Start and Stop of the v0 JobManager, which roll through the instances of a service. Errors are gRPC
statuses."""

from __future__ import annotations

import time
from typing import Any

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.errors import InvalidArgument
from peloton.model.job import JobRecord
from peloton.model.update import UpdateSpec, UpdateType
from services.api.calls import check_wanted
from services.api.ids import parse_known_id
from services.api.ranges import list_instances
from services.api.servicer import Servicer, write


class RollingJobs(Servicer):
    @write
    async def Restart(self, request: job_pb2.RestartRequest, context: Any) -> job_pb2.RestartResponse:
        job = await self._roll(request, UpdateType.RESTART, request.restartConfig.batchSize, context)
        return job_pb2.RestartResponse(resourceVersion=job.config_version, updateID=_update_id(job))

    @write
    async def Start(self, request: job_pb2.StartRequest, context: Any) -> job_pb2.StartResponse:
        job = await self._roll(request, UpdateType.START, request.startConfig.batchSize, context)
        return job_pb2.StartResponse(resourceVersion=job.config_version, updateID=_update_id(job))

    @write
    async def Stop(self, request: job_pb2.StopRequest, context: Any) -> job_pb2.StopResponse:
        job = await self._roll(request, UpdateType.STOP, request.stopConfig.batchSize, context)
        return job_pb2.StopResponse(resourceVersion=job.config_version, updateID=_update_id(job))

    async def _roll(
        self,
        request: job_pb2.RestartRequest | job_pb2.StartRequest | job_pb2.StopRequest,
        kind: UpdateType,
        batch_size: int,
        context: Any,
    ) -> JobRecord:
        job = await self._job_or_not_found(parse_known_id(request.id), "job not found")
        if not job.type.is_rolled_out:
            raise InvalidArgument(f"{kind} supported only for service jobs")
        instances = list_instances(request.ranges, job.instance_count)
        check_wanted(context)
        async with self._quota.growing(job, job.instance_count, starts=kind is not UpdateType.STOP):
            job = await self._calls.run(
                self._records.updates.create,
                job.job_id,
                request.resourceVersion,
                kind,
                UpdateSpec(batch_size=batch_size),
                config=None,
                job_spec=b"",
                instances=instances,
                opaque="",
                now_ns=time.time_ns(),
            )
        self._wake.wake(job.job_id)
        return job


def _update_id(job: JobRecord) -> peloton_pb2.UpdateID:
    return peloton_pb2.UpdateID(value=job.update_id)
