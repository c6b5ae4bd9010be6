"""Internals of Temporal's SDK that tests in virtual time stand on: the protos that its core exchanges with Python, the
definitions of workflows and activities, and instances of workflows without a worker.

No other file names them. They are those of one minor version of the SDK, which is checked when this file is imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any

from temporalio import activity, workflow
from temporalio.bridge.proto.child_workflow.child_workflow_pb2 import (
    START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS as CHILD_EXISTS,
)
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.common import Priority, TypedSearchAttributes
from temporalio.converter import DataConverter
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from workflows.job_ends import TakesEnds

__all__ = [
    "CHILD_EXISTS",
    "WorkflowActivation",
    "WorkflowActivationJob",
    "WorkflowCommand",
    "WorkflowDefinition",
    "activity_definition",
    "new_instance",
    "workflow_definition",
]

WRITTEN_FOR = "1.35"
"""The minor version of the SDK whose internals this file uses."""
WorkflowDefinition = workflow._Definition


class OtherRelease(Exception):
    """The SDK that is installed is of another minor version."""


def check_release(installed: str) -> None:
    """Raise OtherRelease."""
    if installed.split(".")[:2] != WRITTEN_FOR.split("."):
        raise OtherRelease(
            f"tests in virtual time stand on internals of temporalio {WRITTEN_FOR}, and {installed} is installed: "
            "compare WorkflowInstanceDetails and the protos of temporalio.bridge with those of that version, adapt "
            "tests/workflow/sdk.py, run tests/workflow, then name the new version in WRITTEN_FOR"
        )


check_release(version("temporalio"))


def workflow_definition(kind: type) -> WorkflowDefinition:
    return workflow._Definition.must_from_class(kind)


def activity_definition(function: Callable[..., Any]) -> activity._Definition:
    return activity._Definition.must_from_callable(function)


def new_instance(
    defn: WorkflowDefinition,
    workflow_id: str,
    run_id: str,
    started: datetime,
    converter: DataConverter,
    assert_known: Callable[[str], None],
) -> WorkflowInstance:
    """Make an instance as a worker does; ``assert_known`` is called with the name of each local activity."""
    info = workflow.Info(
        attempt=1, continued_run_id=None, cron_schedule=None, execution_timeout=None, first_execution_run_id="run1",
        headers={}, namespace="virtual", original_execution_run_id=run_id, parent=None, root=None,
        priority=Priority.default, raw_memo={}, retry_policy=None, run_id=run_id, run_timeout=None,
        search_attributes={}, start_time=started, task_queue="virtual", task_timeout=timedelta(seconds=5),
        typed_search_attributes=TypedSearchAttributes([]), workflow_id=workflow_id,
        workflow_start_time=started, workflow_type=defn.name or "",
    )  # fmt: skip
    details = WorkflowInstanceDetails(
        payload_converter_factory=converter.payload_converter_class,
        failure_converter_class=converter.failure_converter_class,
        interceptor_classes=[TakesEnds],
        defn=defn,
        info=info,
        randomness_seed=1,
        extern_functions={"__temporal_assert_local_activity_valid": assert_known},
        disable_eager_activity_execution=True,
        worker_level_failure_exception_types=[],
        patch_activation_callback=None,
        last_completion_result=converter.payload_converter.to_payloads_wrapper([]),
        last_failure=None,
    )

    async def create() -> WorkflowInstance:  # requires a running loop, and leaves no task on it
        return UnsandboxedWorkflowRunner().create_instance(details)

    return asyncio.run(create())
