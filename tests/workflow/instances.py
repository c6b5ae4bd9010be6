"""Instances of workflows as the SDK makes them, without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import Priority, TypedSearchAttributes
from temporalio.converter import DataConverter
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance
from temporalio.worker._workflow_instance import WorkflowInstanceDetails


def new_instance(
    defn: workflow._Definition,
    workflow_id: str,
    run_id: str,
    started: datetime,
    converter: DataConverter,
    assert_known: Callable[[str], None],
) -> WorkflowInstance:
    """``assert_known``: of the name of each local activity."""
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
        interceptor_classes=[],
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

    async def create() -> WorkflowInstance:  # wants a running loop, and leaves nothing on it
        return UnsandboxedWorkflowRunner().create_instance(details)

    return asyncio.run(create())
