"""Read methods of v1alpha JobService."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any

from peloton.api import convert_v1, convert_v1_spec
from peloton.api.job_secrets import secrets_of
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.query import query_pb2
from peloton.errors import InvalidArgument, NotFound, Reason, ResourceExhausted
from peloton.model.ids import JobId
from peloton.model.job import JobRecord, JobType
from peloton.model.respool import pool_paths
from peloton.model.text import shorten
from peloton.model.update import UpdateRecord
from services.access.visible import visible_pools
from services.api.answers import within_limit
from services.api.channels import ANSWER_BYTES_MAX
from services.api.ids import parse_known_id
from services.api.secrets import take_secrets, v1_secrets
from services.api.servicer import Servicer
from services.api.v1.ids import job_id_of, parse_asked_version, parse_seen_version, prefix_error
from services.api.v1.pods import pod_infos
from services.api.v1.queries import jobs_wanted, pods_wanted
from services.api.v1.specs import Specs, check_immutable
from services.storage.jobs.configs import Configs

PAGE = 1_000
"""Number of jobs or pods read from storage at a time."""


class JobReads(Servicer):
    _specs: Specs

    # -- one job

    async def GetJob(self, request: svc.GetJobRequest, context: Any) -> svc.GetJobResponse:
        job_id = parse_known_id(request.job_id)
        response = await self._calls.run(self._get_job, request, job_id)
        size_bytes = response.ByteSize()
        if size_bytes > ANSWER_BYTES_MAX:
            raise ResourceExhausted(
                f"the spec of job {request.job_id.value} takes {size_bytes} bytes, the limit of one answer is "
                f"{ANSWER_BYTES_MAX}; summary_only leaves it out"
            ).because(Reason.ANSWER_TOO_LARGE, bytes=size_bytes, limit=ANSWER_BYTES_MAX)
        return response

    def _get_job(self, request: svc.GetJobRequest, job_id: JobId | None) -> svc.GetJobResponse:
        if request.summary_only:
            job = self._get_job_or_raise(request.job_id.value, job_id)
            return svc.GetJobResponse(summary=convert_v1.job_summary(job, self._latest_update(job)))
        if request.version.value:
            version = parse_asked_version(request.version)
            with prefix_error("fail to get job spec"):
                job = self._get_job_or_raise(request.job_id.value, job_id)
                return svc.GetJobResponse(job_info=self._info(job, version.config))
        with prefix_error("failed to get job status"):
            job = self._get_job_or_raise(request.job_id.value, job_id)
        update = self._latest_update(job)
        info = self._info(job, job.config_version)
        counts = self._records.pods.counts_by_version(job.job_id)
        info.status.CopyFrom(convert_v1.job_status(job, update, counts))
        config = self._records.configs.job_config(job.job_id, job.config_version)
        secrets = v1_secrets(secrets_of(config.defaultConfig)) if config is not None else ()
        disruptions = self._records.disruptions.recent(job.job_id)
        response = svc.GetJobResponse(
            job_info=info, secrets=secrets, disruptions=map(convert_v1.disruption, disruptions)
        )
        if update is not None:
            events = self._records.updates.events(update.update_id)
            response.workflow_info.CopyFrom(convert_v1.workflow_info(job, update, events))
        return response

    def _info(self, job: JobRecord, version: int) -> stateless_pb2.JobInfo:
        spec = read_spec(self._records.configs, job, version)
        return stateless_pb2.JobInfo(job_id=peloton_pb2.JobID(value=job.job_id), spec=spec, creator=job.creator)

    async def GetJobIDFromJobName(
        self, request: svc.GetJobIDFromJobNameRequest, context: Any
    ) -> svc.GetJobIDFromJobNameResponse:
        can_be = "\0" not in request.job_name
        ids = await self._calls.run(self._services_named, request.job_name) if can_be else []
        if not ids:
            raise NotFound(f'job id for job name not found: "{shorten(request.job_name)}"').because(
                Reason.JOB_NOT_FOUND, job=request.job_name
            )
        return svc.GetJobIDFromJobNameResponse(job_id=[peloton_pb2.JobID(value=job_id) for job_id in ids])

    def _services_named(self, name: str) -> list[JobId]:
        """Return the services with this name that the caller may read."""
        found, visible = self._records.search.services_named(name), self._visible_pools()
        if visible is None or not found:
            return found
        pools = self._records.jobs.pools_of(found)
        return [job_id for job_id in found if pools.get(job_id) in visible]

    async def GetJobCache(self, request: svc.GetJobCacheRequest, context: Any) -> svc.GetJobCacheResponse:
        """Return the fields that the original's cache had, read from storage."""
        job_id = parse_known_id(request.job_id)
        job = await self._calls.run(self._records.jobs.get, job_id) if job_id else None
        if job is None:
            raise NotFound("job not found in cache").because(Reason.JOB_NOT_FOUND)
        update = await self._calls.run(self._latest_update, job)
        status = convert_v1.job_status(job, update)
        status.version.CopyFrom(convert_v1.entity_version(convert_v1.config_only(job.config_version)))
        if update is not None:
            workflow = status.workflow_status
            workflow.version.CopyFrom(convert_v1.entity_version(convert_v1.config_only(update.config_version)))
            workflow.prev_version.CopyFrom(
                convert_v1.entity_version(convert_v1.config_only(update.prev_config_version))
            )
        spec = stateless_pb2.JobSpec(instance_count=job.instance_count, sla=convert_v1.sla_spec(job.sla))
        spec.respool_id.value = job.respool_id
        spec.revision.version = job.config_version
        return svc.GetJobCacheResponse(spec=spec, status=status)

    # -- workflows

    async def GetWorkflowEvents(
        self, request: svc.GetWorkflowEventsRequest, context: Any
    ) -> svc.GetWorkflowEventsResponse:
        job_id = job_id_of(request.job_id, "job ID must be of UUID format")
        job = await self._calls.run(self._get_job_or_raise, job_id, job_id)
        if not job.update_id:
            raise NotFound("job runtime does not have workflow")
        events = await self._calls.run(self._records.updates.events, job.update_id, request.instance_id, request.limit)
        return svc.GetWorkflowEventsResponse(events=convert_v1.workflow_events(events))

    async def ListJobWorkflows(
        self, request: svc.ListJobWorkflowsRequest, context: Any
    ) -> svc.ListJobWorkflowsResponse:
        if not request.job_id.value:
            raise InvalidArgument("no job id provided")
        return await self._calls.run(self._list_workflows, request)

    def _list_workflows(self, request: svc.ListJobWorkflowsRequest) -> svc.ListJobWorkflowsResponse:
        job = self._get_job_or_raise(request.job_id.value, parse_known_id(request.job_id))
        response = svc.ListJobWorkflowsResponse()
        size_bytes = 0
        for update in self._records.updates.of_job(job.job_id, request.updates_limit):
            info = convert_v1.workflow_info(job, update, self._records.updates.events(update.update_id))
            if request.instance_events:
                events = self._records.updates.instance_events(update.update_id, request.instance_events_limit)
                for instance, mine in events.items():
                    info.instance_events.add(instance_id=instance, events=convert_v1.workflow_events(mine))
            size_bytes += info.ByteSize()
            if size_bytes > ANSWER_BYTES_MAX:
                raise ResourceExhausted(
                    f"the workflows of job {job.job_id} take more than {ANSWER_BYTES_MAX} bytes, the limit of one "
                    f"answer; updates_limit {len(response.workflow_infos)} fits"
                )
            response.workflow_infos.append(info)
        return response

    async def GetReplaceJobDiff(
        self, request: svc.GetReplaceJobDiffRequest, context: Any
    ) -> svc.GetReplaceJobDiffResponse:
        job_id = job_id_of(request.job_id)
        job = await self._calls.run(self._get_job_or_raise, job_id, job_id)
        version = parse_seen_version(request.version)
        take_secrets(request.spec.default_spec)
        config = await self._specs.config_of(request.spec, time.time_ns())
        with prefix_error("failed to validate spec update"):
            check_immutable(job, config)
        found = await self._calls.run(self._records.updates.difference, job_id, version, config)
        return svc.GetReplaceJobDiffResponse(
            instances_added=convert_v1.ranges(found.added),
            instances_removed=convert_v1.ranges(found.removed),
            instances_updated=convert_v1.ranges(found.updated),
            instances_unchanged=convert_v1.ranges(found.unchanged),
        )

    # -- pods

    async def ListPods(self, request: svc.ListPodsRequest, context: Any) -> AsyncGenerator[svc.ListPodsResponse, None]:
        """Stream one message for each pod; none for an unknown job."""
        job_id = parse_known_id(request.job_id)
        begin, end = 0, None
        if request.HasField("range"):
            begin, end = getattr(request.range, "from"), request.range.to
        while job_id is not None:
            page = await self._calls.run(self._records.pods.page, job_id, begin, end, PAGE)
            for pod in await self._reasons.explain(page):
                yield svc.ListPodsResponse(pods=[convert_v1.pod_summary(pod)])
            if len(page) < PAGE:
                return
            begin = page[-1].instance_id + 1

    async def QueryPods(self, request: svc.QueryPodsRequest, context: Any) -> svc.QueryPodsResponse:
        with prefix_error("failed to find job runtime"):
            job = await self._calls.run(self._get_job_or_raise, request.job_id.value, parse_known_id(request.job_id))
        with prefix_error("failed to query tasks from DB"):
            query = pods_wanted(request.spec)
            pods, total = await self._calls.run(self._records.search.query_pods, job.job_id, query)
        pods = await self._reasons.explain(pods)
        infos: list[pod_pb2.PodInfo] = await self._calls.run(within_limit, pods, partial(pod_infos, self._records))
        asked = request.pagination
        page = query_pb2.Pagination(offset=asked.offset, limit=asked.limit, total=total)
        return svc.QueryPodsResponse(pods=infos, pagination=page)

    # -- many jobs

    async def QueryJobs(self, request: svc.QueryJobsRequest, context: Any) -> svc.QueryJobsResponse:
        response = svc.QueryJobsResponse()
        if not request.HasField("spec"):
            return response
        respool_id = await self._calls.run(self._pool_at, request.spec.respool.value)
        visible = await self._calls.run(self._visible_pools)
        query = replace(jobs_wanted(request.spec, respool_id, time.time_ns()), pools=visible)
        jobs, total, is_cut = await self._calls.run(self._records.search.query_jobs, query)
        response.records.extend(await self._calls.run(self._summaries, jobs))
        asked = request.spec.pagination
        response.pagination.CopyFrom(
            query_pb2.Pagination(offset=asked.offset, limit=asked.limit, total=total, cut=is_cut)
        )
        response.spec.CopyFrom(request.spec)
        return response

    def _visible_pools(self) -> frozenset[str] | None:
        return visible_pools(self._records.pools.specs())

    def _pool_at(self, path: str) -> str:
        """Return the pool at a path; "", which filters nothing, for an unknown path: existing clients rely on it."""
        paths = pool_paths(self._records.pools.specs()) if path else {}
        return next((str(pool) for pool, known in paths.items() if known == (path.rstrip("/") or "/")), "")

    async def ListJobs(self, request: svc.ListJobsRequest, context: Any) -> AsyncGenerator[svc.ListJobsResponse, None]:
        """Stream one message for each job of any type, or for each service."""
        after, type_ = "", JobType.SERVICE if request.services_only else None
        visible = await self._calls.run(self._visible_pools)
        while True:
            page = await self._calls.run(self._records.search.jobs_after, after, PAGE, type_)
            shown = page if visible is None else [job for job in page if job.respool_id in visible]
            for summary in await self._calls.run(self._summaries, shown):
                yield svc.ListJobsResponse(jobs=[summary])
            if len(page) < PAGE:
                return
            after = page[-1].job_id

    # -- storage

    def _get_job_or_raise(self, text: str, job_id: JobId | None) -> JobRecord:
        job = self._records.jobs.get(job_id) if job_id else None
        if job is None:
            raise NotFound(f"job:{shorten(text)} not found").because(Reason.JOB_NOT_FOUND, job=text)
        return job

    def _latest_update(self, job: JobRecord) -> UpdateRecord | None:
        return self._records.updates.get(job.update_id) if job.update_id else None

    def _summaries(self, jobs: list[JobRecord]) -> list[stateless_pb2.JobSummary]:
        return [convert_v1.job_summary(job, self._latest_update(job)) for job in jobs]


def read_spec(configs: Configs, job: JobRecord, version: int) -> stateless_pb2.JobSpec:
    """Return the spec at a configuration version, with both forms of its containers' commands. Raises NotFound."""
    sent = configs.job_spec(job.job_id, version)
    config = configs.job_config(job.job_id, version, overrides=not sent)
    if config is None:
        raise NotFound(f"job:{job.job_id} has no configuration {version}")
    spec = convert_v1_spec.job_spec(config, sent)
    spec.revision.version = version
    spec.revision.created_at = job.created_ns
    spec.revision.updated_at = config.changeLog.updatedAt
    return spec
