"""The case ``sandbox`` replays recorded histories with and without the sandbox of workflows, and compares their CPU."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from tests.workflow.recorded import histories
from tests.workflow.sandbox import workflow_runner
from tests.workflow.server import WORKFLOWS

ROUNDS = 5
"""Rounds of each runner, in turns; the cheapest one counts."""


def all_passed_through() -> WorkflowRunner:
    """Return a sandbox that passes all imports through, also that of the workflow's own module."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_all_modules())


RUNNERS: dict[str, Callable[[], WorkflowRunner]] = {
    "unsandboxed": UnsandboxedWorkflowRunner,
    "all_passed_through": all_passed_through,
    "ours_passed_through": workflow_runner,
}


def sandbox() -> dict[str, Any]:
    """CPU of a replayed run of a workflow, and how many times that without the sandbox."""
    recorded = [
        WorkflowHistory.from_json(path.name, json.loads(gzip.decompress(path.read_bytes()))) for path in histories()
    ]
    cheapest_s = dict.fromkeys(RUNNERS, float("inf"))
    for _ in range(ROUNDS):
        for name, runner in RUNNERS.items():
            cheapest_s[name] = min(cheapest_s[name], asyncio.run(replay_all(recorded, runner())))
    figures: dict[str, Any] = {"case": "sandbox", "runs": len(recorded), "rounds": ROUNDS}
    figures |= {f"{name}_cpu_ms_per_run": round(spent / len(recorded) * 1e3, 2) for name, spent in cheapest_s.items()}
    bare_s = cheapest_s["unsandboxed"]
    figures |= {f"{name}_ratio": round(spent / bare_s, 2) for name, spent in cheapest_s.items() if spent is not bare_s}
    return figures


async def replay_all(recorded: Sequence[WorkflowHistory], runner: WorkflowRunner) -> float:
    """Replay all histories; return the CPU seconds of this process after a first replay, which loads what is cached."""

    async def each() -> AsyncIterator[WorkflowHistory]:
        for history in recorded:
            yield history

    replayer = Replayer(workflows=list(WORKFLOWS.values()), workflow_runner=runner)
    await replayer.replay_workflow(recorded[0])
    began_s = time.process_time()
    await replayer.replay_workflows(each())
    return time.process_time() - began_s
