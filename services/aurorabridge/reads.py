"""Methods that read jobs, tasks, configurations and updates. Each calls role api a few times, whatever the size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from peloton.api.private import bulk_reads_pb2 as wire
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod.pod_pb2 import PodSpec
from services.aurorabridge import states
from services.aurorabridge.backend import Backend
from services.aurorabridge.lookup import job_with_key, jobs_like, jobs_with_keys, pods_of, updates_of
from services.aurorabridge.mapping import identity
from services.aurorabridge.mapping.job_spec import check_request, job_spec_of
from services.aurorabridge.mapping.task_config import task_config_of
from services.aurorabridge.method import Method, Refusal
from services.aurorabridge.tasks import Tasks, count_runs
from services.aurorabridge.thrift import api
from services.aurorabridge.update_details import UPDATES_MAX, is_wanted, list_details, newest_first, ranges_of
from services.aurorabridge.writes import thermos_of

TASKS_MAX = 250_000
"""Maximum number of tasks in one answer: two runs of each instance of the largest job."""
INSTANCE_EVENTS_MAX = 2_000_000
"""Maximum number of events of instances in one answer."""
_TIERS = {"revocable": ("true", "true"), "preferred": ("false", "false"), "preemptible": ("true", "false")}
"""Tier -> whether its pods are preemptible and revocable, as clients of Aurora read it."""


# -- jobs ----------------------------------------------------------------------------------------------------------


async def get_job_summary(backend: Backend, args: Any) -> Any:
    summaries = [
        api.JobSummary(job=_configuration(job, job.instance_count), stats=states.job_stats(job.pod_counts.items()))
        async for job in _jobs_of_role(backend, args.role)
    ]
    return api.Result(jobSummaryResult=api.JobSummaryResult(summaries=summaries))


async def get_jobs(backend: Backend, args: Any) -> Any:
    configs = [
        _configuration(job, states.job_stats(job.pod_counts.items()).activeTaskCount)
        async for job in _jobs_of_role(backend, args.ownerRole)
    ]
    return api.Result(getJobsResult=api.GetJobsResult(configs=configs))


async def _jobs_of_role(backend: Backend, role: str | None) -> AsyncIterator[wire.Job]:
    async for job in jobs_like(backend, role):
        if job.instance_count:
            yield job


def _configuration(job: wire.Job, instance_count: int) -> Any:
    try:
        task = task_config_of(job.spec.default_spec, job.spec)
    except Refusal as refusal:
        raise Refusal(f"job {job.name}: {refusal}") from refusal
    return api.JobConfiguration(key=task.job, owner=task.owner, taskConfig=task, instanceCount=instance_count)


async def get_config_summary(backend: Backend, args: Any) -> Any:
    job = await job_with_key(backend, args.job)
    if job is None:
        raise Refusal(f"job {identity.job_name(args.job)} not found")
    groups: dict[bytes, tuple[PodSpec, list[int]]] = {}
    keys: dict[int, bytes] = {}
    async for batch in pods_of(backend, [job]):
        for instance, number in zip(batch.wire.instance, batch.wire.spec, strict=True):
            if number not in keys:
                spec = _without_update(batch.spec(number))
                keys[number] = spec.SerializeToString(deterministic=True)
                groups.setdefault(keys[number], (spec, []))
            groups[keys[number]][1].append(instance)
    found = [
        api.ConfigGroup(config=task_config_of(spec, job.spec), instances=_ranges(instances))
        for spec, instances in groups.values()
    ]
    summary = api.ConfigSummary(key=args.job, groups=found)
    return api.Result(configSummaryResult=api.ConfigSummaryResult(summary=summary))


def _without_update(spec: PodSpec) -> PodSpec:
    """Return a copy without the fields by which an update pins or restarts instances of the same configuration."""
    copy = PodSpec()
    copy.CopyFrom(spec)
    copy.ClearField("complete")
    copy.ClearField("labels")
    copy.labels.extend(identity.without_update(spec.labels))
    return copy


def _ranges(instances: Iterable[int]) -> list[Any]:
    """Return rising instances as ranges."""
    found: list[Any] = []
    for instance in instances:
        if found and found[-1].last == instance - 1:
            found[-1].last = instance
        else:
            found.append(api.Range(first=instance, last=instance))
    return found


# -- tasks ---------------------------------------------------------------------------------------------------------


async def get_tasks_without_configs(backend: Backend, args: Any) -> Any:
    query, settings = args.query, backend.settings
    if query is None:
        raise Refusal("the query is missing")
    for status in query.statuses or ():
        states.pod_state(status)  # refuses unknown ones
    jobs = await _jobs_of_query(backend, query)
    runs = count_runs(sum(job.instance_count for job in jobs), settings.pod_runs_depth, settings.tasks_max)
    tasks = Tasks(query.statuses or ())
    async for batch in pods_of(backend, jobs, runs):
        tasks.add(batch)
        if len(tasks) > TASKS_MAX:
            raise Refusal(f"the query finds more than {TASKS_MAX:,} tasks: name a job, or statuses")
    return api.Result(scheduleStatusResult=api.ScheduleStatusResult(tasks=tasks))


async def _jobs_of_query(backend: Backend, query: Any) -> list[wire.Job]:
    keys = query.jobKeys or []
    if not keys and query.role and query.environment and query.jobName:
        keys = [api.JobKey(role=query.role, environment=query.environment, name=query.jobName)]
    if keys:
        return await jobs_with_keys(backend, keys)
    return [job async for job in jobs_like(backend, query.role, query.environment, query.jobName)]


# -- updates -------------------------------------------------------------------------------------------------------


async def get_job_update_summaries(backend: Backend, args: Any) -> Any:
    found = await _list_updates(backend, args.jobUpdateQuery, None, instance_events=False)
    summaries = [details.update.summary for details in found]
    return api.Result(getJobUpdateSummariesResult=api.GetJobUpdateSummariesResult(updateSummaries=summaries))


async def get_job_update_details(backend: Backend, args: Any) -> Any:
    found = await _list_updates(backend, args.query, args.key, instance_events=True)
    return api.Result(getJobUpdateDetailsResult=api.GetJobUpdateDetailsResult(detailsList=found))


async def _list_updates(backend: Backend, query: Any, key: Any, instance_events: bool) -> list[Any]:
    """Return the details of the updates that a query and a key name; the key takes precedence."""
    query = query or api.JobUpdateQuery()
    key = key or query.key or api.JobUpdateKey()
    if job_key := key.job or query.jobKey:
        jobs = await jobs_with_keys(backend, [job_key])
    else:
        jobs = [job async for job in jobs_like(backend, query.role)]
    found: list[Any] = []
    count = 0
    async for job, updates in updates_of(backend, jobs, UPDATES_MAX, instance_events):
        details = await asyncio.to_thread(list_details, identity.job_key(job.name), updates)
        wanted = [one for one in details if is_wanted(one, key.id, query.updateStatuses)]
        count += sum(len(one.instanceEvents) for one in wanted)
        if count > INSTANCE_EVENTS_MAX:
            raise Refusal(f"the updates have more than {INSTANCE_EVENTS_MAX:,} events of instances: name a job")
        found += wanted
    return newest_first(found)


async def get_job_update_diff(backend: Backend, args: Any) -> Any:
    request = args.request
    task = check_request(request)
    job = await job_with_key(backend, task.job)
    if job is None:
        everything = _group(_ranges(range(request.instanceCount or 0)))
        return api.Result(getJobUpdateDiffResult=api.GetJobUpdateDiffResult(add=everything))
    thermos = thermos_of(backend.settings)
    spec = await asyncio.to_thread(job_spec_of, request, job.spec.respool_id.value, thermos)
    found = await backend.jobs.GetReplaceJobDiff(
        svc.GetReplaceJobDiffRequest(
            job_id=peloton_pb2.JobID(value=job.job_id),
            version=peloton_pb2.EntityVersion(value=job.version),
            spec=spec,
        )
    )
    diff = api.GetJobUpdateDiffResult(
        add=_group(ranges_of(found.instances_added)),
        remove=_group(ranges_of(found.instances_removed)),
        update=_group(ranges_of(found.instances_updated)),
        unchanged=_group(ranges_of(found.instances_unchanged)),
    )
    return api.Result(getJobUpdateDiffResult=diff)


def _group(ranges: list[Any]) -> list[Any] | None:
    return [api.ConfigGroup(instances=ranges)] if ranges else None


# -- tiers ---------------------------------------------------------------------------------------------------------


async def get_tier_configs(backend: Backend, args: Any) -> Any:
    tiers = [
        api.TierConfig(name=name, settings={"preemptible": preemptible, "revocable": revocable})
        for name, (preemptible, revocable) in _TIERS.items()
    ]
    return api.Result(getTierConfigResult=api.GetTierConfigResult(defaultTierName="preemptible", tiers=tiers))


METHODS: dict[str, Method] = {
    "getJobSummary": get_job_summary,
    "getJobs": get_jobs,
    "getTasksWithoutConfigs": get_tasks_without_configs,
    "getConfigSummary": get_config_summary,
    "getJobUpdateSummaries": get_job_update_summaries,
    "getJobUpdateDetails": get_job_update_details,
    "getJobUpdateDiff": get_job_update_diff,
    "getTierConfigs": get_tier_configs,
}
