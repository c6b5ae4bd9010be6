"""Worker process, which runs workflows, and activities with their ports."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import getmembers, ismethod
from typing import Any

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Interceptor, UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig

from activities.admission import AdmissionActivities
from activities.daemon import DaemonActivities
from activities.images import ImageActivities
from activities.launch import LaunchActivities
from activities.maintenance import MaintenanceActivities
from activities.migration import MigrationActivities
from activities.placement import PlacementActivities
from activities.policies import PolicyActivities
from activities.rebalance import RebalanceActivities
from activities.records import RecordsActivities
from activities.requests import RequestActivities
from activities.schedule import ScheduleActivities
from activities.settling import SettlingActivities
from peloton.lifecycle.worker_ramp import Promotion
from peloton.ports import (
    ClusterRebalancers,
    DaemonController,
    HostManager,
    ImagePrefetcher,
    JobRecords,
    Lockdowns,
    MaintenanceControllers,
    MaintenanceRecords,
    MigrationRecords,
    Placer,
    PodRecords,
    RebalanceRecords,
    ResourceManager,
    ScheduledJobs,
    UpdateRecords,
)
from services.temporal.task_queues import BATCH_QUEUE, MAINTENANCE_QUEUE, SERVICE_QUEUE
from services.temporal.worker_fleet import DEPLOYMENT
from services.temporal.worker_versions import VersionClaim
from services.wakers.lifecycles import LIFECYCLES
from services.worker.attempts import Attempts, Report, reporting
from services.worker.build import build_id
from services.worker.cache import CACHED_MIN
from workflows.job_ends import EndsInSignals
from workflows.policies import long_queue

log = logging.getLogger(__name__)

STICKY_S, STICKY_USUAL_S = {SERVICE_QUEUE: 4.0, MAINTENANCE_QUEUE: 4.0}, 10.0
"""Seconds after which the workflows of a dead worker move to another one. A moved workflow is replayed from its first
event, so an overloaded worker must not lose its workflows and add load. The time is longer for batch jobs, many of
which arrive at once, and shorter where a user waits, such as for the stop of a service.
"""
NEW_SHARE = 0.6
"""Share of the polls for workflows that no worker has cached. Under load, new jobs start before older ones update their
counts.
"""
SLOTS = {BATCH_QUEUE: 16, SERVICE_QUEUE: 10, MAINTENANCE_QUEUE: 4}
"""Maximum of concurrent workflow tasks, activities and local activities for each queue. Tasks are better queued in the
server, because a task that waits in the worker times out after 5 s. More threads would not help activities, which wait
for storage and RPCs.
"""
LONG_SLOTS = 8
"""Concurrent activities that take minutes (``policies.long_queue``), for each queue."""
SHUTDOWN_GRACE = timedelta(seconds=10)
"""Time for activities to end by themselves after the process receives a stop signal. They are cancelled afterwards."""


@dataclass(frozen=True, kw_only=True)
class WorkerPorts:
    jobs: JobRecords
    pods: PodRecords
    updates: UpdateRecords
    resmgr: ResourceManager
    hosts: HostManager
    placer: Placer
    controllers: MaintenanceControllers
    maintenance: MaintenanceRecords
    images: ImagePrefetcher
    migrations: MigrationRecords
    daemons: DaemonController
    rebalancers: ClusterRebalancers
    rebalances: RebalanceRecords
    lockdowns: Lockdowns
    scheduled: ScheduledJobs
    policies: Mapping[str, float] = field(default_factory=dict)  # policies of the installation, by name


def activities_on(ports: WorkerPorts, now_ns: Callable[[], int] = time.time_ns) -> list[Callable[..., Any]]:
    """Return every activity of Peloton's workflows, bound to its ports."""
    owners = (
        RecordsActivities(ports.jobs, ports.pods, ports.updates, now_ns),
        SettlingActivities(ports.jobs, ports.pods, ports.resmgr, ports.hosts, now_ns),
        RequestActivities(ports.jobs, ports.updates, ports.lockdowns, now_ns),
        AdmissionActivities(ports.resmgr),
        PlacementActivities(ports.pods, ports.hosts, ports.resmgr, ports.placer),
        LaunchActivities(ports.hosts),
        MaintenanceActivities(ports.controllers, ports.maintenance),
        ImageActivities(ports.updates, ports.images),
        DaemonActivities(ports.jobs, ports.daemons, ports.resmgr),
        MigrationActivities(ports.migrations),
        RebalanceActivities(ports.rebalancers, ports.rebalances),
        ScheduleActivities(ports.jobs, ports.scheduled),
        PolicyActivities(ports.policies),
    )
    return [method for owner in owners for _, method in getmembers(owner, is_activity)]


def is_activity(member: object) -> bool:
    return ismethod(member) and hasattr(member, "__temporal_activity_definition")


@asynccontextmanager
async def working(
    client: Client, ports: WorkerPorts, cached_max: int, report: Report, promotion: Promotion = Promotion.AUTO
) -> AsyncIterator[list[Worker]]:
    """Run the workers of this version of the code, and yield them. It becomes the current version if no other version
    can run workflows and ``promotion`` permits it. ``report`` receives repeatedly failing activities.
    """
    claim, attempts = VersionClaim(client, build_id(), promotion), Attempts()
    try:
        await claim.note_start()
        workers = build_workers(client, ports, build=build_id(), cached_max=cached_max, attempts=attempts)
        async with run_workers(workers), reporting(attempts, report):
            server = client.service_client.config.target_host
            log.info("worker of version %s polls task queues %s at %s", build_id(), ", ".join(SLOTS), server)
            log.info("worker caches at most %d workflows of each queue", cached_max)
            yield workers
            await claim.close_in_order()
    finally:
        await claim.close()


@asynccontextmanager
async def run_workers(workers: Sequence[Worker]) -> AsyncIterator[None]:
    """Run the workers until the block ends, and then stop all of them concurrently."""
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        try:
            yield
        finally:
            await asyncio.gather(*(worker.shutdown() for worker in workers))


def build_workers(
    client: Client,
    ports: WorkerPorts,
    queues: Mapping[str, int] = SLOTS,
    *,
    build: str = "",
    cached_max: int = CACHED_MIN,
    attempts: Attempts | None = None,
) -> list[Worker]:
    """Build two workers for each task queue, so that a backlog of one takes no slot of the other: one for workflows and
    their short activities, one for activities that take minutes. ``queues`` holds the slots of the first.

    Workflows run unsandboxed: tests replay them in the sandbox, which fails what is not deterministic. ``build`` is the
    version of the code, to which runs are pinned; without it, workers take only unversioned runs. ``cached_max`` is the
    number of workflows of a queue that stay in memory."""
    version = WorkerDeploymentVersion(DEPLOYMENT if build else "", build or "unversioned")
    pinned = VersioningBehavior.PINNED if build else VersioningBehavior.UNSPECIFIED
    deployment = WorkerDeploymentConfig(version, bool(build), pinned)
    activities = activities_on(ports)
    interceptors: list[Interceptor] = [attempts or Attempts(), EndsInSignals()]
    return [
        worker
        for queue, slots in queues.items()
        for worker in (
            Worker(
                client,
                task_queue=queue,
                workflows=[row.workflow for row in LIFECYCLES.values()],
                activities=activities,
                workflow_runner=UnsandboxedWorkflowRunner(),
                activity_executor=ThreadPoolExecutor(2 * slots, thread_name_prefix="activity"),  # local ones, too
                max_cached_workflows=cached_max,
                max_concurrent_workflow_tasks=slots,
                max_concurrent_activities=slots,
                max_concurrent_local_activities=slots,
                sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY_S.get(queue, STICKY_USUAL_S)),
                nonsticky_to_sticky_poll_ratio=NEW_SHARE,
                graceful_shutdown_timeout=SHUTDOWN_GRACE,
                deployment_config=deployment,
                interceptors=interceptors,
            ),
            Worker(
                client,
                task_queue=long_queue(queue),
                activities=activities,
                activity_executor=ThreadPoolExecutor(LONG_SLOTS, thread_name_prefix="long-activity"),
                max_concurrent_activities=LONG_SLOTS,
                graceful_shutdown_timeout=SHUTDOWN_GRACE,
                deployment_config=deployment,
                interceptors=interceptors,
            ),
        )
    ]
