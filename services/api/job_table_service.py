"""Peloton's JobTableService: paged listings of all jobs, and the states of a job's instances."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import grpc.aio

from peloton.api import convert
from peloton.api.config_bounds import TASKS_PER_JOB_MAX
from peloton.api.convert_time import rfc3339
from peloton.api.private import hostmgr_pb2, hostmgr_pb2_grpc
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.update import update_pb2
from peloton.errors import InvalidArgument, NotFound, Reason, Unavailable
from peloton.model.ids import ROOT_POOL_ID, JobId, RespoolId, parse_job_id
from peloton.model.job import JobRecord
from peloton.model.respool import PoolSpec, pool_paths
from peloton.model.text import quote, shorten
from peloton.model.times import NS_PER_S
from peloton.model.update import UpdateRecord
from peloton.model.update_text import update_wait_text
from services.access.visible import join, visible_pools
from services.api.calls import Calls
from services.api.channels import AsyncLeaderChannels
from services.api.ids import parse_known_id
from services.api.job_query import check_no_nul, job_state, time_span
from services.storage.jobs.job_table import JobFilter, Position
from services.storage.overview import AskingPod
from services.storage.storage import Storage

log = logging.getLogger(__name__)

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 50, 500
TEXT_MAX = 4_000
"""Maximum length of an owner or a name in characters."""
LABELS_MAX = 16
INSTANCES_MAX, MEASURE_S = 100, 5.0
"""Maximum number of instances measured per call, and timeout of a host manager that measures them, in seconds."""
_CREATED_MAX = 2**62
_Paths = dict[RespoolId, str]


class JobTableService:
    def __init__(self, records: Storage, calls: Calls, channels: AsyncLeaderChannels) -> None:
        self._records, self._calls, self._channels = records, calls, channels

    async def ListJobs(self, request: table_pb2.ListJobsRequest, context: Any) -> table_pb2.ListJobsResponse:
        if request.pageSize > PAGE_SIZE_MAX:
            raise InvalidArgument(f"pageSize is {request.pageSize}, at most {PAGE_SIZE_MAX} is allowed")
        at = position_of(request.pageToken, request.oldestFirst) if request.pageToken else None
        return await self._calls.run(self._list, request, at)

    def _list(self, request: table_pb2.ListJobsRequest, at: Position | None) -> table_pb2.ListJobsResponse:
        pools = self._records.pools.specs()
        paths = pool_paths(pools)
        wanted = _filter(request.filter, pools, paths)
        wanted = replace(wanted, pools=join(wanted.pools, visible_pools(pools)))
        size = request.pageSize or PAGE_SIZE_DEFAULT
        page = self._records.job_table.page(wanted, size, at, request.oldestFirst)
        updates = self._records.updates.some({job.update_id for job in page.jobs if job.update_id})
        response = table_pb2.ListJobsResponse(
            jobs=[_row(job, paths, updates.get(job.update_id)) for job in page.jobs],
            nextPageToken=_token(page.next, request.oldestFirst),
            previousPageToken=_token(page.previous, request.oldestFirst),
            cut=page.is_cut,
        )
        if request.count:
            count = self._records.job_table.count(wanted)
            response.count.count, response.count.more = count.count, not count.is_exact
        return response

    async def GetJob(self, request: table_pb2.GetJobRequest, context: Any) -> table_pb2.JobRow:
        return await self._calls.run(self._get, _parse_job_id(request.id))

    def _get(self, job_id: JobId) -> table_pb2.JobRow:
        job = self._records.jobs.get(job_id)
        if job is None:
            raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
        update = self._records.updates.some([job.update_id]).get(job.update_id) if job.update_id else None
        return _row(job, pool_paths(self._records.pools.specs()), update)

    async def GetInstanceStates(
        self, request: table_pb2.GetInstanceStatesRequest, context: Any
    ) -> table_pb2.GetInstanceStatesResponse:
        if request.limit > TASKS_PER_JOB_MAX:
            raise InvalidArgument(f"limit is {request.limit}, at most {TASKS_PER_JOB_MAX} is allowed")
        job_id, limit = _parse_job_id(request.id), request.limit or TASKS_PER_JOB_MAX
        states, count = await self._calls.run(self._records.pods.states, job_id, request.start, limit)
        return table_pb2.GetInstanceStatesResponse(states=states, instanceCount=count)

    async def GetInstanceUse(
        self, request: table_pb2.GetInstanceUseRequest, context: Any
    ) -> table_pb2.GetInstanceUseResponse:
        if len(request.instances) > INSTANCES_MAX:
            raise InvalidArgument(f"{len(request.instances)} instances are named, at most {INSTANCES_MAX} are allowed")
        job_id, instances = _parse_job_id(request.id), list(request.instances)
        pods = await self._calls.run(self._records.overview.asking, job_id, instances, INSTANCES_MAX)
        by_cluster: dict[str, set[str]] = {}
        for pod in pods:
            by_cluster.setdefault(pod.cluster, set()).add(pod.hostname)
        found = await asyncio.gather(*(self._measure(cluster, names) for cluster, names in by_cluster.items()))
        uses = {use.pod_id: use for answer in found for use in answer}
        return table_pb2.GetInstanceUseResponse(instances=[_use(pod, uses.get(str(pod.pod_id))) for pod in pods])

    async def _measure(self, cluster: str, hostnames: Collection[str]) -> Sequence[hostmgr_pb2.PodUse]:
        """Measure the pods on these hosts; empty if the host manager does not answer."""
        try:
            stub: Any = hostmgr_pb2_grpc.ViewsStub(await self._channels.to_cluster(cluster))
            request = hostmgr_pb2.MeasurePodsRequest(hostnames=hostnames)
            answer: hostmgr_pb2.MeasurePodsResponse = await stub.MeasurePods(request, timeout=MEASURE_S)
        except (Unavailable, grpc.aio.AioRpcError) as error:
            log.debug("no usage from the host manager of cluster %s: %s", cluster, error)
            return ()
        return answer.pods


def _use(pod: AskingPod, use: hostmgr_pb2.PodUse | None) -> table_pb2.InstanceUse:
    found = table_pb2.InstanceUse(
        instance=pod.pod_id.instance_id,
        host=pod.hostname,
        cpuAsked=pod.asked.cpu_milli / 1_000,
        memoryMbAsked=pod.asked.memory_mib,
    )
    if use is not None:
        found.measured, found.cpuUsed, found.memoryMbUsed = True, use.cpu_milli / 1_000, use.memory_mib
    return found


def _parse_job_id(wire: peloton_pb2.JobID) -> JobId:
    """Parse a job id. Raises NotFound."""
    job_id = parse_known_id(wire)
    if job_id is None:
        raise NotFound(f"job {shorten(wire.value)} not found").because(Reason.JOB_NOT_FOUND, job=wire.value)
    return job_id


def _filter(asked: table_pb2.JobFilter, pools: tuple[PoolSpec, ...], paths: _Paths) -> JobFilter:
    """Convert the filter of a listing. Raises InvalidArgument, NotFound."""
    labels = tuple((label.key, label.value) for label in asked.labels)
    texts = (
        asked.owner,
        asked.creator,
        asked.namePart,
        asked.namePrefix,
        *(text for label in labels for text in label),
    )
    check_no_nul(*texts)
    if (longest := max(map(len, texts))) > TEXT_MAX:
        raise InvalidArgument(f"a text of the filter has {longest} characters, at most {TEXT_MAX} are allowed")
    if len(labels) > LABELS_MAX:
        raise InvalidArgument(f"the filter has {len(labels)} labels, at most {LABELS_MAX} are allowed")
    created = None
    if asked.HasField("creationTimeRange"):
        begin, end = time_span(asked.creationTimeRange)
        created = (begin, end + NS_PER_S - 1)
    for number in asked.types:
        if number not in convert.JOB_TYPES:
            raise InvalidArgument(f"job type {number} is not known")
    return JobFilter(
        pools=_subtree(asked.pool, pools, paths) if asked.pool else None,
        owner=asked.owner,
        creator=asked.creator,
        states=frozenset(map(job_state, asked.states)),
        types=frozenset(convert.JOB_TYPES[number] for number in asked.types),
        labels=labels,
        name_part=asked.namePart,
        name_prefix=asked.namePrefix,
        created=created,
    )


def _subtree(asked: str, pools: tuple[PoolSpec, ...], paths: _Paths) -> frozenset[str] | None:
    """Return the leaf pools of a subtree, which can have jobs; None for all pools."""
    path = asked if asked in paths.values() else paths.get(RespoolId(asked))
    if path is None:
        raise NotFound(f"resource pool {shorten(asked)} not found").because(Reason.POOL_NOT_FOUND, pool=asked)
    if path == paths[ROOT_POOL_ID]:
        return None
    parents = {pool.parent_id for pool in pools}
    below = (pool for pool, other in paths.items() if other == path or other.startswith(f"{path}/"))
    return frozenset(str(pool) for pool in below if pool not in parents)


def _row(job: JobRecord, paths: _Paths, update: UpdateRecord | None) -> table_pb2.JobRow:
    row = table_pb2.JobRow(
        name=job.name,
        type=convert.JOB_TYPE_NUMBERS[job.type],
        owner=job.owning_team,
        creator=job.creator,
        poolPath=paths.get(job.respool_id, ""),
        state=convert.JOB_STATE_NUMBERS[job.state],  # type: ignore[arg-type]
        goalState=convert.JOB_STATE_NUMBERS[job.goal],  # type: ignore[arg-type]
        instanceCount=job.instance_count,
        taskStats={state.value: count for state, count in convert.public_counts(job.pod_counts).items() if count},
        priority=job.sla.priority,
        creationTime=rfc3339(job.created_ns),
        startTime=rfc3339(job.started_ns),
        completionTime=rfc3339(job.completed_ns),
    )
    row.id.value, row.respoolID.value = job.job_id, job.respool_id
    for key, value in job.labels:
        row.labels.add(key=key, value=value)
    if update is not None:
        row.update.state = update_pb2.State.Value(update.state.value)
        row.update.doneCount, row.update.failedCount = len(update.done), len(update.failed)
        row.update.totalCount = update.total_count
        row.update.waitingFor = update_wait_text(update)
        row.update.failedRunCount = update.failed_run_count
        row.update.stalledTime, row.update.stallCause = rfc3339(update.stalled_ns), update.stall_cause
    return row


# -- tokens --------------------------------------------------------------------------------------------------------


def _token(at: Position | None, oldest_first: bool) -> str:
    if at is None:
        return ""
    fields = [int(oldest_first), at.created_ns, at.job_id, int(at.back), int(at.is_included)]
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


def position_of(token: str, oldest_first: bool) -> Position:
    """Decode a page token. Raises InvalidArgument."""
    try:
        fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        order, created_ns, job_id, back, is_included = fields
        position = Position(int(created_ns), parse_job_id(job_id), bool(back), bool(is_included))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InvalidArgument(
            f"pageToken {quote(token)} was not issued by this service: start again without a token"
        ) from error
    if order != int(oldest_first):
        raise InvalidArgument("pageToken belongs to the other sort order: start again without a token")
    if not 0 <= position.created_ns <= _CREATED_MAX:
        raise InvalidArgument(f"pageToken {quote(token)} was not issued by this service: start again without a token")
    return position
