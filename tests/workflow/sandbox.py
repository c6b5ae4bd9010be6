"""The one definition of the workflow sandbox, for replays and tests; workers run without it."""

from __future__ import annotations

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions


def workflow_runner() -> SandboxedWorkflowRunner:
    """Default restrictions; Peloton's pure modules pass through, so that they load once per process."""
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("peloton", "activities", "temporalio")
    )
