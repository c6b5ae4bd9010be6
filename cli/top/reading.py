"""What `peloton top` asks the API: each picture takes a bounded number of calls. Called in threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc

from cli.errors import Failed, rpc_failure
from cli.job.read import get_job_or_summary, refuse_unknown_job
from cli.job.table import job_filter
from cli.params import SINCE
from cli.queries import set_v0_page
from cli.refusals import raise_if_refused
from cli.settings import Settings
from cli.top.asked import INSTANCE_ORDERS, PAGE_ROWS, InstanceConditions, JobConditions
from cli.wire import v0, v1

FAILED_JOBS_MAX = 50
"""The newest that have failed, whenever that was."""
HOST_JOBS_MAX = 10
"""Jobs of a host whose pods are asked for one by one."""
HOST_PODS_PER_JOB = 50
ON_HOST = ("LAUNCHED", "STARTING", "RUNNING", "KILLING", "PREEMPTING")
EVENT_RUNS = 10

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Part(Generic[T_co]):
    """One call of several: the others are shown without it. ``took_s``: until it was answered or refused."""

    answer: T_co | None
    error: str = ""
    took_s: float = 0.0


@dataclass(frozen=True)
class Overview:
    tree: Part[v0.explain.PoolTreeResponse]
    hosts: Part[v0.host_svc.QueryHostsResponse]
    advice: Part[v0.advice.AdviceResponse]
    lockdown: Part[v1.admin_svc.GetLockdownResponse]
    failed: Part[v0.table.ListJobsResponse]  # at most FAILED_JOBS_MAX

    @property
    def parts(self) -> Sequence[Part[object]]:
        return (self.tree, self.hosts, self.advice, self.lockdown, self.failed)


@dataclass(frozen=True)
class OneJob:
    job: v0.job.JobInfo
    pool: str
    why: Part[v0.explain.JobWhyResponse]
    instances: v0.task.QueryResponse


@dataclass(frozen=True)
class OneHost:
    """``info`` is None when no host is called so. ``departure`` counts its pods by job; ``pods`` are those of the
    first HOST_JOBS_MAX jobs."""

    info: v0.host.HostInfo | None
    drains: Sequence[v0.maintenance.HostMaintenance]
    departure: Part[v0.maintenance.HostDeparture | None]
    pods: Sequence[v0.task.TaskInfo] = ()


class Reader:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.client = settings.open_client = settings.connect()
        self._pools: dict[str, str] = {}

    @property
    def address(self) -> str:
        return self.client.address

    def close(self) -> None:
        """Calls that wait end with an error."""
        self.settings.close()

    def overview(self) -> Overview:
        """Raises RpcError when no call is answered."""
        failed = v0.table.ListJobsRequest(pageSize=FAILED_JOBS_MAX)
        failed.filter.states.append(v0.job.JobState.Value("FAILED"))
        client, marks = self.client, map(v0.advice.Mark.Value, ("MARK_ORANGE", "MARK_RED"))
        found = Overview(
            tree=self._part(lambda: client.explain.PoolTree(v0.explain.PoolTreeRequest())),
            hosts=self._part(lambda: client.hosts.QueryHosts(v0.host_svc.QueryHostsRequest())),
            advice=self._part(lambda: client.advice.Advice(v0.advice.AdviceRequest(marks=marks))),
            lockdown=self._part(lambda: client.admin.GetLockdown(v1.admin_svc.GetLockdownRequest())),
            failed=self._part(lambda: client.job_table.ListJobs(failed)),
        )
        if not any(part.answer is not None for part in found.parts):
            raise Failed(found.tree.error)
        return found

    def pools(self) -> v0.explain.PoolTreeResponse:
        return self.client.explain.PoolTree(v0.explain.PoolTreeRequest())

    def jobs(self, asked: JobConditions) -> v0.table.ListJobsResponse:
        since = SINCE.parse(asked.since) if asked.since else None
        wanted = job_filter(asked.pool, asked.states, asked.types, asked.owner, asked.labels, asked.name, since)
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
        instances = self._instances(job_id, asked, PAGE_ROWS)
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

    def host(self, hostname: str) -> OneHost:
        info = next((info for info in self.hosts().host_infos if info.hostname == hostname), None)
        if info is None:
            return OneHost(None, (), Part(None))
        drains = self.client.maintenance.Query(v0.maintenance.QueryRequest(hostnames=[hostname])).hosts
        plan = v0.maintenance.PlanRequest(hostnames=[hostname])
        departure = self._part(lambda: next(iter(self.client.maintenance.Plan(plan).hosts), None))
        there = InstanceConditions(ON_HOST, (hostname,), 0, INSTANCE_ORDERS[0])
        jobs = [job.job_id for job in departure.answer.jobs] if departure.answer is not None else []
        found = [self._instances(job_id, there, HOST_PODS_PER_JOB) for job_id in jobs[:HOST_JOBS_MAX]]
        return OneHost(info, drains, departure, [pod for response in found for pod in response.records])

    def _instances(self, job_id: str, asked: InstanceConditions, count: int) -> v0.task.QueryResponse:
        request = v0.task.QueryRequest(jobId=v0.peloton.JobID(value=job_id))
        request.spec.taskStates.extend(map(v0.task.TaskState.Value, asked.states))
        request.spec.hosts.extend(asked.hosts)
        set_v0_page(request.spec.pagination, asked.offset, count, 0, [asked.order.field], asked.order.word)
        response = self.client.tasks.Query(request)
        raise_if_refused(self.settings, response, {"notFound": "Job {id} was not found: {message}"}, id=job_id)
        return response

    def _pool_path(self, pool_id: str) -> str:
        """What is known is not asked for again. Without a resource manager the id has to do."""
        if pool_id not in self._pools:
            pools = self._part(lambda: self.client.respools.Query(v0.respool.QueryRequest())).answer
            if pools is not None:
                self._pools = {pool.id.value: pool.path.value for pool in pools.resourcePools}
        return self._pools.get(pool_id, pool_id)

    def _part(self, call: Callable[[], T]) -> Part[T]:
        began_s = time.monotonic()
        try:
            answer, error = call(), ""
        except grpc.RpcError as refused:
            answer, error = None, rpc_failure(refused, self.settings)
        return Part(answer, error, time.monotonic() - began_s)
