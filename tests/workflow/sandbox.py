"""The one definition of the workflow sandbox, for replays and tests; workers run without it."""

from __future__ import annotations

from typing import Any

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions


class Runner(SandboxedWorkflowRunner):
    def prepare_workflow(self, defn: Any) -> None:
        """Do nothing. The SDK would load the workflow in a sandbox to see whether that works, which takes half of a
        replay's CPU; the replay itself loads it in another.
        """


def workflow_runner() -> SandboxedWorkflowRunner:
    """Default restrictions; Peloton's pure modules pass through, so that they load once per process."""
    return Runner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("peloton", "activities", "temporalio")
    )
