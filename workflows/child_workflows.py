"""Child workflows of a job, each responsible for one of its concerns, and signalled when that changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError, TerminatedError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from peloton.lifecycle.workflow_restarts import restart_wait_s
    from peloton.model.ids import job_workflow_id

WAITS_AFTER_FAILURE = "202611-wait-after-failure"
"""Remove this patch when no earlier run can be under way whose follower or launch had failed."""


async def notify(run: Any, workflow_id: str, signal: Any) -> bool:
    """Signal a workflow; return whether it is still under way."""
    other = workflow.get_external_workflow_handle_for(run, workflow_id)
    try:
        await other.signal(signal)
    except ApplicationError:
        return False
    return True


async def signal_job(job_id: str) -> None:
    """Signal the workflow of a job. One that has ended needs no signal, and a terminated one is started again."""
    job = workflow.get_external_workflow_handle(job_workflow_id(job_id))
    with suppress(ApplicationError):
        await job.signal("changed")


async def start(
    run: Any, input: object, workflow_id: str, summary: str
) -> workflow.ChildWorkflowHandle[Any, Any] | None:
    """Start a child workflow, which survives the end and the continue-as-new of its parent. Return None when an earlier
    run of the parent has started it.
    """
    try:
        return await workflow.start_child_workflow(
            run,
            input,
            id=workflow_id,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            task_timeout=workflow.info().task_timeout,
            static_summary=summary,
            search_attributes=workflow.info().typed_search_attributes,
        )
    except WorkflowAlreadyStartedError:
        return None


@dataclass(frozen=True)
class Restarts:
    """Delay before a failed child workflow is started again, longer each time."""

    failed_count: int = 0  # in a row
    due_s: float = 0.0

    def after(self, run: asyncio.Future[Any]) -> Restarts:
        """Return the delay after the end of a run. A terminated run has not failed."""
        error = None if run.cancelled() else run.exception()
        if not isinstance(error, ChildWorkflowError) or isinstance(error.cause, TerminatedError):
            return Restarts()
        if not workflow.patched(WAITS_AFTER_FAILURE):
            return Restarts()
        count = self.failed_count + 1
        return Restarts(count, workflow.time() + restart_wait_s(count))

    @property
    def wait_s(self) -> float:
        return max(self.due_s - workflow.time(), 0.0)
