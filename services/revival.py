"""Starts workflows anew that somebody terminated, as in the Web UI, while what they look after lives on.

Whoever is told of a change starts the workflow of a living job that has none (``JobWaker``); but a service of which
nothing changes, and a job that waits for a timer of its workflow, are not told of anything. So a leader asks Temporal
from time to time what was terminated: a list that is short, whatever the number of jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from peloton.model.ids import Hostname, JobId
from services.missing_workflows import MissingWorkflows
from services.temporal import RPC_TIMEOUT, JobWaker, wake_maintenance
from workflows.policies import Policies

log = logging.getLogger(__name__)

PERIOD_S = 20.0
OVERLAP = timedelta(minutes=2)
"""Lists lag behind. Who is told twice looks once more."""
REVIVED_MAX = 100_000
"""In one look: as many as there may be jobs."""


TERMINATED = "a workflow of the job was terminated"
MISSING = "Temporal had no workflow of the job"


class Revival:
    def __init__(
        self,
        client: Client,
        waker: JobWaker,
        policies: Policies,
        period_s: float = PERIOD_S,
        wake_migrations: Callable[[Iterable[str]], None] = lambda _: None,
        wake_rebalances: Callable[[Iterable[str]], None] = lambda _: None,
        wake_daemons: Callable[[Iterable[JobId]], None] = lambda _: None,
        missing: MissingWorkflows | None = None,
    ) -> None:
        """Runs until it is closed. What was terminated before it began is ``missing``."""
        self._client, self._waker, self._policies, self._period_s = client, waker, policies, period_s
        self._wake_migrations, self._wake_rebalances = wake_migrations, wake_rebalances
        self._wake_daemons = wake_daemons
        self._missing = missing
        self._since = datetime.now(UTC)
        self._task = asyncio.create_task(self._run(), name="revival of terminated workflows")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            began = datetime.now(UTC)
            try:
                await self._revive()
                self._since = began
                if self._missing is not None:
                    self._waker.jobs_swept(await self._missing.find(), MISSING)
            except Exception as error:  # of Temporal or of storage: the next look makes up for it
                log.warning("terminated workflows are not looked for: %s", error)

    async def _revive(self) -> None:
        closed_after = (self._since - OVERLAP).isoformat()
        query = f"ExecutionStatus = 'Terminated' AND CloseTime > '{closed_after}' AND PelotonType IS NOT NULL"
        found = [one.id async for one in self._client.list_workflows(query, limit=REVIVED_MAX, rpc_timeout=RPC_TIMEOUT)]
        for workflow_id in dict.fromkeys(found):
            await self._start(*workflow_id.split("/"))

    async def _start(self, kind: str, *names: str) -> None:
        match kind, *names:
            case "job", job_id:
                self._waker.jobs_changed([JobId(job_id)], TERMINATED)
            case "gang", job_id, _:  # its job starts another
                self._waker.jobs_changed([JobId(job_id)], TERMINATED)
            case "update", job_id:
                await self._waker.start_update(JobId(job_id))
            case "daemon", job_id:
                self._wake_daemons([JobId(job_id)])
            case "maintenance", cluster, hostname:
                await wake_maintenance(self._client, cluster, Hostname(hostname), self._policies)
            case "migration", migration_id:
                self._wake_migrations([migration_id])
            case "rebalance", cluster:
                self._wake_rebalances([cluster])
