"""Run of a schedule: it creates a job, and lasts until the job has ended.

    create the job -> start its workflow -> wait for its end -> SUCCEEDED | KILLED | DELETED | FAILED
          |
          +-- the job is refused, or cannot be created for ten minutes --> REFUSED

Temporal starts it at the times of the schedule, and detects overlap by whether it runs. The workflow of the job is its
child, whose end wakes it. Without a child it polls the job: after the job's workflow was terminated, and once this one
has continued as new, on another version of the workers. The creation is repeated with the same id, so that a time has
one job. A cancellation, by which the schedule makes way for the next run, stops the job.

A run whose job was refused or has failed fails. Temporal shows the failure, and pauses the schedule if its policy says
so.

History: 26 events; 7 more for each poll without the child, the first after 2 s, then doubling to a minute.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import (
    Priority,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    WorkflowAlreadyStartedError,
)

with workflow.unsafe.imports_passed_through():
    from activities.records import RecordsActivities
    from activities.schedule import ScheduleActivities
    from peloton.model.ids import job_workflow_id
    from peloton.model.schedule import JobStart, RunState, ScheduledRun
    from peloton.model.text import shorten
    from peloton.model.times import NS_PER_S
    from workflows import child_workflows
    from workflows.attributes import JOB_ID, JOB_NAME, SCHEDULED_TIME, STATE
    from workflows.calls import run_local, stoppable
    from workflows.job import JobInput, JobResult, JobWorkflow
    from workflows.policies import CREATE_JOB_CALL, KILL_CALL, SCHEDULED_JOB_POLL_MAX_S, Policies
    from workflows.renewal import Renewal, continue_as_new, fresh_policies

REASON = "reason"
"""Key of the memo with the reason of a failed run."""
REASON_MAX = 2_000


@dataclass(frozen=True)
class ScheduledJobInput:
    """Input of a run. ``job_id`` is carried by continue-as-new: the job has been created."""

    schedule: str
    creation_id: str
    config: str  # a serialized JobConfig of v0, as base64
    policies: Policies = field(default_factory=Policies)
    job_id: str = ""
    creator: str = ""  # of the schedule


@dataclass(frozen=True)
class ScheduledJobResult:
    job_id: str
    state: str


@workflow.defn(name="ScheduledJob")
class ScheduledJobWorkflow:
    @workflow.init
    def __init__(self, input: ScheduledJobInput) -> None:
        self.input = input
        self.policies = input.policies
        self.job_id = input.job_id
        self.renewal = Renewal()
        self.stop_wanted = self.wakeup_pending = False
        self.is_notified = False  # the job's workflow is a child of this run
        self.state = RunState.RUNNING

    @workflow.run
    async def run(self, input: ScheduledJobInput) -> ScheduledJobResult:
        return await stoppable(self.run_loop(), self.stop)

    async def run_loop(self) -> ScheduledJobResult:
        if not self.job_id:
            await self.start_job(await self.create_job())
        return self.finish(await self.wait_for_end())

    @workflow.signal
    def changed(self) -> None:
        """Note that the job may have ended, or that the run is to continue on another version of the workers."""
        self.wakeup_pending = True

    @workflow.query
    def status(self) -> dict[str, str]:
        waiting_for = f"the end of job {self.job_id}" if self.job_id else "the creation of its job"
        return {"state": self.state.value, "waiting_for": waiting_for}

    # Steps, in the order in which they run.

    async def create_job(self) -> JobStart:
        self.policies = await fresh_policies(self.policies)
        info = workflow.info()
        time = info.typed_search_attributes.get(SCHEDULED_TIME) or info.workflow_start_time
        given, at_ns = self.input, int(time.timestamp()) * NS_PER_S
        run = ScheduledRun(given.schedule, given.creation_id, given.config, at_ns, given.creator)
        try:
            start = await workflow.execute_activity_method(
                ScheduleActivities.create_job, run, summary=f"create the job of {time.isoformat()}", **CREATE_JOB_CALL
            )
        except ActivityError as error:
            raise self.failure(RunState.REFUSED, reason_of(error)) from error
        self.job_id = start.job_id
        self.show(RunState.RUNNING, JOB_ID.value_set(start.job_id), JOB_NAME.value_set(start.name))
        return start

    async def start_job(self, start: JobStart) -> None:
        """Start the job's workflow as a child that survives this one, unless the job has a workflow already."""
        pairs = [SearchAttributePair(SearchAttributeKey.for_keyword(k), v) for k, v in sorted(start.attributes.items())]
        with suppress(WorkflowAlreadyStartedError):
            job = await workflow.start_child_workflow(
                JobWorkflow.run,
                JobInput(start.job_id, self.policies.of_jobs()),
                id=job_workflow_id(start.job_id),
                task_queue=start.task_queue,
                priority=Priority(fairness_key=start.pool_id),
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                task_timeout=workflow.info().task_timeout,
                static_summary=start.summary,
                static_details=start.details,
                search_attributes=TypedSearchAttributes(pairs),
                memo=dict(start.memo),
            )
            self.is_notified = True
            job.add_done_callback(self.note_end_of_job)
        if self.stop_wanted:
            await self.stop_job()

    def note_end_of_job(self, job: asyncio.Future[JobResult]) -> None:
        """Wake this run. A job whose workflow was terminated continues by another workflow."""
        if not job.cancelled():
            job.exception()
        self.is_notified, self.wakeup_pending = False, True

    async def wait_for_end(self) -> RunState:
        """Read the state of the job when the child has ended; without a child, poll at growing intervals."""
        timeout_s = self.policies.retry_s
        while True:
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self.wakeup_pending,
                    timeout=None if self.is_notified else timedelta(seconds=timeout_s),
                    timeout_summary=None if self.is_notified else "poll whether the job has ended",
                )
            self.wakeup_pending = False
            if end := await run_local(ScheduleActivities.read_end, self.job_id, summary="has the job ended?"):
                return RunState(end)
            timeout_s = min(timeout_s * 2, SCHEDULED_JOB_POLL_MAX_S)
            if self.renewal.should_continue_as_new(self.policies):
                policies = await fresh_policies(self.policies)
                await continue_as_new(replace(self.input, policies=policies, job_id=self.job_id))

    def finish(self, state: RunState) -> ScheduledJobResult:
        if state is RunState.FAILED:
            raise self.failure(state, "its job has FAILED")
        self.show(state)
        return ScheduledJobResult(self.job_id, state)

    async def stop(self) -> None:
        self.stop_wanted = True
        if self.job_id:
            await self.stop_job()

    async def stop_job(self) -> None:
        await workflow.execute_activity_method(
            RecordsActivities.stop_job, self.job_id, summary="stop the job: the run was cancelled", **KILL_CALL
        )
        await child_workflows.notify(JobWorkflow.run, job_workflow_id(self.job_id), JobWorkflow.changed)

    # Temporal plumbing.

    def failure(self, state: RunState, reason: str) -> ApplicationError:
        text = shorten(reason, REASON_MAX)
        workflow.upsert_memo({REASON: text})
        self.show(state)
        return ApplicationError(text, type=f"JOB_{state}", non_retryable=True)

    def show(self, state: RunState, *others: Any) -> None:
        self.state = state
        workflow.upsert_search_attributes([STATE.value_set(state), *others])
        workflow.set_current_details(f"{state}: job `{self.job_id}`" if self.job_id else str(state))


def reason_of(error: FailureError) -> str:
    """Return the error of the last attempt of an activity."""
    fault: BaseException = error
    while fault.__cause__ is not None and isinstance(fault.__cause__, FailureError):
        fault = fault.__cause__
    return fault.message if isinstance(fault, FailureError) else str(fault)
