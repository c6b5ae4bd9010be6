"""v0 UpdateService: rolling updates of service jobs. All errors are gRPC statuses."""

from __future__ import annotations

import time
from typing import Any

from peloton.api import convert
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2 as svc
from peloton.errors import InvalidArgument, NotFound, Reason, Unavailable
from peloton.model.ids import parse_job_id
from peloton.model.job import JobState
from peloton.model.update import UpdateAct, UpdateKey, UpdateRecord, UpdateSpec, UpdateType
from services.api.calls import check_wanted
from services.api.secrets import take_secrets
from services.api.servicer import Backend, Servicer, write
from services.api.v1.ids import opaque_of
from services.api.v1.specs import Specs, check_immutable
from services.api.validation import secret_fault


class UpdateService(Servicer):
    def __init__(self, backend: Backend, specs: Specs) -> None:
        super().__init__(backend)
        self._specs = specs

    # -- writes

    @write
    async def CreateUpdate(self, request: svc.CreateUpdateRequest, context: Any) -> svc.CreateUpdateResponse:
        try:
            job_id = parse_job_id(request.jobId.value)
        except ValueError:
            raise InvalidArgument("JobID must be of UUID format") from None
        job = await self._job_or_not_found(job_id, "job not found")
        config, asked = request.jobConfig, request.updateConfig
        if job.state in (JobState.INITIALIZED, JobState.UNINITIALIZED):
            raise Unavailable("cannot update partially created job")
        if not config.HasField("changeLog"):
            raise InvalidArgument("missing changelog in job configuration")
        check_immutable(job, config)
        if not job.type.is_rolled_out:
            raise InvalidArgument("job must be of type service")
        values = take_secrets(config.defaultConfig)
        if fault := secret_fault(config, is_new=False):
            raise InvalidArgument(fault)
        await self._specs.check(config)
        opaque = opaque_of(request.opaque_data.data)
        check_wanted(context)
        seen, now_ns = config.changeLog.version, time.time_ns()
        config.changeLog.CopyFrom(
            peloton_pb2.ChangeLog(version=seen + 1, createdAt=config.changeLog.createdAt, updatedAt=now_ns)
        )
        update = UpdateSpec(
            batch_size=asked.batchSize,
            rollback_on_failure=asked.rollbackOnFailure,
            max_instance_attempts=asked.maxInstanceAttempts,
            max_failure_instances=asked.maxFailureInstances,
            start_paused=asked.startPaused,
            in_place=asked.inPlace,
            start_pods=asked.startTasks,
        )
        create, kind = self._records.updates.create, UpdateType.UPDATE
        async with self._quota.growing(job, convert.count_wanted(job, config), update.start_pods):
            job = await self._calls.run(
                create,
                job_id,
                seen,
                kind,
                update,
                config=config,
                job_spec=b"",
                instances=(),
                opaque=opaque,
                now_ns=time.time_ns(),
                secrets=values,
            )
        self._wake.wake(job_id)
        return svc.CreateUpdateResponse(updateID=peloton_pb2.UpdateID(value=job.update_id))

    @write
    async def PauseUpdate(self, request: svc.PauseUpdateRequest, context: Any) -> svc.PauseUpdateResponse:
        await self._steer(request, UpdateAct.PAUSE)
        return svc.PauseUpdateResponse()

    @write
    async def ResumeUpdate(self, request: svc.ResumeUpdateRequest, context: Any) -> svc.ResumeUpdateResponse:
        await self._steer(request, UpdateAct.RESUME)
        return svc.ResumeUpdateResponse()

    @write
    async def AbortUpdate(self, request: svc.AbortUpdateRequest, context: Any) -> svc.AbortUpdateResponse:
        await self._steer(request, UpdateAct.ABORT)
        return svc.AbortUpdateResponse()

    async def _steer(
        self, request: svc.PauseUpdateRequest | svc.ResumeUpdateRequest | svc.AbortUpdateRequest, act: UpdateAct
    ) -> None:
        """Steer the current update of the job whose update is named, even if that is another: existing clients rely on
        it."""
        update = await self._update(request.updateId)
        opaque = opaque_of(request.opaque_data.data) if request.HasField("opaque_data") else None
        await self._calls.run(self._records.updates.steer, update.job_id, None, act, opaque, time.time_ns())
        self._wake.wake(update.job_id)

    @write
    async def RollbackUpdate(self, request: svc.RollbackUpdateRequest, context: Any) -> svc.RollbackUpdateResponse:
        """Roll back to the configuration before the named update, by a new update with the same pace."""
        update = await self._update(request.updateId)
        check_wanted(context)
        job = await self._job_or_not_found(update.job_id, "job not found")
        async with self._quota.growing(job, job.instance_count + len(update.removed)):
            await self._calls.run(self._records.updates.roll_back, update.update_id, UpdateKey(), time.time_ns())
        self._wake.wake(update.job_id)
        return svc.RollbackUpdateResponse()

    # -- reads

    async def GetUpdate(self, request: svc.GetUpdateRequest, context: Any) -> svc.GetUpdateResponse:
        update = await self._update(request.updateId)
        info = _info(update)
        info.opaque_data.data = update.opaque_data
        if request.statusOnly:
            info = update_pb2.UpdateInfo(updateId=info.updateId, status=info.status)
        return svc.GetUpdateResponse(updateInfo=info)

    async def ListUpdates(self, request: svc.ListUpdatesRequest, context: Any) -> svc.ListUpdatesResponse:
        if not request.jobID.value:
            raise InvalidArgument("no job ID provided")
        try:
            job_id = parse_job_id(request.jobID.value)
        except ValueError:
            return svc.ListUpdatesResponse()
        updates = await self._calls.run(self._records.updates.of_job, job_id)
        return svc.ListUpdatesResponse(updateInfo=[_info(update) for update in updates])

    async def GetUpdateCache(self, request: svc.GetUpdateCacheRequest, context: Any) -> svc.GetUpdateCacheResponse:
        update = await self._update(request.updateId)
        return svc.GetUpdateCacheResponse(
            jobId=peloton_pb2.JobID(value=update.job_id),
            state=update_pb2.State.Value(update.state.value),
            instancesTotal=sorted(update.added | update.updated | update.removed),
            instancesDone=sorted(update.done),
            instancesCurrent=sorted(update.current),
            instancesAdded=sorted(update.added),
            instancesUpdated=sorted(update.updated),
            instancesFailed=sorted(update.failed),
        )

    # -- storage

    async def _update(self, wire: peloton_pb2.UpdateID) -> UpdateRecord:
        if not wire.value:
            raise InvalidArgument("no update ID provided")
        try:
            update_id = parse_job_id(wire.value)  # a UUID like a job's
        except ValueError:
            raise NotFound("update not found").because(Reason.UPDATE_NOT_FOUND) from None
        update = await self._calls.run(self._records.updates.get, update_id)
        if update is None:
            raise NotFound("update not found").because(Reason.UPDATE_NOT_FOUND)
        return update


def _info(update: UpdateRecord) -> update_pb2.UpdateInfo:
    spec = update.spec
    info = update_pb2.UpdateInfo(
        config=update_pb2.UpdateConfig(
            batchSize=spec.batch_size,
            rollbackOnFailure=spec.rollback_on_failure,
            maxInstanceAttempts=spec.max_instance_attempts,
            maxFailureInstances=spec.max_failure_instances,
            startPaused=spec.start_paused,
            inPlace=spec.in_place,
            startTasks=spec.start_pods,
        ),
        status=update_pb2.UpdateStatus(
            state=update_pb2.State.Value(update.state.value),
            numTasksDone=len(update.done),
            numTasksFailed=len(update.failed),
            numTasksRemaining=update.remaining_count,
        ),
        configVersion=update.config_version,
        prevConfigVersion=update.prev_config_version,
    )
    info.updateId.value = update.update_id
    info.jobId.value = update.job_id
    return info
