"""Composition of role worker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from temporalio.client import Client

from peloton.errors import InvalidArgument
from peloton.lifecycle.worker_ramp import Promotion
from peloton.model.workflow_trouble import FailingActivity
from services.roles.shared import Shared, bounds_of, host_managers_of, quotas_of, sdk_metrics_address
from services.temporal import connection as temporal_connection
from services.temporal.renewal import renewing
from services.temporal.task_queues import register_search_attributes
from services.temporal.workflow_labels import PoolPaths

if TYPE_CHECKING:
    from services.api.calls import Calls
    from services.api.channels import AsyncLeaderChannels
    from services.api.scheduled_jobs import ScheduledJobs

log = logging.getLogger(__name__)

TEMPORAL_RETRY_S = 0.5
LOG_EVERY_S = 10.0
"""Seconds between log lines while Temporal does not answer."""


async def run_worker(shared: Shared, stop: asyncio.Event) -> None:
    from peloton.scheduling.placement import FirstFitPlacer
    from services.api.calls import Calls
    from services.api.channels import AsyncLeaderChannels
    from services.resmgr.client import ResourceManagerClient
    from services.worker.cache import compute_cached_max
    from services.worker.polls import watching_polls
    from services.worker.worker import WorkerPorts, working

    promotion = Promotion(shared.settings.worker_promote)
    shared.health.note("worker", "Temporal does not answer")
    client = await _connect(shared, stop)
    if client is None:
        return
    storage, hosts = shared.storage, host_managers_of(shared)
    calls, api_channels = (
        Calls(),
        AsyncLeaderChannels(shared.channels.leader, shared.channels.clusters, shared.channels.transport),
    )
    ports = WorkerPorts(
        jobs=storage.jobs,
        pods=storage.pods,
        updates=storage.updates,
        resmgr=ResourceManagerClient(shared.channels.channel("resmgr")),
        hosts=hosts,
        placer=FirstFitPlacer(),
        controllers=hosts,
        maintenance=storage.maintenance,
        images=hosts,
        migrations=storage.migrations,
        daemons=hosts,
        rebalancers=hosts,
        rebalances=storage.rebalances,
        lockdowns=storage.lockdowns,
        scheduled=_make_scheduled_jobs(shared, api_channels, calls),
        policies=asdict(shared.policies),
    )

    def report(activities: Sequence[FailingActivity], count: int) -> None:
        storage.activity_reports.put(client.identity, activities, count, time.time_ns())

    note = partial(shared.health.note, "worker")
    cached_max = compute_cached_max(shared.settings.cached_workflows)
    async with (
        working(client, ports, cached_max, report, promotion) as workers,
        renewing(client, shared.read_temporal, workers),
        watching_polls(client, note),
    ):
        await stop.wait()
    await calls.close()
    await api_channels.close()


def _make_scheduled_jobs(shared: Shared, channels: AsyncLeaderChannels, calls: Calls) -> ScheduledJobs:
    """Return the job creator of schedules: it creates jobs as the api does, in a worker."""
    from services.api.hosts import RemoteHosts
    from services.api.new_jobs import NewJobs
    from services.api.quotas import Creators, PodQuota, Submissions
    from services.api.scheduled_jobs import ScheduledJobs
    from services.api.v1.lockdown import Locks
    from services.api.v1.specs import Specs
    from services.schedules import start_of

    storage, paths = shared.storage, PoolPaths(shared.storage.pools.specs)
    quotas = quotas_of(shared.settings)
    quota = PodQuota(quotas, storage.search, storage.jobs, Creators(quotas, storage.creators, calls), calls)
    new_jobs = NewJobs(storage.jobs, Specs(storage.pools, calls, RemoteHosts(channels)), calls, quota)
    locks, bounds = Locks(storage.lockdowns, calls), bounds_of(shared.settings)
    return ScheduledJobs(
        storage.jobs,
        new_jobs,
        locks,
        storage.search,
        bounds=bounds,
        calls=calls,
        submissions=Submissions(quotas),
        start_of=lambda job: start_of(job, paths(job.respool_id)),
    )


async def _connect(shared: Shared, stop: asyncio.Event) -> Client | None:
    """Return a connected client, which a worker requires to start; None when the stop came first."""
    logged_at_s = 0.0
    while not stop.is_set():
        try:
            client = await temporal_connection.connect(
                shared.read_temporal(),
                shared.identity,
                is_lazy=False,
                metrics_address=sdk_metrics_address(shared.settings),
                converter=shared.temporal.data_converter,
            )
            await register_search_attributes(client)
            return client
        except (InvalidArgument, RuntimeError, OSError) as error:
            if time.monotonic() - logged_at_s > LOG_EVERY_S:
                server = shared.temporal.service_client.config.target_host
                log.info("waiting for Temporal at %s: %s", server, error)
                logged_at_s = time.monotonic()
            await asyncio.sleep(TEMPORAL_RETRY_S)
    return None
