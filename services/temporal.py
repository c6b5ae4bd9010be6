"""Starts and signals the workflows of jobs, maintenance and migrations, by the queue of ``services/waker.py``.

``services/sweep.py`` finds jobs whose signal was lost with its process; a host manager that starts signals the
maintenances of its cluster, an api the migrations.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import (
    Priority,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from peloton.model.ids import (
    Hostname,
    JobId,
    RespoolId,
    job_workflow_id,
    maintenance_workflow_id,
    migration_workflow_id,
    update_workflow_id,
)
from peloton.model.job import JobRecord, JobType, RolledUp
from peloton.model.maintenance import HostMaintenance
from peloton.model.migration import Migration
from services.wake_line import Due, Rank
from services.waker import Waker
from services.workflow_labels import HostLabels, JobLabels, MigrationLabels
from workflows.attributes import SEARCH_ATTRIBUTES
from workflows.job import JobCarryOver, JobInput, JobWorkflow
from workflows.maintenance import HostMaintenanceWorkflow, MaintenanceInput
from workflows.migration import MigrationInput, MigrationWorkflow
from workflows.policies import Policies
from workflows.update import UpdateInput, UpdateWorkflow

log = logging.getLogger(__name__)

BATCH_QUEUE, SERVICE_QUEUE, MAINTENANCE_QUEUE = "peloton-batch", "peloton-services", "peloton-maintenance"
"""Task queues; a worker has separate slots for each. Earlier versions start every workflow on the first one: workers
serve workflows of every kind on each of them.
"""
TASK_QUEUES = (BATCH_QUEUE, SERVICE_QUEUE, MAINTENANCE_QUEUE)
WORKFLOW_TASK_TIMEOUT = timedelta(seconds=5)
"""Time after which another worker takes the workflow task of a dead one."""
RPC_TIMEOUT = timedelta(seconds=10)
START_OR_TELL: dict[str, Any] = {
    "start_signal": "changed",
    "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
    "task_timeout": WORKFLOW_TASK_TIMEOUT,
    "rpc_timeout": RPC_TIMEOUT,
}
"""Options to start a workflow with a signal; a running one only receives the signal."""
COUNTED_JOBS_MAX = 2_000
"""Jobs whose pods one query counts."""


async def register_search_attributes(client: Client) -> None:
    """Add the missing search attributes; a no-op on the local cluster, whose server starts with them. When only
    administrators may add them, as on Temporal Cloud, log which are missing.
    """
    service = client.operator_service
    missing = {attribute.name for attribute in SEARCH_ATTRIBUTES}
    try:
        known = await service.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace))
        missing -= set(known.custom_attributes)
        if missing:
            keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
            await service.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=client.namespace, search_attributes=dict.fromkeys(sorted(missing), keyword)
                )
            )
    except RPCError as error:
        if error.status not in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
            raise
        log.warning("add the search attributes %s, all keywords: we may not (%s)", ", ".join(sorted(missing)), error)


def queue_of(job_type: JobType) -> str:
    """Return the task queue of the job's workflow and its child workflows."""
    return SERVICE_QUEUE if job_type in (JobType.SERVICE, JobType.DAEMON) else BATCH_QUEUE


async def start_job(client: Client, job: JobRecord, policies: Policies, task_queue: str = "", pool: str = "") -> None:
    """Make sure that the workflow of a job exists. The call is idempotent: the workflow id is the mutex. A running
    workflow is signalled: it may be about to end, for an earlier job with the same id.

    The pool is the key by which Temporal distributes tasks that wait for a worker, so that no pool waits behind the
    backlog of another. Jobs have no priority there: it would rank above fairness, and one pool could put all its jobs
    in front.
    """
    labels = JobLabels(job, pool or job.respool_id)
    start = partial(
        client.start_workflow,
        JobWorkflow.run,
        JobInput(job.job_id, policies.of_jobs(), JobCarryOver(shown_state=job.state.value)),
        id=job_workflow_id(job.job_id),
        task_queue=task_queue or queue_of(job.type),
        priority=Priority(fairness_key=job.respool_id),
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        task_timeout=WORKFLOW_TASK_TIMEOUT,
        rpc_timeout=RPC_TIMEOUT,
        static_summary=labels.summary,
        static_details=labels.details,
        search_attributes=labels.attributes,
        memo=labels.memo,
    )
    try:
        await start(id_conflict_policy=WorkflowIDConflictPolicy.FAIL)
    except WorkflowAlreadyStartedError:
        await start(id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING, start_signal="changed")


async def start_update(client: Client, job: JobRecord, policies: Policies, pool: str) -> None:
    """Start the workflow of a job's updates again after it was terminated, as the job's workflow starts it."""
    await client.start_workflow(
        UpdateWorkflow.run,
        UpdateInput(job.job_id, policies),
        id=update_workflow_id(job.job_id),
        task_queue=queue_of(job.type),
        priority=Priority(fairness_key=job.respool_id),
        **START_OR_TELL,
        static_summary=f"updates of job {JobLabels(job, pool).name}",
        search_attributes=JobLabels(job, pool).attributes,
    )


async def wake_maintenance(
    client: Client,
    cluster: str,
    hostname: Hostname,
    policies: Policies,
    task_queue: str = MAINTENANCE_QUEUE,
    to_pool: str = "",
) -> None:
    """Start the workflow of a host's maintenance, or signal the running one. A run that is about to end handles the
    signal first. ``to_pool``: the host moves to this host pool instead.
    """
    labels = HostLabels(cluster, hostname, to_pool)
    await client.start_workflow(
        HostMaintenanceWorkflow.run,
        MaintenanceInput(cluster, hostname, policies),
        id=maintenance_workflow_id(cluster, hostname),
        task_queue=task_queue,
        priority=Priority(fairness_key=cluster),
        **START_OR_TELL,
        static_summary=labels.summary,
        static_details=labels.details,
        search_attributes=labels.attributes,
    )


async def wake_migration(
    client: Client, migration: Migration, policies: Policies, task_queue: str = MAINTENANCE_QUEUE
) -> None:
    """Start the workflow of a migration, or signal the running one."""
    labels = MigrationLabels(migration)
    await client.start_workflow(
        MigrationWorkflow.run,
        MigrationInput(migration.migration_id, labels.name, migration.spec.target, policies),
        id=migration_workflow_id(migration.migration_id),
        task_queue=task_queue,
        priority=Priority(fairness_key=migration.spec.target),
        **START_OR_TELL,
        static_summary=labels.summary,
        static_details=labels.details,
        search_attributes=labels.attributes,
        memo=labels.memo,
    )


class JobWaker(Waker):
    """Implements ``ports.PodLifecycles``. ``roll_up`` finds jobs whose only change is in their counts of pods: they are
    signalled after ``show_s``, unless signalled earlier for another reason.
    """

    def __init__(
        self,
        client: Client,
        find_job: Callable[[JobId], JobRecord | None],
        policies: Policies,
        roll_up: Callable[[Sequence[JobId], int], RolledUp],
        interval_s: float = 0.25,
        show_s: float = 5.0,
        pool_path: Callable[[RespoolId], str] = str,
        rank: Rank = Rank.CHANGE,
    ) -> None:
        super().__init__(client, policies, interval_s, rank)
        self._find_job, self._pool_path = find_job, pool_path
        self._roll_up = roll_up
        self._show_s = show_s
        self._to_count: dict[str, set[str]] = {}  # jobs whose pods changed, with the causes
        self._is_count_due = asyncio.Event()
        self._shown_later: dict[str, asyncio.TimerHandle] = {}  # at most one for each job that runs
        self._counting = self._loop.create_task(self._count(), name="counting of changed pods")

    async def close(self) -> None:
        self._counting.cancel()
        await asyncio.gather(self._counting, return_exceptions=True)
        await super().close()

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        self._note(job_ids, cause)

    def jobs_swept(self, job_ids: Iterable[JobId], cause: str = "a change was found by the sweep") -> None:
        """Queue signals to jobs with the lowest priority."""
        self._note(job_ids, cause, Rank.SWEEP)

    def pods_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        with self._lock:
            before = len(self._to_count)
            for job_id in job_ids:
                self._to_count.setdefault(job_id, set()).add(cause)
            if before or not self._to_count:
                return
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._is_count_due.set)

    async def _count(self) -> None:
        while True:
            await self._is_count_due.wait()
            with self._lock:
                chosen = {key: self._to_count.pop(key) for key in list(self._to_count)[:COUNTED_JOBS_MAX]}
                quiet = {JobId(key): causes for key, causes in chosen.items() if key not in self._line}
                if not self._to_count:
                    self._is_count_due.clear()
            if quiet:
                await self._count_jobs(quiet)
            await asyncio.sleep(self._interval_s)

    async def _count_jobs(self, quiet: Mapping[JobId, Iterable[str]]) -> None:
        """Update the counts of pods, except for jobs in the queue, whose workflows count them."""
        try:
            rolled = await asyncio.to_thread(self._roll_up, sorted(quiet), time.time_ns())
        except Exception as error:  # of storage: the workflows read again, and retry
            log.warning("%d jobs not counted: %s", len(quiet), error)
            rolled = RolledUp(list(quiet), [])
        for job_id in rolled.needs_work:
            for cause in quiet[job_id]:
                self._note([job_id], cause)
        for job_id in rolled.display_only:
            if job_id not in self._shown_later:
                self._shown_later[job_id] = self._loop.call_later(
                    self._show_s, self.jobs_changed, [job_id], "pods were counted"
                )

    async def _wake(self, due: Due) -> None:
        if timer := self._shown_later.pop(due.key, None):
            timer.cancel()
        await super()._wake(due)

    async def start_job(self, job_id: JobId) -> None:
        """Make sure that a stored job that has not ended has its workflow; raises RPCError."""
        job, pool = await asyncio.to_thread(self._found, job_id)
        if job is not None and _needs_workflow(job):
            await self._registered(lambda: start_job(self._client, job, self._policies, pool=pool))

    async def start_update(self, job_id: JobId) -> None:
        """Make sure that the updates of a stored service have their workflow, which ends when none is under way; raises
        RPCError."""
        job, pool = await asyncio.to_thread(self._found, job_id)
        if job is not None and job.update_id:
            await self._registered(lambda: start_update(self._client, job, self._policies, pool))

    async def _registered(self, start: Callable[[], Awaitable[None]]) -> None:
        """Start a workflow, and register search attributes if the server rejects one as unknown: no worker of this
        version has started yet. The registration takes some seconds, and the caller's next attempt succeeds.
        """
        try:
            await start()
        except RPCError as error:
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                await register_search_attributes(self._client)
            raise

    def _found(self, job_id: JobId) -> tuple[JobRecord | None, str]:
        """Return the job, if it is stored, and the path of its pool."""
        job = self._find_job(job_id)
        return job, self._pool_path(job.respool_id) if job is not None else ""

    async def _tell(self, key: str) -> None:
        """Signal a job's workflow; start it for a stored job without one, which was created while Temporal did not
        answer, or whose workflow failed. A finished job needs no signal.
        """
        workflow_id = job_workflow_id(key)
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            await handle.signal(JobWorkflow.changed, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            job, _ = await asyncio.to_thread(self._found, JobId(key))
            if job is not None and _needs_workflow(job) and await self._may_start(workflow_id):
                await self.start_job(JobId(key))


def _needs_workflow(job: JobRecord) -> bool:
    """Return whether the job needs a workflow. An ended service may have an update to roll out."""
    return job.is_active or bool(job.update_id)


class MaintenanceWaker(Waker):
    """Implements ``ports.HostLifecycles``. ``find``: the maintenance of a host of the cluster."""

    def __init__(
        self,
        client: Client,
        cluster: str,
        policies: Policies,
        interval_s: float = 1.0,
        find: Callable[[str, str], HostMaintenance | None] = lambda cluster, hostname: None,
    ) -> None:
        super().__init__(client, policies, interval_s)
        self._cluster, self._find = cluster, find

    def hosts_changed(self, hostnames: Iterable[Hostname]) -> None:
        self._note(hostnames, "the host, or pods on it, changed")

    async def _tell(self, key: str) -> None:
        workflow_id = maintenance_workflow_id(self._cluster, Hostname(key))
        try:
            handle = self._client.get_workflow_handle(workflow_id)
            return await handle.signal(HostMaintenanceWorkflow.changed, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        if not await self._may_start(workflow_id):
            return
        host = await asyncio.to_thread(self._find, self._cluster, key)
        to_pool = host.to_pool if host is not None else ""
        await wake_maintenance(self._client, self._cluster, Hostname(key), self._policies, to_pool=to_pool)


class MigrationWaker(Waker):
    def __init__(
        self,
        client: Client,
        find: Callable[[str], Migration | None],
        policies: Policies,
        interval_s: float = 0.25,
        rank: Rank = Rank.PEOPLE,
    ) -> None:
        super().__init__(client, policies, interval_s, rank)
        self._find = find

    def migrations_changed(self, migration_ids: Iterable[str]) -> None:
        """Queue a signal to each migration, without blocking; it is retried until Temporal accepts it."""
        self._note(migration_ids, "people changed the migration, or a role came up")

    async def _tell(self, key: str) -> None:
        migration = await asyncio.to_thread(self._find, key)
        if migration is not None:
            await wake_migration(self._client, migration, self._policies)
