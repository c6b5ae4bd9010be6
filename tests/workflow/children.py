"""Workflows that a workflow in virtual time starts and signals: the part of ``Virtual`` about other workflows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from temporalio.api.failure.v1 import Failure

from services.temporal.payloads import CONVERTER
from tests.workflow.sdk import CHILD_EXISTS, WorkflowActivationJob, WorkflowCommand


@dataclass
class FakeChild:
    """A workflow of which only signals matter."""

    signal_now: Callable[[], object]
    ended: bool = False


class Children:
    """Commands about other workflows. Children share the clock, the activities and the faults of their parent."""

    failure: Failure | None = None

    def _do_start_child_workflow_execution(self: Any, run: Any, command: WorkflowCommand) -> None:
        asked = command.start_child_workflow_execution
        run.events += 1
        job = WorkflowActivationJob()
        answer = job.resolve_child_workflow_execution_start
        answer.seq = asked.seq
        before = self.children.get(asked.workflow_id)
        if before is not None and not before.ended:
            answer.failed.workflow_id, answer.failed.workflow_type = asked.workflow_id, asked.workflow_type
            answer.failed.cause = CHILD_EXISTS
        else:
            answer.succeeded.run_id = "run1"
            child = self._new_child(asked.workflow_type, asked.workflow_id)
            child._on_end.append(lambda: self._child_ended(run, asked.seq, child))
            child._start_run(asked.input)
        self._add_job(run, job, events=1)

    def terminate(self: Any) -> None:
        """End the workflow as an operator may do."""
        failure = Failure(message="Workflow execution terminated")
        failure.terminated_failure_info.identity = "operator"
        self.failure = failure
        self._end(self.runs[-1])

    def _new_child(self: Any, kind: str, workflow_id: str) -> Any:
        """Make a child whose calls are counted with the parent's, and fail with them."""
        activities = list(self._activities.values())
        child = type(self)(
            self.clock, self._child_kinds[kind], activities, signal=self._signal, workflow_id=workflow_id
        )
        child.calls, child.faults, child.attempts, child.on_call = self.calls, self.faults, self.attempts, self.on_call
        child.children[self.workflow_id] = self
        self.children[workflow_id] = child
        self.past_children.append(child)
        return child

    def _child_ended(self: Any, run: Any, seq: int, child: Any) -> None:
        job = WorkflowActivationJob()
        job.resolve_child_workflow_execution.seq = seq
        if child.failure is None:
            (payload,) = CONVERTER.payload_converter.to_payloads([child.result])
            job.resolve_child_workflow_execution.result.completed.result.CopyFrom(payload)
        else:
            failed = Failure(message="Child Workflow execution failed", cause=child.failure)
            failed.child_workflow_execution_failure_info.workflow_type.name = child._defn.name or ""
            job.resolve_child_workflow_execution.result.failed.failure.CopyFrom(failed)
        self._add_job(run, job, events=1)

    def _do_signal_external_workflow_execution(self: Any, run: Any, command: WorkflowCommand) -> None:
        asked = command.signal_external_workflow_execution
        run.events += 1
        job = WorkflowActivationJob()
        job.resolve_signal_external_workflow.seq = asked.seq
        child = self.children.get(asked.workflow_execution.workflow_id)
        if child is None or child.ended:
            missing = job.resolve_signal_external_workflow.failure
            missing.message = "Unable to signal external workflow because it was not found"
            missing.application_failure_info.type = "ExternalWorkflowExecutionNotFound"
        else:
            child.signal_now()
        self._add_job(run, job, events=1)
