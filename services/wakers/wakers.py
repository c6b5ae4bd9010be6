"""Wakers of one role: one for each kind of workflow in ``services/wakers/lifecycles.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from temporalio.client import Client

from peloton.model.ids import Hostname, JobId
from services.storage.storage import Storage
from services.temporal.workflow_labels import PoolPaths
from services.wakers.job_rollup import JobRollUp
from services.wakers.job_waker import JobWaker
from services.wakers.lifecycles import DAEMON, JOB, LIFECYCLES, MAINTENANCE, MIGRATION, REBALANCE, StoredLifecycle
from services.wakers.wake_line import Rank
from services.wakers.waker import Waker
from workflows.policies import Policies


class Wakers:
    """Implements ``api.wake.Wakers`` and ``ports.HostLifecycles``; ``pods`` implements ``ports.PodLifecycles``, and
    ``jobs`` and ``daemons`` ``ports.Lifecycles``. Construct it in its event loop.
    """

    def __init__(
        self,
        client: Client,
        stored: Storage,
        policies: Policies,
        *,
        rank: Rank = Rank.CHANGE,
        cluster: str = "",
        interval_s: float | None = None,
    ) -> None:
        """Create the wakers. ``rank``: the default rank of signals. ``cluster``: the cluster of ``hosts_changed``."""
        self._stored, self._cluster = stored, cluster
        paths = PoolPaths(stored.pools.specs)
        self.jobs = JobWaker(client, stored, policies, rank=rank, pool_path=paths, interval_s=interval_s)
        rest_s = JOB.interval_s if interval_s is None else interval_s
        self.pods = JobRollUp(stored.jobs.roll_up, self.jobs, rest_s)
        self._wakers: dict[str, Waker] = {
            kind: Waker(row, client, stored, policies, rank=rank, pool_path=paths, interval_s=interval_s)
            for kind, row in LIFECYCLES.items()
            if row is not JOB
        }
        self._wakers[JOB.kind] = self.jobs
        self.daemons = self._wakers[DAEMON.kind]

    async def close(self) -> None:
        await self.pods.close()
        for waker in self._wakers.values():
            await waker.close()

    async def start_job(self, job_id: JobId) -> None:
        """Make sure that a stored job that has not ended has its workflow. Raises RPCError."""
        await self.jobs.start(job_id)

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        self.jobs.wake(job_ids, cause)

    def hosts_changed(self, hostnames: Iterable[Hostname]) -> None:
        keys = (f"{self._cluster}/{hostname}" for hostname in hostnames)
        self._wakers[MAINTENANCE.kind].wake(keys, "the host, or pods on it, changed")

    def migrations_changed(self, migration_ids: Iterable[str]) -> None:
        self._wakers[MIGRATION.kind].wake(migration_ids, "people changed the migration, or a role came up")

    def rebalances_changed(self, clusters: Iterable[str]) -> None:
        self._wakers[REBALANCE.kind].wake(clusters, "people changed the rebalancing, or a role came up")

    def wake_workflow(self, workflow_id: str, cause: str) -> None:
        """Queue a signal to a workflow, by its id. A missing one is started if its object needs it."""
        kind, _, key = workflow_id.partition("/")
        if kind in self._wakers:
            self._wakers[kind].wake([key], cause, Rank.SWEEP)

    def restart(self, workflow_id: str, cause: str) -> None:
        """Start a workflow again that has ended, by the workflow that starts it if that is another one."""
        kind, _, key = workflow_id.partition("/")
        row = LIFECYCLES.get(kind)
        if isinstance(row, StoredLifecycle):
            self.wake_workflow(workflow_id, cause)
        elif row is not None and row.restarted_by:
            self.wake_workflow(f"{row.restarted_by}/{key.partition('/')[0]}", cause)

    async def wake_active(self) -> None:
        """Wake all active workflows of the kinds whose changes are not noted, or start them where they are missing."""
        for row in LIFECYCLES.values():
            if isinstance(row, StoredLifecycle):
                keys = await asyncio.to_thread(row.active_keys, self._stored)
                self._wakers[row.kind].wake(keys, f"the {row.kind} is active, and may have lost a signal")
