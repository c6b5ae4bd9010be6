"""Write methods of v1alpha JobService. Each answer follows the commit; the job's workflows carry the change out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from peloton.api import convert
from peloton.api.convert_v1 import entity_version, workflow_status
from peloton.api.convert_v1_spec import job_spec
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.errors import AlreadyExists, NotFound
from peloton.model.ids import JobId, new_job_id
from peloton.model.job import JobRecord, JobState
from peloton.model.secret import Secret
from peloton.model.update import UpdateAct, UpdateSpec, UpdateType
from services.access.caller import name_creator
from services.api.calls import check_wanted
from services.api.ranges import list_instances
from services.api.secrets import join_sent, parse_secrets, take_secrets
from services.api.servicer import Servicer, write
from services.api.v1.ids import job_id_of, opaque_of, parse_seen_version, prefix_error
from services.api.v1.keys import key_of, key_text
from services.api.v1.patch import apply_patch
from services.api.v1.specs import Specs, check_immutable
from services.storage.jobs.configs import Configs


class JobWrites(Servicer):
    _specs: Specs

    # -- create

    @write
    async def CreateJob(self, request: svc.CreateJobRequest, context: Any) -> svc.CreateJobResponse:
        job_id = job_id_of(request.job_id, "jobID is not valid UUID") if request.job_id.value else new_job_id()
        opaque, key = opaque_of(request.opaque_data.data), key_of(request)
        now_ns = time.time_ns()
        with prefix_error("failed to handle create-secrets"):
            secrets = join_sent(parse_secrets(request.secrets), take_secrets(request.spec.default_spec))
        config = await self._specs.new_config(request.spec, now_ns)
        check_wanted(context)
        asked = request.create_spec
        update = UpdateSpec(
            batch_size=asked.batch_size,
            max_instance_attempts=asked.max_instance_retries,
            max_failure_instances=asked.max_tolerable_instance_failures,
            start_paused=asked.start_paused,
            pulse_s=asked.pulse_seconds,
            progress_deadline_s=asked.progress_deadline_seconds,
        )
        record = convert.new_job_record(job_id, config, now_ns, name_creator())
        try:
            async with self._quota.creating(record):
                with prefix_error("failed to create job in db"):
                    job = await self._calls.run(
                        self._records.updates.create_service,
                        record,
                        config,
                        request.spec.SerializeToString(),
                        update,
                        opaque=opaque,
                        now_ns=now_ns,
                        key=key,
                        secrets=secrets,
                    )
        except AlreadyExists:
            await self._ensure_workflow(job_id)
            raise
        await self._wake.start(job_id)
        return svc.CreateJobResponse(job_id=peloton_pb2.JobID(value=job_id), version=entity_version(job.entity_version))

    # -- updates

    @write
    async def ReplaceJob(self, request: svc.ReplaceJobRequest, context: Any) -> svc.ReplaceJobResponse:
        job = await self._job_to_update(request.job_id)
        version = await self._roll_out(job, request, request.spec, context)
        return svc.ReplaceJobResponse(version=version)

    @write
    async def PatchJob(self, request: svc.PatchJobRequest, context: Any) -> svc.PatchJobResponse:
        job = await self._job_to_update(request.job_id)
        current = await self._calls.run(current_spec, self._records.configs, job)
        version = await self._roll_out(job, request, apply_patch(current, request.spec), context)
        return svc.PatchJobResponse(version=version)

    async def _roll_out(
        self,
        job: JobRecord,
        request: svc.ReplaceJobRequest | svc.PatchJobRequest,
        spec: stateless_pb2.JobSpec,
        context: Any,
    ) -> peloton_pb2.EntityVersion:
        now_ns = time.time_ns()
        with prefix_error("failed to handle update-secrets"):
            secrets = join_sent(parse_secrets(request.secrets), take_secrets(spec.default_spec))
        config = await self._specs.config_of(spec, now_ns)
        with prefix_error("failed to validate spec update"):
            check_immutable(job, config)
        check_wanted(context)
        asked = request.update_spec
        update = UpdateSpec(
            batch_size=asked.batch_size,
            in_place=asked.in_place,
            rollback_on_failure=asked.rollback_on_failure,
            max_instance_attempts=asked.max_instance_retries,
            max_failure_instances=asked.max_tolerable_instance_failures,
            start_paused=asked.start_paused,
            start_pods=asked.start_pods,
            pulse_s=asked.pulse_seconds,
            progress_deadline_s=asked.progress_deadline_seconds,
        )
        return await self._update(
            job,
            request,
            UpdateType.UPDATE,
            update,
            config=config,
            sent=spec.SerializeToString(),
            instances=(),
            secrets=secrets,
        )

    @write
    async def RestartJob(self, request: svc.RestartJobRequest, context: Any) -> svc.RestartJobResponse:
        job = await self._job_to_update(request.job_id)
        asked = request.restart_spec
        instances = list_instances(asked.ranges, job.instance_count)
        update = UpdateSpec(batch_size=asked.batch_size, in_place=asked.in_place)
        check_wanted(context)
        version = await self._update(
            job, request, UpdateType.RESTART, update, config=None, sent=b"", instances=instances
        )
        return svc.RestartJobResponse(version=version)

    async def _job_to_update(self, wire: peloton_pb2.JobID) -> JobRecord:
        job_id = job_id_of(wire)
        with prefix_error("failed to get job runtime from cache"):
            return await self._find_job(job_id)

    async def _find_job(self, job_id: JobId) -> JobRecord:
        return await self._job_or_not_found(job_id, f"job:{job_id} not found")

    async def _update(
        self,
        job: JobRecord,
        request: svc.ReplaceJobRequest | svc.PatchJobRequest | svc.RestartJobRequest,
        kind: UpdateType,
        update: UpdateSpec,
        config: job_pb2.JobConfig | None,
        sent: bytes,
        instances: Iterable[int],
        secrets: Sequence[Secret] = (),
    ) -> peloton_pb2.EntityVersion:
        key, starts = key_of(request), kind is UpdateType.RESTART or update.start_pods
        async with self._quota.growing(job, convert.count_wanted(job, config), starts):
            with prefix_error("failed to create update workload"):
                job = await self._calls.run(
                    self._records.updates.create,
                    job.job_id,
                    parse_seen_version(request.version),
                    kind,
                    update,
                    config=config,
                    job_spec=sent,
                    instances=instances,
                    opaque=opaque_of(request.opaque_data.data),
                    now_ns=time.time_ns(),
                    key=key,
                    secrets=secrets,
                )
        self._wake.wake(job.job_id)
        return entity_version(job.entity_version)

    # -- actions on active updates

    @write
    async def PauseJobWorkflow(
        self, request: svc.PauseJobWorkflowRequest, context: Any
    ) -> svc.PauseJobWorkflowResponse:
        version = await self._steer(request, UpdateAct.PAUSE, "failed to pause workload")
        return svc.PauseJobWorkflowResponse(version=version)

    @write
    async def ResumeJobWorkflow(
        self, request: svc.ResumeJobWorkflowRequest, context: Any
    ) -> svc.ResumeJobWorkflowResponse:
        version = await self._steer(request, UpdateAct.RESUME, "failed to resume workload")
        return svc.ResumeJobWorkflowResponse(version=version)

    @write
    async def AbortJobWorkflow(
        self, request: svc.AbortJobWorkflowRequest, context: Any
    ) -> svc.AbortJobWorkflowResponse:
        version = await self._steer(request, UpdateAct.ABORT, "failed to abort workflow")
        return svc.AbortJobWorkflowResponse(version=version)

    async def _steer(
        self,
        request: svc.PauseJobWorkflowRequest | svc.ResumeJobWorkflowRequest | svc.AbortJobWorkflowRequest,
        act: UpdateAct,
        outer: str,
    ) -> peloton_pb2.EntityVersion:
        job_id = job_id_of(request.job_id)
        opaque = opaque_of(request.opaque_data.data) if request.HasField("opaque_data") else None
        with prefix_error(outer):
            await self._find_job(job_id)
            version = parse_seen_version(request.version)
            job = await self._calls.run(self._records.updates.steer, job_id, version, act, opaque, time.time_ns())
        self._wake.wake(job_id)
        return entity_version(job.entity_version)

    @write
    async def PulseJobWorkflow(
        self, request: svc.PulseJobWorkflowRequest, context: Any
    ) -> svc.PulseJobWorkflowResponse:
        job_id = job_id_of(request.job_id)
        await self._find_job(job_id)
        key = key_text(request.update_key)
        job, update = await self._calls.run(self._records.updates.pulse, job_id, key, time.time_ns())
        if update.awaits_pulse:
            self._wake.wake(job_id)
        return svc.PulseJobWorkflowResponse(status=workflow_status(job, update))

    # -- goals

    @write
    async def StartJob(self, request: svc.StartJobRequest, context: Any) -> svc.StartJobResponse:
        return svc.StartJobResponse(version=await self._set_goal(request, JobState.RUNNING))

    @write
    async def StopJob(self, request: svc.StopJobRequest, context: Any) -> svc.StopJobResponse:
        return svc.StopJobResponse(version=await self._set_goal(request, JobState.KILLED))

    @write
    async def DeleteJob(self, request: svc.DeleteJobRequest, context: Any) -> svc.DeleteJobResponse:
        await self._set_goal(request, JobState.DELETED, request.force)
        return svc.DeleteJobResponse()

    async def _set_goal(
        self,
        request: svc.StartJobRequest | svc.StopJobRequest | svc.DeleteJobRequest,
        goal: JobState,
        force: bool = False,
    ) -> peloton_pb2.EntityVersion:
        job_id = job_id_of(request.job_id)
        job = await self._find_job(job_id)
        version = parse_seen_version(request.version)
        async with self._quota.growing(job, job.instance_count, starts=goal is JobState.RUNNING):
            set_goal = self._records.jobs.set_service_goal
            job = await self._calls.run(set_goal, job_id, version, goal, force, time.time_ns())
        self._wake.wake(job_id)
        return entity_version(job.entity_version)

    async def RefreshJob(self, request: svc.RefreshJobRequest, context: Any) -> svc.RefreshJobResponse:
        """Wake the job's workflows; there is no cache to refresh."""
        job = await self._find_job(job_id_of(request.job_id))
        self._wake.wake(job.job_id)
        return svc.RefreshJobResponse()


def current_spec(configs: Configs, job: JobRecord) -> stateless_pb2.JobSpec:
    """Return the spec as sent by its client, or converted from the configuration of a v0 job."""
    sent = configs.job_spec(job.job_id, job.config_version)
    if sent:
        return stateless_pb2.JobSpec.FromString(sent)
    config = configs.job_config(job.job_id, job.config_version, overrides=True)
    if config is None:
        raise NotFound(f"config of job:{job.job_id} not found")
    return job_spec(config)
