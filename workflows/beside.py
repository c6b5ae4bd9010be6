"""Workflows beside that of a job, each the owner of one matter of it: they are started, and told that it changed."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError


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
