"""Failed workflows of Peloton, by lists of Temporal, and when each is started again.

How often a workflow failed is counted in Temporal, which outlives every process; it forgets with the retention
of the namespace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from temporalio.client import Client

from peloton.lifecycle.workflow_restarts import COUNTED_S, FailedRuns, Restart, evaluate_restart
from peloton.model.times import NS_PER_S, unix_ns
from services.temporal.task_queues import RPC_TIMEOUT
from services.temporal.workflow_labels import SCHEDULED_JOB_TYPE
from workflows.attributes import TYPE

RUNS_MAX = 20_000
"""Failed runs that one read returns, the newest."""
RUNS_OF_ONE_MAX = 100
RESTARTED = f"{TYPE.name} IS NOT NULL AND {TYPE.name} != '{SCHEDULED_JOB_TYPE}'"
"""Query of the workflow types that are started again. The run of a schedule is left out: it fails because its job
failed.
"""
PAGE_RUNS = 1_000


class FailedWorkflows:
    def __init__(self, client: Client, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._client, self._clock_ns = client, clock_ns

    async def find(self, runs_max: int = RUNS_MAX) -> Mapping[str, Restart]:
        """Return when each recently failed workflow is started again, by workflow id. A run of it may be under way.
        Raises RPCError.
        """
        runs = await self._runs(RESTARTED, runs_max)
        return {workflow_id: evaluate_restart(failed, self._clock_ns()) for workflow_id, failed in runs.items()}

    async def evaluate(self, workflow_id: str) -> Restart:
        """Decide whether a workflow that has no run under way may be started. Raises RPCError."""
        runs = await self._runs(f"WorkflowId = '{workflow_id}'", RUNS_OF_ONE_MAX)
        return evaluate_restart(runs.get(workflow_id, FailedRuns(0, 0)), self._clock_ns())

    async def _runs(self, condition: str, limit: int) -> dict[str, FailedRuns]:
        since = datetime.fromtimestamp(self._clock_ns() / NS_PER_S - COUNTED_S, UTC).isoformat()
        query = f"{condition} AND ExecutionStatus = 'Failed' AND CloseTime > '{since}'"
        found: dict[str, FailedRuns] = {}
        listed = self._client.list_workflows(
            query, limit=limit, page_size=min(limit, PAGE_RUNS), rpc_timeout=RPC_TIMEOUT
        )
        async for run in listed:
            known = found.get(run.id, FailedRuns(0, 0))
            found[run.id] = FailedRuns(known.count + 1, max(known.ended_ns, unix_ns(run.close_time)))
        return found
