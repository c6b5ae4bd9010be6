"""Restarts workflows that receive no other signal: terminated ones (as in the Web UI) whose job or maintenance is still
active, failed ones, missing ones, and runs that began on another version of the workers.

A signal starts the workflow of a live job that has none (``waker.py``), but an idle job receives no signal.
The leading resource manager therefore polls Temporal by lists that are short, whatever the number of jobs, and wakes
the workflows in them, by the table of ``lifecycles.py``. A failed workflow is started again after a growing
delay (``lifecycle.workflow_restarts``). A run that began on another version of the workers continues as new on the
current one when it is signalled. Idle runs are signalled for that, some at a time, so that no run is older than the
previous release.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from peloton.lifecycle.liveness import ENGINE_BOUND_S
from services.recheck import Recheck
from services.temporal.task_queues import RPC_TIMEOUT
from services.ticks import ticking
from services.wakers.failed_workflows import FailedWorkflows
from services.wakers.missing_workflows import MissingWorkflows
from services.wakers.wakers import Wakers

log = logging.getLogger(__name__)

PERIOD_S = 20.0
OTHERS_PERIOD_S = 300.0
"""Seconds between signals to all migrations and rebalancing, whose workflows are not counted. They are signalled
at once when workflows of jobs are missing.
"""
OVERLAP = timedelta(minutes=2)
"""Time by which two polls overlap, as lists of Temporal lag behind. A workflow that is signalled twice reads its state
once more.
"""
RESTARTED_MAX = 100_000
"""Workflows restarted by one poll, as many as there may be jobs."""


TERMINATED = "a workflow of the object was terminated"
FAILED = "a workflow of the object failed"
MISSING = "Temporal had no workflow of the job"
OUTDATED = "it moves to the current version of the workers"
OUTDATED_PER_POLL = 100
"""Runs signalled by one poll, 5 a second: each replays its history and continues as new, some 0.1 s of CPU."""


class WorkflowRestarter:
    def __init__(
        self,
        client: Client,
        wakers: Wakers,
        *,
        period_s: float = PERIOD_S,
        missing: MissingWorkflows | None = None,
        current_version: Callable[[], str] = str,
        others_period_s: float = OTHERS_PERIOD_S,
    ) -> None:
        """Start to poll, until closed. A workflow that was terminated earlier counts as ``missing``.
        ``current_version``: the current version of the workers, as Temporal names it, or empty.
        """
        self._client, self._wakers, self._period_s = client, wakers, period_s
        self._missing, self._current_version = missing, current_version
        self._outdated = Recheck()  # runs become outdated when the current version changes
        self._failed = FailedWorkflows(client)
        self._restarted: dict[str, int] = {}  # workflows that failed, and the moment for which they were started again
        self._others_period_s, self._others_woken_s = others_period_s, time.monotonic()
        self._since = datetime.now(UTC)
        self._task = asyncio.create_task(self._run(), name="restart of terminated workflows")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        with ticking("revival of terminated workflows", self._period_s, ENGINE_BOUND_S) as loop:
            while True:
                await asyncio.sleep(self._period_s)
                loop.tick()
                try:
                    await self._restart_terminated()
                    failed = await self._restart_failed()
                    missing = await self._missing.find(failed) if self._missing is not None else ()
                    self._wakers.jobs.jobs_swept(missing, MISSING)
                    await self._renew()
                    if missing or time.monotonic() - self._others_woken_s >= self._others_period_s:
                        await self._wakers.wake_active()
                        self._others_woken_s = time.monotonic()
                except Exception as error:  # of Temporal or of storage: the next poll makes up for it
                    log.warning("terminated workflows not listed, retrying: %s", error)

    async def _restart_terminated(self) -> None:
        """Start the workflows that were terminated since the last poll."""
        began = datetime.now(UTC)
        closed_after = (self._since - OVERLAP).isoformat()
        query = f"ExecutionStatus = 'Terminated' AND CloseTime > '{closed_after}' AND PelotonType IS NOT NULL"
        for workflow_id in await self._list(query, RESTARTED_MAX):
            self._wakers.restart(workflow_id, TERMINATED)
        self._since = began

    async def _restart_failed(self) -> Collection[str]:
        """Start each failed workflow whose delay has passed, once. Return the ids of the others."""
        found = await self._failed.find()
        self._restarted = {one: due_ns for one, due_ns in self._restarted.items() if one in found}
        for workflow_id, restart in found.items():
            if restart.is_due and self._restarted.get(workflow_id) != restart.due_ns:
                log.warning("restarting workflow %s: %s", workflow_id, restart.reason)
                self._wakers.restart(workflow_id, FAILED)
                self._restarted[workflow_id] = restart.due_ns
        return {workflow_id for workflow_id, restart in found.items() if not restart.is_due}

    async def _renew(self) -> None:
        """Signal runs of other versions than the current one. A run that has ended meanwhile needs no signal."""
        current = self._current_version()
        is_due = self._outdated.is_due(current)
        if current and is_due:
            began_elsewhere = (
                f"ExecutionStatus = 'Running' AND PelotonType IS NOT NULL AND "  # workers up to 0.1 have no version
                f"(TemporalWorkerDeploymentVersion != '{current}' OR TemporalWorkerDeploymentVersion IS NULL)"
            )
            found = await self._list(began_elsewhere, OUTDATED_PER_POLL)
            for workflow_id in found:
                self._wakers.wake_workflow(workflow_id, OUTDATED)
            self._outdated.record_check(has_found=bool(found))

    async def _list(self, query: str, limit: int) -> list[str]:
        found = self._client.list_workflows(query, limit=limit, rpc_timeout=RPC_TIMEOUT)
        return list(dict.fromkeys([one.id async for one in found]))
