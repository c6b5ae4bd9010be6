"""v0 JobManager: creates, grows, reads and deletes jobs. Domain errors are part of the response."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from peloton.api import convert
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.errors import errors_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.query import query_pb2
from peloton.api.wire_faults import message_of
from peloton.errors import Aborted, AlreadyExists, InvalidArgument
from peloton.model.ids import new_job_id
from peloton.model.job import JobRecord, JobType
from peloton.model.secret import Secret
from services.access.caller import name_creator
from services.access.visible import visible_pools
from services.api.calls import check_wanted
from services.api.growth import find_touched, growth_faults
from services.api.ids import parse_known_id, wire_id
from services.api.job_query import job_query
from services.api.new_jobs import NewJobs
from services.api.rolling import RollingJobs
from services.api.secrets import join_sent, parse_secrets, take_secrets
from services.api.servicer import Backend, write
from services.api.stored_configs import StoredConfigs, answer, check_size
from services.api.v1.specs import Specs
from services.api.validation import clamp_max_failures, secret_fault


class JobManager(RollingJobs):
    def __init__(self, backend: Backend, specs: Specs) -> None:
        super().__init__(backend)
        self._specs = specs
        self.new_jobs = NewJobs(backend.records.jobs, specs, backend.calls, backend.quota)
        self._configs = StoredConfigs(backend.records.configs, backend.calls)

    # -- writes

    @write
    async def Create(self, request: job_pb2.CreateRequest, context: Any) -> job_pb2.CreateResponse:
        response = job_pb2.CreateResponse()
        job_id = parse_known_id(request.id) if request.id.value else new_job_id()
        if job_id is None:
            response.error.invalidJobId.id.CopyFrom(request.id)
            response.error.invalidJobId.message = "JobID must be valid UUID"
            return response
        config, values = request.config, take_secrets(request.config.defaultConfig)
        if text := await self.new_jobs.config_refusal(config):
            response.error.invalidConfig.id.value = job_id
            response.error.invalidConfig.message = text
            return response
        if refusal := await self.new_jobs.secret_refusal(config):
            raise InvalidArgument(refusal)
        secrets = join_sent(parse_secrets(request.secrets), values)
        await self.new_jobs.clamp(config)
        check_wanted(context)
        response.jobId.value = job_id
        try:
            await self.new_jobs.store(job_id, config, name_creator(), secrets)
        except AlreadyExists as exists:
            response.error.alreadyExists.id.value = job_id
            response.error.alreadyExists.message = exists.message
            await self._ensure_workflow(job_id)
            return response
        await self._wake.start(job_id)
        return response

    async def check_plan(self, request: bytes) -> None:
        """Check a plan request with the rules of ``Create``, and reject it for the same reasons."""
        planned = message_of(explain_pb2.JobPlanRequest, request)
        if planned.HasField("config") and planned.HasField("spec"):
            raise InvalidArgument("a plan is of a config or of a spec: both are given")
        if planned.HasField("spec"):
            take_secrets(planned.spec.default_spec)
            await self._specs.new_config(planned.spec, time.time_ns())
        if planned.HasField("config"):
            config = planned.config
            take_secrets(config.defaultConfig)
            refusal = await self._specs.refusal(config) or await self._calls.run(secret_fault, config, True)
            if refusal:
                raise InvalidArgument(refusal)

    @write
    async def Update(self, request: job_pb2.UpdateRequest, context: Any) -> job_pb2.UpdateResponse:
        response = job_pb2.UpdateResponse()
        record, new = await self._job(parse_known_id(request.id)), request.config
        old = None
        if record is not None:
            old = await self._calls.run(self._records.configs.job_config, record.job_id, record.config_version)
        if record is None or old is None:
            response.error.jobNotFound.id.CopyFrom(request.id)
            text = f"Failed to find job with id {request.id.value} err=job:{request.id.value} not found"
            response.error.jobNotFound.message = text
            return response
        if record.type is not JobType.BATCH:
            raise InvalidArgument("job update is only supported for batch jobs")
        if not record.is_active:
            raise InvalidArgument(f"Job is in a terminal state:{record.state}")
        values = take_secrets(new.defaultConfig)
        if refusal := await self._calls.run(secret_fault, new, False):
            raise InvalidArgument(refusal)
        secrets = join_sent(parse_secrets(request.secrets), values)
        if old.defaultConfig.secrets and not new.defaultConfig.secrets:
            new.defaultConfig.secrets.extend(old.defaultConfig.secrets)
        if not new.HasField("respoolID"):
            new.respoolID.CopyFrom(old.respoolID)
        await self._calls.run(clamp_max_failures, new)
        text = await self._calls.run(self._growth_refusal, record, old, new)
        added = new.instanceCount - record.instance_count
        if not text and added == 0:
            if secrets:
                changed = await self._refresh_secrets(record, secrets, context)
                response.id.value, response.message = record.job_id, f"changed {changed} secrets"
            return response
        text = text or await self._specs.refusal(new, record.instance_count)
        if text:
            response.error.invalidConfig.id.value = record.job_id
            response.error.invalidConfig.message = text
            return response
        check_wanted(context)
        version, now_ns = record.config_version, time.time_ns()
        new.changeLog.CopyFrom(
            peloton_pb2.ChangeLog(version=version + 1, createdAt=old.changeLog.createdAt, updatedAt=now_ns)
        )
        async with self._quota.growing(record, new.instanceCount):
            await self._calls.run(
                self._records.jobs.add_instances,
                record.job_id,
                new,
                new.instanceCount,
                expected_version=version,
                now_ns=now_ns,
                secrets=secrets,
            )
        response.id.value = record.job_id
        response.message = f"added {added} instances"
        self._wake.wake(record.job_id)
        return response

    async def _refresh_secrets(self, record: JobRecord, secrets: list[Secret], context: Any) -> int:
        """Replace secrets for all runs that begin from now on."""
        check_wanted(context)
        return await self._calls.run(self._records.secrets.refresh, record.job_id, record.config_version, secrets)

    def _growth_refusal(self, record: JobRecord, old: job_pb2.JobConfig, new: job_pb2.JobConfig) -> str:
        ids = find_touched(record.instance_count, new)
        existing = self._records.configs.task_configs(record.job_id, record.config_version, ids) if ids else {}
        return growth_faults(old, existing, new).message()

    @write
    async def Delete(self, request: job_pb2.DeleteRequest, context: Any) -> job_pb2.DeleteResponse:
        record = await self._job_or_not_found(parse_known_id(request.id), "job not found")
        try:
            await self._calls.run(self._records.jobs.delete, record.job_id)
        except Aborted as active:
            raise Aborted(active.message, status="INTERNAL") from active
        return job_pb2.DeleteResponse()

    async def Refresh(self, request: job_pb2.RefreshRequest, context: Any) -> job_pb2.RefreshResponse:
        """Wake the job's workflow; there is no cache to refresh."""
        record = await self._job_or_not_found(parse_known_id(request.id), "job not found")
        if record.is_active:
            self._wake.wake(record.job_id)
        return job_pb2.RefreshResponse()

    # -- reads

    async def Get(self, request: job_pb2.GetRequest, context: Any) -> job_pb2.GetResponse | bytes:
        """Return the job; an answer with a configuration is serialized already."""
        record = await self._job(parse_known_id(request.id))
        if record is None:
            job_id = parse_known_id(request.id)
            pruned = await self._calls.run(self._records.retention.find_pruned, job_id) if job_id else None
            text = f"job:{request.id.value} not found" + (f": {pruned.describe()}" if pruned else "")
            fail = errors_pb2.JobGetRuntimeFail(id=request.id, message=text)
            return job_pb2.GetResponse(error=job_pb2.GetResponse.Error(getRuntimeFail=fail))
        config = await self._configs.of(record)
        if config is None:
            text = f"config of job:{record.job_id} not found"
            missing = errors_pb2.JobNotFound(id=wire_id(record.job_id), message=text)
            return job_pb2.GetResponse(error=job_pb2.GetResponse.Error(notFound=missing))
        check_size(record.job_id, len(config.wire), config.own_count)
        if record.type.is_rolled_out:
            by_version = await self._calls.run(self._records.pods.counts_by_version, record.job_id)
            runtime = convert.job_runtime(record, None, by_version)
        else:
            runtime = convert.job_runtime(record, config.limits)
        info = job_pb2.JobInfo(id=wire_id(record.job_id), runtime=runtime, creator=record.creator)
        if record.type is JobType.DAEMON:  # the stored count does not include its hosts
            info.config.instanceCount = record.instance_count
        return answer(info, config)

    async def Query(self, request: job_pb2.QueryRequest, context: Any) -> job_pb2.QueryResponse:
        response = job_pb2.QueryResponse()
        if not request.HasField("spec"):
            return response
        try:
            visible = await self._calls.run(lambda: visible_pools(self._records.pools.specs()))
            query = replace(job_query(request, time.time_ns()), pools=visible)
            records, total, is_cut = await self._calls.run(self._records.search.query_jobs, query)
        except InvalidArgument as invalid:
            response.error.err.message = invalid.message
            return response
        asked = request.spec.pagination
        response.pagination.CopyFrom(
            query_pb2.Pagination(offset=asked.offset, limit=asked.limit, total=total, cut=is_cut)
        )
        response.spec.CopyFrom(request.spec)
        response.results.extend(convert.job_summary(record) for record in records)
        if not request.summaryOnly:
            response.records.extend(await self._calls.run(self._job_infos, records))
        return response

    def _job_infos(self, records: list[JobRecord]) -> list[job_pb2.JobInfo]:
        configs = self._records.configs.job_configs([(record.job_id, record.config_version) for record in records])
        found = ((record, configs.get((record.job_id, record.config_version))) for record in records)
        return [convert.job_info(record, config) for record, config in found if config is not None]

    async def GetCache(self, request: job_pb2.GetCacheRequest, context: Any) -> job_pb2.GetCacheResponse:
        record = await self._job_or_not_found(parse_known_id(request.id), "Job not found in cache")
        response = job_pb2.GetCacheResponse(runtime=convert.job_runtime(record))
        config = response.config
        config.changeLog.version = record.config_version
        config.sla.CopyFrom(convert.sla_config(record.sla))
        config.respoolID.value = record.respool_id
        config.type = job_pb2.JobType.Value(record.type.value)
        config.instanceCount = record.instance_count
        return response

    async def GetActiveJobs(self, request: job_pb2.GetActiveJobsRequest, context: Any) -> job_pb2.GetActiveJobsResponse:
        ids = await self._calls.run(self._records.jobs.active_ids)
        return job_pb2.GetActiveJobsResponse(ids=[wire_id(job_id) for job_id in ids])
