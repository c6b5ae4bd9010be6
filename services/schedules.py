"""Schedules of jobs, stored in Temporal alone: no rows of Peloton describe them."""

from __future__ import annotations

import base64
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from temporalio import client as temporal
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import Client, ScheduleOverlapPolicy, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import Priority
from temporalio.service import RPCError, RPCStatusCode

from peloton.api.v0.job import job_pb2
from peloton.errors import AlreadyExists, InvalidArgument, NotFound, Reason, ResourceExhausted, Unavailable
from peloton.lifecycle.schedule import cron_of
from peloton.model.ids import schedule_id, schedule_workflow_id
from peloton.model.job import JobRecord
from peloton.model.schedule import (
    Counts,
    JobStart,
    Overlap,
    Run,
    RunState,
    Schedule,
    ScheduledJob,
    ScheduleOptions,
    Times,
)
from peloton.model.times import unix_ns
from services.temporal.task_queues import BATCH_QUEUE, RPC_TIMEOUT, WORKFLOW_TASK_TIMEOUT, queue_of
from services.temporal.workflow_labels import SCHEDULE_TYPE, job_labels, schedule_labels
from workflows.attributes import JOB_ID, JOB_NAME, OWNER, POOL, SCHEDULED_BY, SCHEDULED_TIME, STATE, TYPE
from workflows.policies import Policies
from workflows.scheduled_job import REASON, ScheduledJobInput, ScheduledJobWorkflow

P = ParamSpec("P")
T = TypeVar("T")

POOL_ID, CREATOR = "pool_id", "creator"
"""Keys of the memo of a schedule: a pool keeps its id when it is renamed or moved."""
LISTED_MAX = 10_000
"""Schedules that one list reads from Temporal at most."""
PAGE = 1_000
IDS_MAX = 50
"""Workflows that one list returns."""
OVERLAPS = {
    Overlap.SKIP: ScheduleOverlapPolicy.SKIP,
    Overlap.BUFFER_ONE: ScheduleOverlapPolicy.BUFFER_ONE,
    Overlap.BUFFER_ALL: ScheduleOverlapPolicy.BUFFER_ALL,
    Overlap.CANCEL_OTHER: ScheduleOverlapPolicy.CANCEL_OTHER,
    Overlap.ALLOW_ALL: ScheduleOverlapPolicy.ALLOW_ALL,
}
_OVERLAPS = {policy: overlap for overlap, policy in OVERLAPS.items()}
CLOSED = {
    WorkflowExecutionStatus.TERMINATED: RunState.TERMINATED,
    WorkflowExecutionStatus.FAILED: RunState.FAILED,
    WorkflowExecutionStatus.TIMED_OUT: RunState.FAILED,
    WorkflowExecutionStatus.CANCELED: RunState.KILLED,
}
"""States of runs that ended without a result."""


def start_of(job: JobRecord, pool: str) -> JobStart:
    """Return how to start the workflow of a job that a schedule has created."""
    labels = job_labels(job, pool)
    attributes = {pair.key.name: pair.value for pair in labels.attributes}
    queue = queue_of(job.type)
    return JobStart(
        job.job_id,
        job.name,
        queue,
        job.respool_id,
        summary=labels.summary,
        details=labels.details,
        attributes=attributes,
        memo=dict(labels.memo),
    )


def _translate_errors(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Raise the errors of Temporal as Peloton's. The first argument after ``self`` is the name of the schedule, if
    any.
    """

    @wraps(method)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        name = str(args[1]) if len(args) > 1 else ""
        try:
            return await method(*args, **kwargs)
        except temporal.ScheduleAlreadyRunningError:
            raise AlreadyExists(f"schedule {name} exists: choose another name, or delete it first").because(
                Reason.SCHEDULE_EXISTS, schedule=name
            ) from None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise NotFound(f"schedule {name} not found").because(
                    Reason.SCHEDULE_NOT_FOUND, schedule=name
                ) from error
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise InvalidArgument(f"Temporal refuses the schedule: {error.message}") from error
            if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
                raise ResourceExhausted(f"Temporal has too much to do: {error.message}", 1.0) from error
            raise Unavailable(f"Temporal does not answer: {error.message}") from error
        except RuntimeError as error:  # of a client that has never been connected
            raise Unavailable(f"Temporal does not answer: {error}") from error

    return wrapper


class Schedules:
    """Implements ``api.schedule_service.Schedules``."""

    def __init__(self, client: Client, policies: Policies, task_queue: str = BATCH_QUEUE) -> None:
        self._client, self._policies, self._task_queue = client, policies, task_queue

    def _handle(self, name: str) -> temporal.ScheduleHandle:
        return self._client.get_schedule_handle(schedule_id(name))

    @_translate_errors
    async def create(
        self, name: str, times: Times, options: ScheduleOptions, job: ScheduledJob, paused: bool, note: str
    ) -> None:
        attributes, runs = schedule_labels(name, job.name, job.pool_path, job.owner)
        text = base64.b64encode(job.config).decode()
        action = temporal.ScheduleActionStartWorkflow(
            ScheduledJobWorkflow.run,
            ScheduledJobInput(name, str(uuid.uuid4()), text, self._policies, creator=job.creator),
            id=schedule_workflow_id(name),
            task_queue=self._task_queue,
            task_timeout=WORKFLOW_TASK_TIMEOUT,
            priority=Priority(fairness_key=job.pool_id),
            static_summary=runs.summary,
            static_details=runs.details,
            typed_search_attributes=runs.attributes,
        )
        policy = temporal.SchedulePolicy(
            overlap=OVERLAPS[options.overlap],
            catchup_window=timedelta(seconds=options.catch_up_s),
            pause_on_failure=options.pauses_on_failure,
        )
        state = temporal.ScheduleState(note=note or None, paused=paused)
        await self._client.create_schedule(
            schedule_id(name),
            temporal.Schedule(action, _spec(times), policy, state),
            search_attributes=attributes,
            memo={POOL_ID: job.pool_id, CREATOR: job.creator},
            rpc_timeout=RPC_TIMEOUT,
        )

    @_translate_errors
    async def pause(self, name: str, note: str) -> None:
        await self._handle(name).pause(note=note or None, rpc_timeout=RPC_TIMEOUT)

    @_translate_errors
    async def resume(self, name: str, note: str) -> None:
        await self._handle(name).unpause(note=note or None, rpc_timeout=RPC_TIMEOUT)

    @_translate_errors
    async def trigger(self, name: str, overlap: Overlap | None) -> None:
        await self._handle(name).trigger(overlap=OVERLAPS[overlap] if overlap else None, rpc_timeout=RPC_TIMEOUT)

    @_translate_errors
    async def delete(self, name: str) -> None:
        await self._handle(name).delete(rpc_timeout=RPC_TIMEOUT)

    @_translate_errors
    async def count_times(self, name: str, start_s: int, end_s: int) -> int:
        """Count the times of a range, both ends included."""
        request = ListScheduleMatchingTimesRequest(namespace=self._client.namespace, schedule_id=schedule_id(name))
        request.start_time.FromSeconds(start_s - 1)  # it is excluded
        request.end_time.FromSeconds(end_s)
        found = await self._client.workflow_service.list_schedule_matching_times(request, timeout=RPC_TIMEOUT)
        return len(found.start_time)

    @_translate_errors
    async def backfill(self, name: str, start_s: int, end_s: int, overlap: Overlap) -> None:
        """Start a run for each time of a range, both ends included."""
        # Half a second earlier: some servers take the start of a backfill for a part of it, and others do not.
        start, end = (datetime.fromtimestamp(second, UTC) for second in (start_s - 0.5, end_s))
        period = temporal.ScheduleBackfill(start, end, OVERLAPS[overlap])
        await self._handle(name).backfill(period, rpc_timeout=RPC_TIMEOUT)

    @_translate_errors
    async def get(self, name: str, runs_max: int) -> Schedule:
        found = await self._handle(name).describe(rpc_timeout=RPC_TIMEOUT)
        action, info = found.schedule.action, found.info
        assert isinstance(action, temporal.ScheduleActionStartWorkflow)
        (input,) = await self._client.data_converter.decode(action.args, [ScheduledJobInput])
        config = base64.b64decode(input.config)
        query = f"{SCHEDULED_BY.name} = {_quote(schedule_id(name))}"
        policy, attributes = found.schedule.policy, found.typed_search_attributes
        created, pool = info.created_at, attributes.get(POOL)

        def is_shown(run: WorkflowExecution) -> bool:
            """Return whether a run is of this schedule, or of one that had its name before in the same pool."""
            return run.start_time >= created or run.typed_search_attributes.get(POOL) == pool

        runs = [run async for run in self._runs(query, runs_max, is_shown)]
        catch_up_s = int(policy.catchup_window.total_seconds()) if policy.catchup_window else 0
        overlap = _OVERLAPS.get(policy.overlap, Overlap.SKIP)
        skipped, missed = info.num_actions_skipped_overlap, info.num_actions_missed_catchup_window
        return Schedule(
            name,
            _times(found.schedule.spec),
            attributes.get(JOB_NAME) or "",
            attributes.get(POOL) or "",
            owner=attributes.get(OWNER) or "",
            paused=found.schedule.state.paused,
            note=found.schedule.state.note or "",
            next_ns=tuple(map(unix_ns, info.next_action_times)),
            runs=tuple(sorted(runs, key=lambda run: (run.scheduled_ns, run.started_ns), reverse=True)),
            options=ScheduleOptions(overlap, catch_up_s, policy.pause_on_failure),
            counts=Counts(info.num_actions, skipped, missed),
            created_ns=unix_ns(info.created_at),
            config=config,
            pool_id=job_pb2.JobConfig.FromString(config).respoolID.value,
            creator=input.creator,
        )

    @_translate_errors
    async def find(self, is_wanted: Callable[[Schedule], bool], limit: int) -> list[Schedule]:
        """Return wanted schedules by name, each with its last run; of the first LISTED_MAX that Temporal lists."""
        query, read = f"{TYPE.name} = '{SCHEDULE_TYPE}'", 0
        found: list[tuple[temporal.ScheduleListDescription, Schedule]] = []
        async for one in await self._client.list_schedules(query, page_size=PAGE, rpc_timeout=RPC_TIMEOUT):
            read += 1
            if is_wanted(parsed := _parse_listed(one, await one.memo())):
                found.append((one, parsed))
            if len(found) == limit or read == LISTED_MAX:
                break
        last = await self._last_runs([one for one, _ in found if one.info is not None])
        shown = [replace(each, runs=(run,)) if (run := last.get(one.id)) else each for one, each in found]
        return sorted(shown, key=lambda one: one.name)

    async def _last_runs(self, schedules: Sequence[temporal.ScheduleListDescription]) -> Mapping[str, Run]:
        """Return the last run of each schedule that has one, by the id of the schedule."""
        wanted: dict[str, str] = {}
        for one in schedules:
            actions = one.info.recent_actions if one.info else ()
            if actions and isinstance(action := actions[-1].action, temporal.ScheduleActionExecutionStartWorkflow):
                wanted[action.workflow_id] = one.id
        ids, found = list(wanted), dict[str, Run]()
        for first in range(0, len(ids), IDS_MAX):
            some = ids[first : first + IDS_MAX]
            query = f"WorkflowId IN ({', '.join(map(_quote, some))})"
            async for run in self._runs(query, 4 * IDS_MAX):
                before = found.get(wanted[run.workflow_id])
                if before is None or before.started_ns < run.started_ns:
                    found[wanted[run.workflow_id]] = run
        return found

    async def _runs(
        self, query: str, limit: int, is_shown: Callable[[WorkflowExecution], bool] = lambda run: True
    ) -> AsyncIterator[Run]:
        """Yield the runs under way first, then the last ended."""
        ended = f"{query} AND ExecutionStatus != 'ContinuedAsNew'"
        async for one in self._client.list_workflows(ended, limit=limit, page_size=limit, rpc_timeout=RPC_TIMEOUT):
            if one.status is not WorkflowExecutionStatus.CONTINUED_AS_NEW and is_shown(one):
                yield await _run(one)


def _quote(text: str) -> str:
    """Return the text as a string of Temporal's queries."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


async def _run(one: WorkflowExecution) -> Run:
    attributes = one.typed_search_attributes
    state = RunState.RUNNING
    if one.status is not WorkflowExecutionStatus.RUNNING:
        stored = attributes.get(STATE) or ""
        has_ended = stored in RunState.__members__ and stored != RunState.RUNNING
        state = RunState(stored) if has_ended else CLOSED.get(one.status or WorkflowExecutionStatus.FAILED, state)
    return Run(
        one.id,
        state,
        unix_ns(attributes.get(SCHEDULED_TIME)),
        unix_ns(one.start_time),
        ended_ns=unix_ns(one.close_time),
        job_id=attributes.get(JOB_ID) or "",
        job_name=(attributes.get(JOB_NAME) or "") if attributes.get(JOB_ID) else "",
        reason=str((await one.memo()).get(REASON, "")),
    )


def _parse_listed(one: temporal.ScheduleListDescription, memo: Mapping[str, Any]) -> Schedule:
    attributes, schedule = one.typed_search_attributes, one.schedule
    return Schedule(
        one.id.removeprefix(schedule_id("")),
        _times(schedule.spec) if schedule else Times(),
        attributes.get(JOB_NAME) or "",
        attributes.get(POOL) or "",
        owner=attributes.get(OWNER) or "",
        paused=schedule.state.paused if schedule else False,
        note=(schedule.state.note or "") if schedule else "",
        next_ns=tuple(map(unix_ns, one.info.next_action_times)) if one.info else (),
        pool_id=str(memo.get(POOL_ID, "")),
        creator=str(memo.get(CREATOR, "")),
    )


def _spec(times: Times) -> temporal.ScheduleSpec:
    interval = timedelta(seconds=times.interval_s)
    offset = timedelta(seconds=times.offset_s) if times.offset_s else None
    return temporal.ScheduleSpec(
        cron_expressions=times.crons,
        intervals=[temporal.ScheduleIntervalSpec(interval, offset)] if times.interval_s else [],
        jitter=timedelta(seconds=times.jitter_s) if times.jitter_s else None,
        time_zone_name=times.time_zone or None,
    )


def _times(spec: temporal.ScheduleSpec) -> Times:
    """Return the times as Temporal keeps them: it has translated cron expressions into calendars."""
    interval = next(iter(spec.intervals), None)
    return Times(
        tuple(map(_cron, spec.calendars)),
        int(interval.every.total_seconds()) if interval else 0,
        int(interval.offset.total_seconds()) if interval and interval.offset else 0,
        spec.time_zone_name or "",
        int(spec.jitter.total_seconds()) if spec.jitter else 0,
    )


def _cron(calendar: temporal.ScheduleCalendarSpec) -> str:
    fields = (calendar.minute, calendar.hour, calendar.day_of_month, calendar.month, calendar.day_of_week)
    return cron_of([[(each.start, max(each.end, each.start), each.step or 1) for each in ranges] for ranges in fields])
