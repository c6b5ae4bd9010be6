"""Wakes the workflows of daemons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from temporalio.client import Client
from temporalio.common import Priority
from temporalio.service import RPCError, RPCStatusCode

from peloton.model.ids import JobId, RespoolId, daemon_workflow_id
from peloton.model.job import JobRecord, JobType
from services.temporal import RPC_TIMEOUT, START_OR_TELL, queue_of
from services.waker import Waker
from services.workflow_labels import JobLabels
from workflows.daemon import DaemonInput, DaemonWorkflow
from workflows.policies import Policies


class DaemonWaker(Waker):
    """Implements ``ports.Lifecycles`` for daemons. Each daemon is signalled at most once per ``interval_s``, however
    many hosts change.
    """

    def __init__(
        self,
        client: Client,
        find_job: Callable[[JobId], JobRecord | None],
        policies: Policies,
        pool_path: Callable[[RespoolId], str] = str,
        interval_s: float = 1.0,
    ) -> None:
        super().__init__(client, policies, interval_s)
        self._find_job, self._pool_path = find_job, pool_path

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        self._note(job_ids, cause)

    async def _tell(self, key: str) -> None:
        """Signal the workflow of a daemon; start it again when it was terminated."""
        workflow_id = daemon_workflow_id(key)
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            await handle.signal(DaemonWorkflow.changed, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            job, pool = await asyncio.to_thread(self._found, JobId(key))
            if job is not None and job.is_active and job.type is JobType.DAEMON and await self._may_start(workflow_id):
                await self._start(job, pool)

    def _found(self, job_id: JobId) -> tuple[JobRecord | None, str]:
        """Return the job, if it is stored, and the path of its pool."""
        job = self._find_job(job_id)
        return job, self._pool_path(job.respool_id) if job is not None else ""

    async def _start(self, job: JobRecord, pool: str) -> None:
        """Start the workflow of the daemon's hosts, as the job's workflow does."""
        labels = JobLabels(job, pool)
        await self._client.start_workflow(
            DaemonWorkflow.run,
            DaemonInput(job.job_id, self._policies),
            id=daemon_workflow_id(job.job_id),
            task_queue=queue_of(job.type),
            priority=Priority(fairness_key=job.respool_id),
            **START_OR_TELL,
            static_summary=f"hosts of daemon {labels.name}",
            search_attributes=labels.attributes,
        )
