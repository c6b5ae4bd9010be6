"""Workflows beside that of a job, each the owner of one matter of it: they are started, and told that it changed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError, TerminatedError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from peloton.lifecycle.workflow_restarts import restart_wait_s

WAITS_AFTER_FAILURE = "202611-wait-after-failure"
"""May go when no run can be under way that began before and whose follower or launch had failed."""


async def tell(run: Any, workflow_id: str, signal: Any) -> bool:
    """Returns whether it is still under way."""
    other = workflow.get_external_workflow_handle_for(run, workflow_id)
    try:
        await other.signal(signal)
    except ApplicationError:
        return False
    return True


async def start(
    run: Any, input: object, workflow_id: str, summary: str
) -> workflow.ChildWorkflowHandle[Any, Any] | None:
    """It goes on when the caller ends or continues as new, and may have been started by an earlier run of it: then
    None."""
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
    """The wait of one of them that failed, until it is started again: longer each time."""

    failed_count: int = 0  # in a row
    due_s: float = 0.0

    def after(self, run: asyncio.Future[Any]) -> Restarts:
        """Return the wait after the end of a run. One that was terminated has not failed."""
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
