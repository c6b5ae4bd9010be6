"""v0 TaskManager: reads and controls the pods of a job. Domain errors are part of the response."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from peloton.api import convert
from peloton.api.pod_parts import has_several
from peloton.api.respell import respell
from peloton.api.v0.errors import errors_pb2
from peloton.api.v0.query import query_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument, NotFound, PelotonError, ResourceExhausted
from peloton.lifecycle.external import owner_refusal
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobRecord, JobState, JobType
from peloton.model.pod import TERMINAL, PodEvent, PodRecord, PodState
from peloton.ports import PERSON
from services.api.answers import within_limit
from services.api.channels import ANSWER_BYTES_MAX
from services.api.containers import containers_of
from services.api.ids import RUN_ID_MAX, job_not_found, out_of_range, parse_known_id, run_id_of
from services.api.job_query import pod_query
from services.api.ranges import INT32_MAX, OutOfRange, clip, is_whole_job
from services.api.servicer import Servicer, by_caller, check_managed, write

EVENT_RUNS = 10
"""Default number of runs that GetPodEvents returns."""
EVENT_RUNS_MAX = 100
PAGE = 1_000
"""Number of pods read from storage at a time."""

START_MESSAGE = "Task start API request"
STOP_MESSAGE = "Task stop API request"
RESTART_MESSAGE = "Task restart API request"


class TaskManager(Servicer):
    # -- reads

    async def Get(self, request: task_pb2.GetRequest, context: Any) -> task_pb2.GetResponse:
        record = await self._job(parse_known_id(request.jobId))
        if record is None:
            return task_pb2.GetResponse(notFound=job_not_found(request.jobId))
        missing = f"task:{record.job_id}-{request.instanceId} not found"
        pod = await self._calls.run(self._pod_or_not_found, record.job_id, request.instanceId, missing)
        (pod,) = await self._reasons.explain([pod])
        return await self._calls.run(self._get, record, pod)

    def _get(self, record: JobRecord, pod: PodRecord) -> task_pb2.GetResponse:
        events = self._records.pods.events(record.job_id, pod.instance_id, None, EVENT_RUNS_MAX)
        # Newest first: the last event of a run that stays is the one of its end; later ones may hide the reason.
        ends = {event.run_id: event for event in events if event.state in TERMINAL}
        return task_pb2.GetResponse(result=self._task_infos(record, [pod])[0], results=map(_past_run, ends.values()))

    async def List(self, request: task_pb2.ListRequest, context: Any) -> task_pb2.ListResponse:
        record = await self._job(parse_known_id(request.jobId))
        if record is None:
            return task_pb2.ListResponse(notFound=job_not_found(request.jobId))
        begin, end = 0, record.instance_count
        if request.HasField("range"):
            begin, end = getattr(request.range, "from"), min(request.range.to, INT32_MAX)
        response, waiting = await self._calls.run(self._list, record, begin, min(end, record.instance_count))
        if not response.result.value:
            cause = f"no tasks in range [{begin}, {end})"
            return task_pb2.ListResponse(notFound=job_not_found(request.jobId, cause))
        for pod in await self._reasons.explain(waiting):
            response.result.value[pod.instance_id].runtime.reason = convert.pod_reason(pod)
        return response

    def _list(self, record: JobRecord, begin: int, end: int) -> tuple[task_pb2.ListResponse, list[PodRecord]]:
        """Build the answer, and list the pods that lack a reason for waiting."""
        response, waiting = task_pb2.ListResponse(), list[PodRecord]()
        size_bytes = 0
        for page in self._pages(record.job_id, begin, end):
            waiting += filter(self._reasons.lacks_reason, page)
            for info in self._task_infos(record, page):
                size_bytes += info.ByteSize()
                if size_bytes > ANSWER_BYTES_MAX:
                    raise ResourceExhausted(
                        f"tasks [{begin}, {end}) of job {record.job_id} take more than {ANSWER_BYTES_MAX} bytes, the "
                        f"limit of one answer; [{begin}, {info.instanceId}) fits"
                    )
                response.result.value[info.instanceId].CopyFrom(info)
        return response, waiting

    async def Query(self, request: task_pb2.QueryRequest, context: Any) -> task_pb2.QueryResponse:
        response = task_pb2.QueryResponse()
        record = await self._job(parse_known_id(request.jobId))
        if record is None:
            response.error.notFound.CopyFrom(job_not_found(request.jobId))
            return response
        try:
            query = pod_query(request.spec)
            pods, total = await self._calls.run(self._records.search.query_pods, record.job_id, query)
        except InvalidArgument as invalid:
            response.error.notFound.CopyFrom(errors_pb2.JobNotFound(id=request.jobId, message=invalid.message))
            return response
        pods = await self._reasons.explain(pods)
        infos = await self._calls.run(within_limit, pods, partial(self._task_infos, record))
        response.records.extend(infos)
        asked = request.spec.pagination
        response.pagination.CopyFrom(query_pb2.Pagination(offset=asked.offset, limit=asked.limit, total=total))
        return response

    async def GetCache(self, request: task_pb2.GetCacheRequest, context: Any) -> task_pb2.GetCacheResponse:
        record = await self._job_or_not_found(parse_known_id(request.jobId), "Job not found in cache")
        return await self._calls.run(self._get_cache, record, request.instanceId)

    def _get_cache(self, record: JobRecord, instance_id: int) -> task_pb2.GetCacheResponse:
        pod = self._pod_or_not_found(record.job_id, instance_id, "Task not found in cache")
        info = self._task_infos(record, [pod])[0]
        return task_pb2.GetCacheResponse(runtime=info.runtime, labels=info.config.labels)

    async def GetPodEvents(self, request: task_pb2.GetPodEventsRequest, context: Any) -> task_pb2.GetPodEventsResponse:
        job_id, run_id = parse_known_id(request.jobId), None
        if job_id is None:
            return task_pb2.GetPodEventsResponse()
        if request.runId:
            run_id = run_id_of(request.runId, job_id, request.instanceId)
        run_limit = 1 if run_id is not None else min(request.limit or EVENT_RUNS, EVENT_RUNS_MAX)
        events = await self._calls.run(self._records.pods.events, job_id, request.instanceId, run_id, run_limit)
        return task_pb2.GetPodEventsResponse(result=[convert.pod_event(event) for event in events])

    async def BrowseSandbox(
        self, request: task_pb2.BrowseSandboxRequest, context: Any
    ) -> task_pb2.BrowseSandboxResponse:
        response = task_pb2.BrowseSandboxResponse()
        record = await self._job(parse_known_id(request.jobId))
        if record is None:
            response.error.notFound.CopyFrom(job_not_found(request.jobId))
            return response
        if refused := owner_refusal(record):  # names of external pods are not Peloton's
            response.error.failure.message = refused
            return response
        run = await self._calls.run(self._run_to_browse, record.job_id, request.instanceId, request.taskId)
        if run is None:
            response.error.outOfRange.CopyFrom(out_of_range(record))
            return response
        pod_id, host, agent_id = run
        if not host or not agent_id:
            response.error.notRunning.message = "taskinfo does not have hostname or agentID"
            return response
        try:
            sandbox = await self._hosts.browse_sandbox(pod_id, host, agent_id)
        except PelotonError as error:
            response.error.failure.message = f"get slave log failed on host:{host} due to: {error.message}"
            return response
        respell(sandbox, response)
        return response

    def _run_to_browse(self, job_id: JobId, instance_id: int, run: str) -> tuple[PodId, str, str] | None:
        """Return (pod id, host, agent id) of the current or given run; None without such a run."""
        pod = self._records.pods.get(job_id, instance_id)
        if pod is None:
            return None
        if not run or run == str(pod.pod_id):
            return pod.pod_id, pod.host, pod.agent_id
        run_id = run_id_of(run, job_id, instance_id)
        events = self._records.pods.events(job_id, instance_id, run_id, 1)
        if not events:
            return None
        on_host = next((event for event in events if event.host and event.agent_id), events[0])
        return PodId(job_id, instance_id, run_id), on_host.host, on_host.agent_id

    # -- writes

    @write
    async def Start(self, request: task_pb2.StartRequest, context: Any) -> task_pb2.StartResponse:
        response = task_pb2.StartResponse()
        record = await self._job(parse_known_id(request.jobId))
        if record is None:
            response.error.notFound.CopyFrom(job_not_found(request.jobId))
            return response
        check_managed(record)
        if record.type is JobType.BATCH and not record.is_active:
            raise InvalidArgument("cannot start tasks in a terminated job")
        try:
            ranges = clip(request.ranges, record.instance_count)
        except OutOfRange:
            response.error.outOfRange.CopyFrom(out_of_range(record))
            return response
        async with self._quota.growing(record, record.instance_count, starts=True):
            response.startedInstanceIds.extend(await self._start(record, request, ranges))
        self._wake.wake(record.job_id)
        return response

    async def _start(
        self, record: JobRecord, request: task_pb2.StartRequest, ranges: list[tuple[int, int]]
    ) -> Iterable[int]:
        now_ns = time.time_ns()
        if record.type is JobType.DAEMON and is_whole_job(request.ranges, record.instance_count):
            # including one that never had a host
            await self._calls.run(self._records.jobs.set_goal, record.job_id, JobState.RUNNING, now_ns)
            return range(record.instance_count)
        goal, message = (
            PodState.SUCCEEDED if record.type is JobType.BATCH else PodState.RUNNING,
            by_caller(START_MESSAGE),
        )
        return await self._calls.run(self._records.pods.set_goals, record.job_id, ranges, goal, now_ns, message)

    @write
    async def Stop(self, request: task_pb2.StopRequest, context: Any) -> task_pb2.StopResponse:
        response = task_pb2.StopResponse()
        record = await self._job(parse_known_id(request.jobId))
        if record is None:
            response.error.notFound.CopyFrom(job_not_found(request.jobId))
            return response
        check_managed(record)
        try:
            ranges = clip(request.ranges, record.instance_count)
        except OutOfRange:
            response.error.outOfRange.CopyFrom(out_of_range(record))
            return response
        job_id, now_ns = record.job_id, time.time_ns()
        if is_whole_job(request.ranges, record.instance_count):
            response.stoppedInstanceIds.extend(range(record.instance_count))
            if record.is_active:  # ended pods are stopped already
                await self._calls.run(self._records.jobs.set_goal, job_id, JobState.KILLED, now_ns)
        else:
            missing = await self._calls.run(self._not_created, record, ranges)
            stopped = await self._calls.run(
                self._records.pods.set_goals, job_id, ranges, PodState.KILLED, now_ns, by_caller(STOP_MESSAGE)
            )
            response.stoppedInstanceIds.extend(stopped)
            response.invalidInstanceIds.extend(sorted(missing.difference(stopped)))
        if record.is_active:
            self._wake.wake(job_id)
        return response

    @write
    async def Restart(self, request: task_pb2.RestartRequest, context: Any) -> task_pb2.RestartResponse:
        record = await self._job_or_not_found(parse_known_id(request.jobId), f"job:{request.jobId.value} not found")
        check_managed(record)
        ranges = clip(request.ranges, record.instance_count)
        message = by_caller(RESTART_MESSAGE) if PERSON.get() else ""  # the original leaves the message as it is
        await self._calls.run(self._records.pods.want_new_runs, record.job_id, ranges, message=message)
        if record.is_active:
            self._wake.wake(record.job_id)
        return task_pb2.RestartResponse()

    async def Refresh(self, request: task_pb2.RefreshRequest, context: Any) -> task_pb2.RefreshResponse:
        """Wake the job's workflow; there is no cache to refresh."""
        record = await self._job_or_not_found(parse_known_id(request.jobId), "job not found")
        begin, end = 0, record.instance_count
        if request.HasField("range"):
            begin, end = getattr(request.range, "from"), min(request.range.to, end)
        if begin >= end:
            raise NotFound("tasks not found")
        if record.is_active:
            self._wake.wake(record.job_id)
        return task_pb2.RefreshResponse()

    @write
    async def DeletePodEvents(
        self, request: task_pb2.DeletePodEventsRequest, context: Any
    ) -> task_pb2.DeletePodEventsResponse:
        if job_id := parse_known_id(request.jobId):
            run_id = min(request.runId, RUN_ID_MAX)
            await self._calls.run(self._records.pods.delete_events, job_id, request.instanceId, run_id)
        return task_pb2.DeletePodEventsResponse()

    # -- storage

    def _pod_or_not_found(self, job_id: JobId, instance_id: int, text: str) -> PodRecord:
        pod = self._records.pods.get(job_id, instance_id)
        if pod is None:
            raise NotFound(text)
        return pod

    def _not_created(self, record: JobRecord, ranges: list[tuple[int, int]]) -> set[int]:
        """Return the instances whose pods do not exist yet, to which no request applies.

        Pods are created in rising order, except the pods of a service, which its update creates.
        """
        if record.type is JobType.SERVICE:
            return {
                i
                for start, count in ranges
                for i in set(range(start, start + count)).difference(
                    pod.instance_id for page in self._pages(record.job_id, start, start + count) for pod in page
                )
            }
        if record.state is not JobState.INITIALIZED:
            return set()
        every = range(record.instance_count)
        created = bisect_left(every, True, key=lambda i: self._records.pods.get(record.job_id, i) is None)
        return {i for start, count in ranges for i in range(max(start, created), start + count)}

    def _task_infos(self, record: JobRecord, pods: list[PodRecord]) -> list[task_pb2.TaskInfo]:
        """Convert pods with the configs that they run, read version by version."""
        by_version: dict[int, list[int]] = {}
        for pod in pods:
            by_version.setdefault(pod.config_version, []).append(pod.instance_id)
        configs = {
            (version, instance): config
            for version, instances in by_version.items()
            for instance, config in self._records.configs.task_configs(record.job_id, version, instances).items()
        }
        is_batch = record.type.runs_to_end
        found = [
            convert.task_info(pod, configs.get((pod.config_version, pod.instance_id)), with_usage=is_batch)
            for pod in pods
        ]
        several = [pod for pod, info in zip(pods, found, strict=True) if has_several(info.config)]
        if several:
            known = containers_of(self._records, several)
            for pod, info in zip(pods, found, strict=True):
                convert.add_containers(info.runtime, known.get((pod.instance_id, pod.run_id), ()))
        keeping = {info.instanceId: info.runtime for info in found if info.config.HasField("volume")}
        for instance, volume in self._records.volumes.of_instances(record.job_id, list(keeping)).items():
            keeping[instance].volumeID.value = volume.volume_id
        return found

    def _pages(self, job_id: JobId, begin: int, end: int) -> Iterator[list[PodRecord]]:
        while begin < end:
            page = self._records.pods.page(job_id, begin, end, PAGE)
            if not page:
                return
            yield page
            begin = page[-1].instance_id + 1


def _past_run(event: PodEvent) -> task_pb2.TaskInfo:
    """Describe an ended run by the event of its end."""
    wire = convert.pod_event(event)
    info = task_pb2.TaskInfo(instanceId=event.instance_id)
    info.jobId.value = event.job_id
    runtime = info.runtime
    runtime.state = task_pb2.TaskState.Value(event.state.value)
    runtime.mesosTaskId.CopyFrom(wire.taskId)
    runtime.prevMesosTaskId.CopyFrom(wire.prevTaskId)
    runtime.host = event.host
    runtime.agentID.value = event.agent_id
    runtime.message = event.message
    runtime.reason = event.reason
    return info
