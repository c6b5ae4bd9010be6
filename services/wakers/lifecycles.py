"""Lifecycles that Temporal workflows own: one row for each kind of workflow. ``waker.py`` signals and starts
them, and ``workflow_restarter.py`` restarts them, by this table.

    kind and key           signalled when                          started by           active ones found by
    job/ID                 its goal, its update or pods change     the api              notes (sweep.py)
    gang/ID/RUN            its pods change                         its job              its job
    update/ID              its next step would change something    its job              its job
    daemon/ID              hosts join or leave, pods are ready     its job              its job
    maintenance/CLUSTER/HOST  a request, pods leave the host       the host manager     the host manager's rounds
    migration/ID           a request                               the api              active_keys
    rebalance/CLUSTER      a request                               the api              active_keys
    scheduled-job/NAME     never                                   Temporal's schedule  Temporal

The workflow id is an idempotency key: an object has at most one workflow, however often it is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from temporalio.client import Client
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from peloton.model.ids import (
    JobId,
    RespoolId,
    daemon_workflow_id,
    job_workflow_id,
    maintenance_workflow_id,
    migration_workflow_id,
    rebalance_workflow_id,
    schedule_workflow_id,
    update_workflow_id,
)
from peloton.model.job import JobRecord, JobType
from peloton.model.maintenance import HostMaintenance
from peloton.model.migration import Migration
from peloton.model.rebalance import Rebalance
from services.storage.storage import Storage
from services.temporal.task_queues import (
    MAINTENANCE_QUEUE,
    RPC_TIMEOUT,
    WORKFLOW_TASK_TIMEOUT,
    queue_of,
    register_search_attributes,
)
from services.temporal.workflow_labels import (
    NAME_MAX,
    Labels,
    daemon_labels,
    first_state,
    job_labels,
    maintenance_labels,
    migration_labels,
    rebalance_labels,
    update_labels,
)
from workflows.daemon import DaemonInput, DaemonWorkflow
from workflows.gang import GangWorkflow
from workflows.job import JobCarryOver, JobInput, JobWorkflow
from workflows.maintenance import HostMaintenanceWorkflow, MaintenanceInput
from workflows.migration import MigrationInput, MigrationWorkflow
from workflows.policies import REBALANCE_PRIORITY, Policies
from workflows.rebalance import RebalanceInput, RebalanceWorkflow
from workflows.scheduled_job import ScheduledJobWorkflow
from workflows.update import UpdateInput, UpdateWorkflow

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """Kind of workflow that only another workflow or a schedule starts."""

    kind: str
    workflow: type[Any]
    workflow_id: Callable[[str], str]  # by the key; begins with the kind
    interval_s: float = 1.0  # at least, between two signals to a workflow
    restarted_by: str = ""  # kind of the workflow that starts it again; none does by default


@dataclass(frozen=True, kw_only=True)
class StoredLifecycle(Lifecycle, Generic[T]):
    """Kind of workflow that is started for a stored object."""

    get: Callable[[Storage, str], T | None]  # the object of a key
    needs_workflow: Callable[[T], bool]
    input: Callable[[T, Policies], object]
    task_queue: Callable[[T], str]
    fairness_key: Callable[[T], str]
    labels: Callable[[T, Callable[[RespoolId], str]], Labels]  # by the paths of pools
    priority: int | None = None  # of Temporal
    active_keys: Callable[[Storage], Iterable[str]] = lambda stored: ()


JOB = StoredLifecycle[JobRecord](
    kind="job",
    workflow=JobWorkflow,
    workflow_id=job_workflow_id,
    interval_s=0.25,
    get=lambda stored, key: stored.jobs.get(JobId(key)),
    needs_workflow=lambda job: job.is_active or bool(job.update_id),  # an ended service may have an update
    input=lambda job, policies: JobInput(
        job.job_id, policies.of_jobs(), JobCarryOver(shown_state=first_state(job).value)
    ),
    task_queue=lambda job: queue_of(job.type),
    fairness_key=lambda job: job.respool_id,
    labels=lambda job, path: job_labels(job, path(job.respool_id)),
)
GANG = Lifecycle(kind="gang", workflow=GangWorkflow, workflow_id=lambda key: f"gang/{key}", restarted_by="job")
UPDATE = StoredLifecycle[JobRecord](
    kind="update",
    workflow=UpdateWorkflow,
    workflow_id=update_workflow_id,
    get=lambda stored, key: stored.jobs.get(JobId(key)),
    needs_workflow=lambda job: bool(job.update_id),
    input=lambda job, policies: UpdateInput(job.job_id, policies),
    task_queue=lambda job: queue_of(job.type),
    fairness_key=lambda job: job.respool_id,
    labels=lambda job, path: update_labels(job, path(job.respool_id)),
)
DAEMON = StoredLifecycle[JobRecord](
    kind="daemon",
    workflow=DaemonWorkflow,
    workflow_id=daemon_workflow_id,
    get=lambda stored, key: stored.jobs.get(JobId(key)),
    needs_workflow=lambda job: job.is_active and job.type is JobType.DAEMON,
    input=lambda job, policies: DaemonInput(job.job_id, policies),
    task_queue=lambda job: queue_of(job.type),
    fairness_key=lambda job: job.respool_id,
    labels=lambda job, path: daemon_labels(job, path(job.respool_id)),
)
MAINTENANCE = StoredLifecycle[HostMaintenance](
    kind="maintenance",
    workflow=HostMaintenanceWorkflow,
    workflow_id=lambda key: maintenance_workflow_id(*key.split("/", 1)),
    get=lambda stored, key: stored.maintenance.get(*key.split("/", 1)),
    needs_workflow=lambda host: not host.is_over,
    input=lambda host, policies: MaintenanceInput(host.cluster, host.hostname, policies),
    task_queue=lambda host: MAINTENANCE_QUEUE,
    fairness_key=lambda host: host.cluster,
    labels=lambda host, _: maintenance_labels(host),
)
MIGRATION = StoredLifecycle[Migration](
    kind="migration",
    workflow=MigrationWorkflow,
    workflow_id=migration_workflow_id,
    interval_s=0.25,
    get=lambda stored, key: stored.migrations.get(key),
    needs_workflow=lambda one: one.is_active,
    input=lambda one, policies: MigrationInput(one.migration_id, one.name[:NAME_MAX], one.spec.target, policies),
    task_queue=lambda one: MAINTENANCE_QUEUE,
    fairness_key=lambda one: one.spec.target,
    labels=lambda one, _: migration_labels(one),
    active_keys=lambda stored: [one.migration_id for one in stored.migrations.active()],
)
REBALANCE = StoredLifecycle[Rebalance](
    kind="rebalance",
    workflow=RebalanceWorkflow,
    workflow_id=rebalance_workflow_id,
    interval_s=0.25,
    get=lambda stored, key: stored.rebalances.get(key),
    needs_workflow=lambda one: one.is_active,
    input=lambda one, policies: RebalanceInput(one.cluster, policies),
    task_queue=lambda one: MAINTENANCE_QUEUE,
    fairness_key=lambda one: one.cluster,
    priority=REBALANCE_PRIORITY,
    labels=lambda one, _: rebalance_labels(one),
    active_keys=lambda stored: [one.cluster for one in stored.rebalances.all()],
)
SCHEDULED_JOB = Lifecycle(kind="scheduled-job", workflow=ScheduledJobWorkflow, workflow_id=schedule_workflow_id)

LIFECYCLES: dict[str, Lifecycle] = {
    row.kind: row for row in (JOB, GANG, UPDATE, DAEMON, MAINTENANCE, MIGRATION, REBALANCE, SCHEDULED_JOB)
}
"""Rows by the kind, the first part of a workflow id."""


async def start(
    client: Client,
    row: StoredLifecycle[T],
    key: str,
    found: T,
    labels: Labels,
    policies: Policies,
    task_queue: str = "",
) -> None:
    """Make sure that the workflow of an object runs. A running workflow is signalled: it may be about to end, for an
    earlier object with the same key. Raises RPCError.

    The fairness key is the key by which Temporal distributes tasks that wait for a worker, so that no pool or cluster
    waits behind the backlog of another. Jobs have no priority there: it would rank above fairness, and one pool could
    put all its jobs in front.
    """
    start_workflow = partial(
        client.start_workflow,
        row.workflow.run,
        row.input(found, policies),
        id=row.workflow_id(key),
        task_queue=task_queue or row.task_queue(found),
        priority=Priority(priority_key=row.priority, fairness_key=row.fairness_key(found)),
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        task_timeout=WORKFLOW_TASK_TIMEOUT,
        rpc_timeout=RPC_TIMEOUT,
        static_summary=labels.summary,
        static_details=labels.details or None,
        search_attributes=labels.attributes,
        memo=labels.memo or None,
    )
    try:
        await start_workflow(id_conflict_policy=WorkflowIDConflictPolicy.FAIL)
    except WorkflowAlreadyStartedError:
        await start_workflow(id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING, start_signal="changed")
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:  # no worker of this version has registered an attribute
            await register_search_attributes(client)  # takes some seconds: the next attempt of the caller succeeds
        raise
