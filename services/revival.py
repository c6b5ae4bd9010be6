"""Restarts workflows that receive no other signal: terminated ones (as in the Web UI) whose job or maintenance is still
active, failed ones, missing ones, and runs that began on another version of the workers.

A signal starts the workflow of a live job that has none (``JobWaker``), but an idle job receives no signal. The leading
resource manager therefore polls Temporal by lists that are short, whatever the number of jobs. A failed workflow is
started again after a growing delay (``lifecycle.workflow_restarts``). A run that began on another version of the
workers continues as new on the current one when it is signalled. Idle runs are signalled for that, some at a time, so
that no run is older than the previous release.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from peloton.model.ids import Hostname, JobId
from services.failed_workflows import FailedWorkflows
from services.missing_workflows import MissingWorkflows
from services.recheck import Recheck
from services.temporal import RPC_TIMEOUT, JobWaker, wake_maintenance
from workflows.policies import Policies

log = logging.getLogger(__name__)

PERIOD_S = 20.0
OTHERS_PERIOD_S = 300.0
"""Seconds between signals to all migrations and rebalancing, whose workflows are not counted when Temporal has lost
them.
"""
OVERLAP = timedelta(minutes=2)
"""Time by which two polls overlap, as lists of Temporal lag behind. A workflow that is signalled twice reads its state
once more.
"""
REVIVED_MAX = 100_000
"""Workflows restarted by one poll, as many as there may be jobs."""
REFUSED_MAX = 1_000
"""Workflows that could not be started, and are retried by the next poll."""
FAILURES_MAX = 10
"""Failures in a row after which a poll ends: Temporal or storage does not answer."""


TERMINATED = "a workflow of the job was terminated"
FAILED = "a workflow of the job failed"
MISSING = "Temporal had no workflow of the job"
OUTDATED = "it is to go on with the current version of the workers"
OUTDATED_PER_LOOK = 100
"""Runs signalled by one poll, 5 a second: each replays its history and continues as new, some 0.1 s of CPU."""


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
        current_version: Callable[[], str] = str,
        wake_others: Callable[[], Awaitable[None]] | None = None,
        others_period_s: float = OTHERS_PERIOD_S,
    ) -> None:
        """Start to poll, until closed. A workflow that was terminated earlier counts as ``missing``.
        ``current_version``: the current version of the workers, as Temporal names it, or empty. ``wake_others``
        signals migrations and rebalancing under way.
        """
        self._client, self._waker, self._policies, self._period_s = client, waker, policies, period_s
        self._wake_migrations, self._wake_rebalances = wake_migrations, wake_rebalances
        self._wake_daemons = wake_daemons
        self._missing, self._current_version = missing, current_version
        self._outdated = Recheck()  # runs become outdated when the current version changes
        self._failed = FailedWorkflows(client)
        self._restarted: dict[str, int] = {}  # workflows that failed, and the moment for which they were started again
        self._wake_others, self._others_period_s = wake_others, others_period_s
        self._others_woken_s = time.monotonic()
        self._since = datetime.now(UTC)
        self._refused: list[str] = []  # that were terminated, and could not be started
        self._failures = 0  # in a row
        self._task = asyncio.create_task(self._run(), name="revival of terminated workflows")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self._revive()
                failed = await self._restart_failed()
                if self._missing is not None:
                    self._waker.jobs_swept(await self._missing.find(failed), MISSING)
                await self._renew()
                await self._wake_others_when_due()
            except Exception as error:  # of Temporal or of storage: the next poll makes up for it
                log.warning("terminated workflows are not looked for: %s", error)

    async def _wake_others_when_due(self) -> None:
        if self._wake_others is not None and time.monotonic() - self._others_woken_s >= self._others_period_s:
            await self._wake_others()
            self._others_woken_s = time.monotonic()

    async def _revive(self) -> None:
        """Start the workflows that were terminated since the last poll, or that the last poll could not start."""
        began, again = datetime.now(UTC), self._refused
        closed_after = (self._since - OVERLAP).isoformat()
        query = f"ExecutionStatus = 'Terminated' AND CloseTime > '{closed_after}' AND PelotonType IS NOT NULL"
        wanted = dict.fromkeys([*again, *await self._list(query, REVIVED_MAX)])
        refused = [one for one in wanted if not await self._try_to_start(TERMINATED, one)]
        self._since, self._refused = began, refused[:REFUSED_MAX]

    async def _restart_failed(self) -> Collection[str]:
        """Start each failed workflow whose delay has passed, once. Return the ids of the others."""
        found = await self._failed.find()
        self._restarted = {one: due_ns for one, due_ns in self._restarted.items() if one in found}
        for workflow_id, restart in found.items():
            if restart.is_due and self._restarted.get(workflow_id) != restart.due_ns:
                log.warning("workflow %s is started again: %s", workflow_id, restart.reason)
                if await self._try_to_start(FAILED, workflow_id):
                    self._restarted[workflow_id] = restart.due_ns
        return {workflow_id for workflow_id, restart in found.items() if not restart.is_due}

    async def _renew(self) -> None:
        current = self._current_version()
        is_due = self._outdated.is_due(current)
        if current and is_due:
            began_elsewhere = (
                f"ExecutionStatus = 'Running' AND PelotonType IS NOT NULL AND "  # workers up to 0.1 have no version
                f"(TemporalWorkerDeploymentVersion != '{current}' OR TemporalWorkerDeploymentVersion IS NULL)"
            )
            found = await self._list(began_elsewhere, OUTDATED_PER_LOOK)
            for workflow_id in found:
                await self._try_to_start(OUTDATED, workflow_id)
            self._outdated.note_answer(has_found=bool(found))

    async def _list(self, query: str, limit: int) -> list[str]:
        found = self._client.list_workflows(query, limit=limit, rpc_timeout=RPC_TIMEOUT)
        return list(dict.fromkeys([one.id async for one in found]))

    async def _try_to_start(self, cause: str, workflow_id: str) -> bool:
        """Signal a workflow; start an ended one if there is work for it. Return whether that succeeded: one that cannot
        be started does not block the others. Raises the error after FAILURES_MAX in a row.
        """
        try:
            await self._start_one(cause, *workflow_id.split("/"))
        except Exception as error:  # of Temporal, of storage, or of this workflow alone
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                self._failures = 0
                raise
            log.warning("workflow %s could not be started: %s", workflow_id, error)
            return False
        self._failures = 0
        return True

    async def _start_one(self, cause: str, kind: str, *names: str) -> None:
        match kind, *names:
            case "job", job_id:
                self._waker.jobs_swept([JobId(job_id)], cause)
            case "gang" | "scheduled-job", *_ if cause == OUTDATED:  # no other signal reaches it
                await self._tell_run("/".join((kind, *names)))
            case "gang", job_id, _:  # its job starts another
                self._waker.jobs_swept([JobId(job_id)], cause)
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
            # The run of a schedule that was terminated stays so.

    async def _tell_run(self, workflow_id: str) -> None:
        """Signal a run, which continues on the current version, unless it has ended."""
        try:
            await self._client.get_workflow_handle(workflow_id).signal("changed", rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
