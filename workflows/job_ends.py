"""Ends of jobs in the headers of signals: a host manager that has settled the end of a job sends it with the signal.

Headers are ignored by versions that do not know them, whose workflows read the rows at each signal.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.worker import (
    HandleSignalInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

with workflow.unsafe.imports_passed_through():
    from peloton.model.job import END_HEADER, JobEnd


class EndsInSignals(Interceptor):
    """Passes the end in the header of a signal to the workflow, by its method ``take_end``."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return TakesEnds


class TakesEnds(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:
        payload = input.headers.get(END_HEADER)
        if payload is not None:
            instance: Any = workflow.instance()
            if instance.take_end(workflow.payload_converter().from_payload(payload, JobEnd)):
                return
        await super().handle_signal(input)
