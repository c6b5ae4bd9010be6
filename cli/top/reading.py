"""The API calls of `peloton top`: each picture takes a bounded number of calls. They run in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc

from cli.errors import rpc_failure
from cli.job.read import get_job_or_summary, refuse_unknown_job
from cli.job.table import job_filter
from cli.params import SINCE
from cli.queries import set_v0_page
from cli.refusals import raise_if_refused
from cli.settings import Settings
from cli.top.asked import PAGE_ROWS, InstanceConditions, JobConditions
from cli.wire import v0

FAILED_JOBS_MAX = 50
"""Limit of failed jobs: the newest ones, whenever they failed."""
EVENT_RUNS = 10
SCHEDULES_MAX = 1_000
HOST_EVENTS = 3

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Part(Generic[T_co]):
    """The answer of one call of several; if it fails the others are shown without it."""

    answer: T_co | None
    error: str = ""


@dataclass(frozen=True)
class Overview:
    whole: v0.overview.GetOverviewResponse
    tree: Part[v0.explain.PoolTreeResponse]
    failed: Part[v0.table.ListJobsResponse]  # at most FAILED_JOBS_MAX


@dataclass(frozen=True)
class OneJob:
    job: v0.job.JobInfo
    pool: str
    why: Part[v0.explain.JobWhyResponse]
    instances: v0.task.QueryResponse


@dataclass(frozen=True)
class OneHost:
    """The data of one host. ``info`` is None when there is no such host."""

    info: v0.host.HostInfo | None
    drains: Sequence[v0.maintenance.HostMaintenance] = ()
    pods: Part[v0.overview.GetHostPodsResponse] = Part(None)
    events: Part[v0.overview.ListHostEventsResponse] = Part(None)  # the newest, at most HOST_EVENTS


class Reader:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.client = settings.open_client = settings.connect()
        self._pools: dict[str, str] = {}

    @property
    def address(self) -> str:
        return self.client.address

    def close(self) -> None:
        """Close the connection; waiting calls end with an error."""
        self.settings.close()

    def overview(self) -> Overview:
        """Read the overview; its parts may fail, the overview itself must not."""
        client, failed = self.client, v0.table.ListJobsRequest(pageSize=FAILED_JOBS_MAX)
        failed.filter.states.append(v0.job.JobState.Value("FAILED"))
        return Overview(
            client.overview.GetOverview(v0.overview.GetOverviewRequest()),
            self._part(lambda: client.explain.PoolTree(v0.explain.PoolTreeRequest())),
            self._part(lambda: client.job_table.ListJobs(failed)),
        )

    def pools(self) -> v0.explain.PoolTreeResponse:
        return self.client.explain.PoolTree(v0.explain.PoolTreeRequest())

    def jobs(self, asked: JobConditions) -> v0.table.ListJobsResponse:
        since = SINCE.parse(asked.since) if asked.since else None
        wanted = job_filter(
            respool=asked.pool, states=asked.states, types=asked.types, owner=asked.owner, labels=asked.labels,
            name=asked.name, since=since,
        )  # fmt: skip
        request = v0.table.ListJobsRequest(
            filter=wanted, oldestFirst=not asked.order.falls, pageSize=PAGE_ROWS, pageToken=asked.token
        )
        return self.client.job_table.ListJobs(request)

    def pool_why(self, path: str) -> Part[v0.explain.PoolWhyResponse]:
        request = v0.explain.PoolWhyRequest(path=v0.respool.ResourcePoolPath(value=path))
        return self._part(lambda: self.client.explain.PoolWhy(request))

    def job(self, job_id: str, asked: InstanceConditions) -> OneJob:
        wire = v0.peloton.JobID(value=job_id)
        response = get_job_or_summary(self.client, job_id)
        refuse_unknown_job(self.settings, response, "Unable to get job", job_id)
        why = self._part(lambda: self.client.explain.JobWhy(v0.explain.JobWhyRequest(jobId=wire)))
        job = response.jobInfo
        instances = self._instances(job_id, asked)
        return OneJob(job, self._pool_path(job.config.respoolID.value), why, instances)

    def events(self, job_id: str, instance_id: int) -> v0.task.GetPodEventsResponse:
        request = v0.task.GetPodEventsRequest(
            jobId=v0.peloton.JobID(value=job_id), instanceId=instance_id, limit=EVENT_RUNS
        )
        response = self.client.tasks.GetPodEvents(request)
        raise_if_refused(self.settings, response, {})
        return response

    def hosts(self) -> v0.host_svc.QueryHostsResponse:
        return self.client.hosts.QueryHosts(v0.host_svc.QueryHostsRequest())

    def schedules(self) -> v0.schedule.ListSchedulesResponse:
        return self.client.schedules.ListSchedules(v0.schedule.ListSchedulesRequest(limit=SCHEDULES_MAX))

    def host(self, hostname: str) -> OneHost:
        client = self.client
        found = client.hosts.QueryHosts(v0.host_svc.QueryHostsRequest(hostnames=[hostname])).host_infos
        info = next((info for info in found if info.hostname == hostname), None)
        if info is None:
            return OneHost(None)
        drains = client.maintenance.Query(v0.maintenance.QueryRequest(hostnames=[hostname])).hosts
        pods = v0.overview.GetHostPodsRequest(hostname=hostname)
        events = v0.overview.ListHostEventsRequest(hostname=hostname, limit=HOST_EVENTS)
        return OneHost(
            info,
            drains,
            self._part(lambda: client.overview.GetHostPods(pods)),
            self._part(lambda: client.overview.ListHostEvents(events)),
        )

    def _instances(self, job_id: str, asked: InstanceConditions) -> v0.task.QueryResponse:
        request = v0.task.QueryRequest(jobId=v0.peloton.JobID(value=job_id))
        request.spec.taskStates.extend(map(v0.task.TaskState.Value, asked.states))
        request.spec.hosts.extend(asked.hosts)
        set_v0_page(request.spec.pagination, asked.offset, PAGE_ROWS, 0, [asked.order.field], asked.order.word)
        response = self.client.tasks.Query(request)
        raise_if_refused(self.settings, response, {"notFound": "Job {id} was not found: {message}"}, id=job_id)
        return response

    def _pool_path(self, pool_id: str) -> str:
        """Return the path of a pool from the cache or the API; without a resource manager return its id."""
        if pool_id not in self._pools:
            pools = self._part(lambda: self.client.respools.Query(v0.respool.QueryRequest())).answer
            if pools is not None:
                self._pools = {pool.id.value: pool.path.value for pool in pools.resourcePools}
        return self._pools.get(pool_id, pool_id)

    def _part(self, call: Callable[[], T]) -> Part[T]:
        try:
            return Part(call())
        except grpc.RpcError as refused:
            return Part(None, rpc_failure(refused, self.settings))
