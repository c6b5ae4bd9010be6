"""Reports problems of Temporal to users: whether it answers, whether workers take tasks, and which workflows are stuck.

One report takes four calls, whatever the number of jobs, and one more for each of the few workflows that it names. It
is cached: the number of readers does not change the number of calls. When Temporal does not answer, the report says so.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueType, WorkerStatus
from temporalio.api.failure.v1 import Failure
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client, WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode

from peloton.errors import ERRORS, PelotonError
from peloton.lifecycle.heartbeats import Heartbeat, Heartbeats, Liveness
from peloton.lifecycle.problems import NAMED_MAX
from peloton.lifecycle.worker_versions import UNVERSIONED
from peloton.lifecycle.workflow_problems import TASK_ATTEMPTS, WHY_ATTEMPTS, job_lines
from peloton.model.ids import JobId, job_workflow_id
from peloton.model.job import JobRecord
from peloton.model.times import NS_PER_S
from peloton.model.workflow_trouble import FailedWorkflow, FailingActivity, FailingTask, JobTrouble, TemporalSnapshot
from services.temporal.payloads import CONVERTER
from services.temporal.task_queues import BATCH_QUEUE, TASK_QUEUES, queue_of
from services.temporal.worker_fleet import DEPLOYMENT, POLL_S, describe_queue, list_heartbeats, polling
from services.wakers.failed_workflows import FailedWorkflows
from workflows.attributes import JOB_ID, TYPE
from workflows.policies import long_queue

T = TypeVar("T")

REFUSALS = (
    RPCStatusCode.UNIMPLEMENTED,  # an older server
    RPCStatusCode.INVALID_ARGUMENT,  # an unknown search attribute
    RPCStatusCode.PERMISSION_DENIED,  # which an account may not ask
    RPCStatusCode.NOT_FOUND,  # a workflow that has ended meanwhile
)

REPORTED = "TemporalReportedProblems"
"""The attribute by which Temporal marks workflows whose workflow tasks fail again and again."""

POLL_AGE_S, KNOWN_AGE_S, WAIT_S = 2.0, 6.0, 1.0
"""Seconds for which a report is current; and the age up to which it answers a reader who has waited WAIT_S for the next
one.
"""
TIMEOUT_S = 3.0
"""Timeout of one report, in seconds."""
SILENT_S = 6.0
"""Seconds without a heartbeat, three intervals, after which a worker counts as silent."""
BEATS_MISSED, BEAT_MAX_S = 2, 10.0
"""Missed heartbeats after which a worker is silent, by the interval of its last ones; the previous release sends them
every 5 s.
"""
SURE_S = 2.5
"""Seconds, more than a heartbeat interval, after which a second read shows whether workers with old heartbeats are
alive: their clocks may be behind.
"""
FAILED_MAX = 200
"""Failed runs that one report reads, the newest."""
RESTART_GRACE_NS = 60_000_000_000
"""Time after the moment at which a workflow is started again. A workflow without a run by then needs none."""
JOB_WORKFLOWS_MAX = 5
"""Workflows of one job that a report reads: its own and its child workflows."""
JOB_AGE_S, JOBS_KEPT = 3.0, 200
"""Seconds for which a job's report is cached, and the number of jobs in the cache."""
QUEUES = tuple(name for queue in TASK_QUEUES for name in (queue, long_queue(queue)))


class TemporalWatch:
    """Cached reports on Temporal, one instance per process that shows problems, in its event loop."""

    def __init__(
        self,
        client: Client,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._client, self._clock, self._wall_ns = client, clock, wall_ns
        self._failed = FailedWorkflows(client, wall_ns)
        self._heartbeats = Heartbeats()
        self._known: tuple[float, TemporalSnapshot] | None = None  # when it began, and what it saw
        self._reading: asyncio.Task[TemporalSnapshot] | None = None
        self._jobs: OrderedDict[str, tuple[float, list[str]]] = OrderedDict()

    @property
    def address(self) -> str:
        return self._client.service_client.config.target_host

    async def read_snapshot(self) -> TemporalSnapshot:
        """Return the last report, or a new one. Never raises an error of Temporal."""
        age_s = self._clock() - self._known[0] if self._known else float("inf")
        if self._known and age_s < POLL_AGE_S:
            return self._known[1]
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(), name="read of Temporal")
        if self._known and age_s < KNOWN_AGE_S:
            await asyncio.wait({self._reading}, timeout=WAIT_S)
            return self._known[1]
        return await asyncio.shield(self._reading)

    async def _read(self) -> TemporalSnapshot:
        began_s = self._clock()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                beats = await self._beats()
            if self._is_unsure(beats):
                await asyncio.sleep(SURE_S)
                async with asyncio.timeout(TIMEOUT_S):
                    beats = await self._beats()
            async with asyncio.timeout(TIMEOUT_S):
                unserved, (gone, waiting), (tasks, task_count), (failed, failed_count) = await asyncio.gather(
                    self._find_unserved(beats),
                    self._find_gone_version(beats),
                    self._failing_tasks(),
                    self._read_failed(),
                )
            seen = TemporalSnapshot(
                "",
                len(QUEUES),
                unserved,
                tasks,
                task_count=task_count,
                failed=failed,
                failed_count=failed_count,
                gone_version=gone,
                waiting_versions=waiting,
            )
        except (RPCError, RuntimeError, OSError, TimeoutError) as error:
            seen = TemporalSnapshot(_fault_of(error))
        self._known = began_s, seen
        return seen

    # -- task queues

    async def _beats(self) -> list[WorkerHeartbeat]:
        """Read the heartbeats of Peloton's workers. This read and earlier ones together show whether a worker is
        alive.
        """
        found = await _unless_refused(list_heartbeats(self._client, _TIMEOUT), [])
        own_beats = [beat for beat in found if beat.task_queue in QUEUES]
        self._heartbeats.note(map(_heartbeat, own_beats), self._clock())
        return own_beats

    def _is_unsure(self, beats: Sequence[WorkerHeartbeat]) -> bool:
        """Return whether a version has a worker that may be alive, and none that is certainly alive, on a task
        queue.
        """
        heard = [(beat.task_queue, beat.deployment_version.build_id, self._liveness_of(beat)) for beat in beats]
        alive = {(queue, build) for queue, build, liveness in heard if liveness is Liveness.ALIVE}
        return any(liveness is Liveness.UNSURE and (queue, build) not in alive for queue, build, liveness in heard)

    async def _find_unserved(self, beats: Sequence[WorkerHeartbeat]) -> list[str]:
        """Return the task queues from which no worker takes tasks. Heartbeats show it; on a server without any, the
        polls of each queue are read, which remain for a minute after a worker died.
        """
        served = {beat.task_queue for beat in beats if self._is_alive(beat)}
        silent = [queue for queue in QUEUES if queue not in served]
        # Workers of release 0.1 have no version, and send a heartbeat a minute.
        polled = await asyncio.gather(*(self._is_polled(queue, unversioned=bool(beats)) for queue in silent))
        return [queue for queue, is_polled in zip(silent, polled, strict=True) if not is_polled]

    async def _find_gone_version(self, beats: Sequence[WorkerHeartbeat]) -> tuple[str, list[str]]:
        """Return the current version if it has no worker, and the versions that have workers, the last started at the
        end; ("", []) when the current version has a worker, or no version has.
        """
        started = {
            beat.deployment_version.build_id: beat.start_time.ToNanoseconds()
            for beat in sorted(beats, key=lambda beat: beat.start_time.ToNanoseconds())
            if beat.deployment_version.deployment_name == DEPLOYMENT and self._is_alive(beat)
        }
        kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
        described = await describe_queue(self._client, BATCH_QUEUE, kind, _TIMEOUT)
        current = described.versioning_info.current_deployment_version
        is_gone = current.deployment_name == DEPLOYMENT and current.build_id not in started and bool(started)
        return (current.build_id, sorted(started, key=started.__getitem__)) if is_gone else ("", [])

    def _is_alive(self, beat: WorkerHeartbeat) -> bool:
        return self._liveness_of(beat) is Liveness.ALIVE

    def _liveness_of(self, beat: WorkerHeartbeat) -> Liveness:
        if beat.status != WorkerStatus.WORKER_STATUS_RUNNING:
            return Liveness.DEAD
        return self._heartbeats.evaluate(_heartbeat(beat), self._clock(), self._wall_ns())

    async def _is_polled(self, queue: str, *, unversioned: bool) -> bool:
        """Return whether a worker has polled the queue recently; ``unversioned`` counts only workers without a
        version.
        """
        kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        described = await describe_queue(self._client, queue, kind, _TIMEOUT)
        versions = polling(described, self._wall_ns() / NS_PER_S - POLL_S)
        return UNVERSIONED in versions if unversioned else bool(versions)

    # -- workflows that do not go on

    async def _failing_tasks(self) -> tuple[list[FailingTask], int]:
        """Return the first NAMED_MAX workflows with failing tasks, and their count; none on a server without the
        attribute.
        """
        query = f"ExecutionStatus = 'Running' AND {REPORTED} IS NOT NULL AND {TYPE.name} IS NOT NULL"
        found = await _unless_refused(self._list(query, NAMED_MAX), [])
        count = len(found)
        if count == NAMED_MAX:
            request = CountWorkflowExecutionsRequest(namespace=self._client.namespace, query=query)
            count = (await self._client.workflow_service.count_workflow_executions(request, timeout=_TIMEOUT)).count
        return [FailingTask(one.execution.workflow_id, _cause(one)) for one in found], count

    async def _read_failed(self) -> tuple[list[FailedWorkflow], int]:
        """Return the first NAMED_MAX failed workflows that have not been started again, and their count among the
        newest.
        """
        restarts = await _unless_refused(self._failed.find(FAILED_MAX), {})
        now_ns = self._wall_ns()
        waiting = [one for one, restart in restarts.items() if now_ns < restart.due_ns + RESTART_GRACE_NS]
        if not waiting:
            return [], 0
        ids = ", ".join(f"'{one}'" for one in waiting)
        others = await self._list(f"ExecutionStatus != 'Failed' AND WorkflowId IN ({ids})", FAILED_MAX)
        later = {
            name
            for one in others
            if one.start_time.ToNanoseconds() >= restarts[name := one.execution.workflow_id].failed.ended_ns
        }
        failed = sorted(one for one in waiting if one not in later)
        errors = await asyncio.gather(*map(self._error_of, failed[:NAMED_MAX]))
        named = zip(failed, errors, strict=False)
        return [FailedWorkflow(one, error, restarts[one].reason) for one, error in named], len(failed)

    async def _error_of(self, workflow_id: str) -> str:
        """Return what ended the last run."""
        handle = self._client.get_workflow_handle(workflow_id)
        close = WorkflowHistoryEventFilterType.CLOSE_EVENT
        async for event in handle.fetch_history_events(event_filter_type=close, rpc_timeout=_TIMEOUT):
            return await self._innermost(event.workflow_execution_failed_event_attributes.failure)
        return ""

    async def _list(self, query: str, limit: int) -> Sequence[WorkflowExecutionInfo]:
        request = ListWorkflowExecutionsRequest(namespace=self._client.namespace, query=query, page_size=limit)
        answer = await self._client.workflow_service.list_workflow_executions(request, timeout=_TIMEOUT)
        return answer.executions

    # -- one job

    async def why(self, job: JobRecord) -> list[str]:
        """Return what keeps the workflows of an active job from progressing; empty when all is well. Never raises an
        error of Temporal.
        """
        job_id = job.job_id
        known = self._jobs.get(job_id)
        if known is not None and self._clock() - known[0] < JOB_AGE_S:
            return known[1]
        snapshot = await self.read_snapshot()
        trouble = JobTrouble()
        if not snapshot.fault:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    trouble = await self._of_job(job_id)
            except (RPCError, RuntimeError, OSError, TimeoutError) as error:
                snapshot = TemporalSnapshot(_fault_of(error))
        queue = queue_of(job.type)
        names: dict[str, str] = {job_id: job.name}
        found = list(job_lines(snapshot, self.address, (queue, long_queue(queue)), trouble, names))
        self._jobs[job_id] = self._clock(), found
        self._jobs.move_to_end(job_id)
        while len(self._jobs) > JOBS_KEPT:
            self._jobs.popitem(last=False)
        return found

    async def _of_job(self, job_id: JobId) -> JobTrouble:
        query = f"ExecutionStatus = 'Running' AND {JOB_ID.name} = '{job_id}'"
        names = [one.execution.workflow_id for one in await self._list(query, JOB_WORKFLOWS_MAX)]
        described = [one for one in await asyncio.gather(*map(self._describe, names)) if one is not None]
        tasks = [
            FailingTask(one.workflow_execution_info.execution.workflow_id, _cause(one.workflow_execution_info))
            for one in described
            if one.pending_workflow_task.attempt >= TASK_ATTEMPTS
        ]
        activities = [activity for one in described for activity in await self._failing_activities(one)]
        failed = []
        if (own := job_workflow_id(job_id)) not in names and (restart := await self._failed.evaluate(own)).failed.count:
            failed = [FailedWorkflow(own, await self._error_of(own), restart.reason)]
        return JobTrouble(tasks, activities, failed)

    async def _failing_activities(self, described: DescribeWorkflowExecutionResponse) -> list[FailingActivity]:
        workflow_id = described.workflow_execution_info.execution.workflow_id
        return [
            FailingActivity(workflow_id, one.activity_type.name, one.attempt, await self._innermost(one.last_failure))
            for one in described.pending_activities
            if one.attempt >= WHY_ATTEMPTS
        ]

    async def _innermost(self, failure: Failure) -> str:
        """Return the message of the first cause, which may be encrypted. An expected error is a sentence, and what
        caused it is not."""
        while failure.HasField("cause") and failure.application_failure_info.type not in ERRORS:
            failure = failure.cause
        if not failure.HasField("encoded_attributes"):
            return failure.message
        try:
            error = await self._client.data_converter.decode_failure(failure)
        except PelotonError as unreadable:  # its key is missing
            return unreadable.message
        return str(getattr(error, "message", error))

    async def _describe(self, workflow_id: str) -> DescribeWorkflowExecutionResponse | None:
        request = DescribeWorkflowExecutionRequest(
            namespace=self._client.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
        )
        asked = self._client.workflow_service.describe_workflow_execution(request, timeout=_TIMEOUT)
        return await _unless_refused(asked, None)


_TIMEOUT = timedelta(seconds=TIMEOUT_S)


def _heartbeat(beat: WorkerHeartbeat) -> Heartbeat:
    pause_s = min(beat.elapsed_since_last_heartbeat.ToNanoseconds() / NS_PER_S, BEAT_MAX_S)
    worker = f"{beat.worker_instance_key}/{beat.task_queue}"
    return Heartbeat(worker, beat.heartbeat_time.ToNanoseconds(), max(SILENT_S, BEATS_MISSED * pause_s))


async def _unless_refused(question: Awaitable[T], otherwise: T) -> T:
    """Return the answer, or ``otherwise`` when the server rejects the call."""
    try:
        return await question
    except RPCError as error:
        if error.status not in REFUSALS:
            raise
        return otherwise


def _fault_of(error: Exception) -> str:
    """Return why Temporal did not answer. A client that has never connected raises RuntimeError."""
    late = isinstance(error, RPCError) and error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
    if late or isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    return str(error) or type(error).__name__


def _cause(info: WorkflowExecutionInfo) -> str:
    """Return the cause that Temporal reports for failing workflow tasks, such as NonDeterministicError."""
    payload = info.search_attributes.indexed_fields.get(REPORTED)
    said: list[str] = CONVERTER.payload_converter.from_payload(payload, list[str]) if payload is not None else []
    causes = (one.removeprefix("cause=") for one in said if one.startswith("cause="))
    return next((re.sub(r"^WorkflowTask\w*?Cause", "", cause) for cause in causes), "")
