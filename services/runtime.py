"""Composition root: makes running roles from settings. Only this module and ``cluster_drivers`` know which adapter
implements which port.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporalio.client import Client
from temporalio.envconfig import ClientConnectConfig

from peloton.errors import PelotonError, Unavailable
from peloton.extras import require_extra
from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.worker_ramp import Promotion
from peloton.model.ids import hostmgr_role
from peloton.model.workflow_trouble import FailingActivity
from peloton.ports import ImagePrefetcher
from services import role_settings, telemetry, temporal, temporal_connection
from services.health import ProcessHealth, heartbeat, probing
from services.leader import LeaderChannels, LeaderElection
from services.leading import Leading, lead_when_elected
from services.plugins import load_plugins
from services.settings import Settings, load
from services.storage import schema_version
from services.storage.jobs.jobs import Jobs
from services.storage.storage import Storage
from services.sweep import Sweep
from services.wake_line import Rank
from services.wakers import Wakers
from services.workflow_labels import PoolPaths
from workflows.policies import Policies

if TYPE_CHECKING:
    from services.api.backlog import Bounds
    from services.api.calls import Calls
    from services.api.channels import AsyncLeaderChannels
    from services.api.scheduled_jobs import ScheduledJobs
    from services.hostmgr.advisor import AdvisorSettings
    from services.hostmgr.external_adoption import ExternalAdoption
    from services.hostmgr.federation import HostManagers
    from services.hostmgr.maintenance import MaintenanceController
    from services.hostmgr.manager import HostManagerCore
    from services.hostmgr.qos import QosController

log = logging.getLogger(__name__)

WEB, BRIDGE = "web", "aurorabridge"
EXTRAS = {WEB: ("web", "starlette"), BRIDGE: ("aurora", "thriftpy2")}
"""The roles that need an extra, each with its name and one of its packages."""
TEMPORAL_RETRY_S = 0.5
SERVER_GRACE_S = 2.0
GARBAGE = (20_000, 20, 50)
"""Thresholds of the garbage collector. With Python's defaults it scans long-lived pods and hosts again and again."""
SWITCH_S = 0.001
"""Seconds for which a thread of a host manager may hold the interpreter. A thread that sends pods releases it with each
of them, and by default would wait 5 ms for it each time while statuses arrive.
"""


@dataclass
class Shared:
    """Clients and settings that the roles of one process share."""

    settings: Settings
    storage: Storage
    temporal: Client
    temporal_config: ClientConnectConfig
    identity: str  # of this process, in histories
    channels: LeaderChannels
    health: ProcessHealth
    policies: Policies = field(default_factory=Policies)


def upgrade_schema(config: str = "") -> tuple[str, str]:
    """Upgrade the schema of the database that the settings name. Returns the versions before and after.

    Raises Unavailable, and InvalidSettings when the settings name no database.
    """
    from services.storage import migrate

    database = load(config=config).require_database()
    before = schema_version.of(database)
    migrate.upgrade(database)
    return before, schema_version.of(database)


def check_store(config: str = "") -> tuple[list[dict[str, Any]], int]:
    """Check the rows of the database that the settings name. Returns the findings and the number of rules.

    Raises Unavailable, and InvalidSettings when the settings name no database.
    """
    from services.storage.checks import CHECKS, Checks

    url = load(config=config).require_database()
    schema_version.check(url)
    db = schema_version.open_database(url)
    try:
        findings = list(Checks(db).findings())
    finally:
        db.close()
    found = [
        {
            "table": one.check.table,
            "rule": one.check.rule,
            "count": one.count,
            "first_ids": list(one.first_ids),
            "is_note": one.check.is_note,
        }
        for one in findings
    ]
    return found, len(CHECKS)


def run(roles: Sequence[str], upgrade: bool = False, config: str = "") -> None:
    """Run roles until SIGTERM or SIGINT. Ends the process with code 1 when one of them fails.

    Raises InvalidSettings before anything starts. ``config``: the file of settings.
    """
    settings = role_settings.load_for(roles, config=config)
    telemetry.configure(settings, "+".join(roles))
    failed = False
    try:
        asyncio.run(_run(settings, roles, upgrade))
    except* PelotonError as group:
        failed = True
        for error in group.exceptions:
            log.error("%s", error)
    if failed:
        sys.exit(1)


async def _run(settings: Settings, roles: Sequence[str], upgrade: bool) -> None:
    health = ProcessHealth(roles)
    async with AsyncExitStack() as stack:
        if settings.health_file:
            await stack.enter_async_context(heartbeat(health, Path(settings.health_file)))
        await _run_roles(settings, roles, upgrade, health)


async def _run_roles(settings: Settings, roles: Sequence[str], upgrade: bool, health: ProcessHealth) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    clients = [role for role in CLIENTS if role in roles]
    for role in clients:
        require_extra(*EXTRAS[role], f"role {role}")
    if len(clients) == len(set(roles)):
        async with asyncio.TaskGroup() as group:
            for role in clients:
                group.create_task(CLIENTS[role](settings, stop, partial(health.note, role, "")), name=role)
            await asyncio.sleep(0)
            _collect_garbage()
        return
    load_plugins()
    database = settings.require_database()
    config = temporal_connection.connect_config(settings.temporal, settings.temporal_namespace)
    identity = "+".join(dict.fromkeys(roles))
    if upgrade:
        from services.storage import migrate

        await asyncio.to_thread(migrate.upgrade, database)
    await asyncio.to_thread(schema_version.check, database)
    retries = Backoff(settings.retry_wait_s, settings.retry_wait_max_s)
    storage = Storage(database, pool_size=settings.database_pool, batch_backoff=retries)
    channels = LeaderChannels(storage.leases)
    try:
        client = await temporal_connection.connect(config, identity)
        policies = Policies(
            pod_placement_s=settings.pod_placement_timeout_s,
            gang_placement_s=settings.gang_placement_timeout_s,
            gang_launch_s=settings.gang_launch_timeout_s,
        )
        shared = Shared(
            settings, storage, client, config, identity=identity, channels=channels, health=health, policies=policies
        )
        probe = partial(storage.leases.leader, "resmgr", 0.0)
        async with probing(health, probe), asyncio.TaskGroup() as group:
            for role in dict.fromkeys(roles):
                group.create_task(ROLES[role](shared, stop), name=role)
            await asyncio.sleep(0)  # each begins with its imports
            _collect_garbage()
    finally:
        channels.close()
        storage.close()


def _collect_garbage() -> None:
    """Enable the garbage collector after the imports of the roles."""
    gc.freeze()  # to scan long-lived objects would take a quarter of each start, and most of each end
    gc.set_threshold(*GARBAGE)
    gc.enable()


async def run_api(shared: Shared, stop: asyncio.Event) -> None:
    from services.api import server
    from services.schedules import Schedules
    from services.temporal_watch import TemporalWatch
    from services.worker_admin import WorkerAdmin

    settings, promotion = shared.settings, Promotion(shared.settings.worker_promote)
    async with _wakers(shared, Rank.PEOPLE) as wakers:
        address = f"{settings.host}:{settings.port}"
        api = await server.start(
            shared.storage,
            wakers,
            shared.channels.leader,
            address,
            bounds=_bounds(settings),
            clusters=shared.channels.clusters,
            targets=_host_managers(shared),
            temporal=shared.temporal_config,
            workers=WorkerAdmin(shared.temporal, promotion),
            watch=TemporalWatch(shared.temporal),
            schedules=Schedules(shared.temporal, shared.policies),
        )
        log.info("API at %s", address)
        await _sweep(shared, wakers).once()  # jobs stored just before a crash have no workflow yet
        await wakers.wake_active()
        shared.health.note("api", "")
        deleting = asyncio.create_task(_end_deletions(shared.storage.jobs), name="deletions that were broken off")
        await stop.wait()
        deleting.cancel()
        await api.stop(SERVER_GRACE_S)


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
    storage, hosts = shared.storage, _host_managers(shared)
    calls, api_channels = Calls(), AsyncLeaderChannels(shared.channels.leader, shared.channels.clusters)
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
    async with working(client, ports, cached_max, report, promotion), watching_polls(client, note):
        await stop.wait()
    await calls.close()
    await api_channels.close()


def _bounds(settings: Settings) -> Bounds:
    from services.api.backlog import Bounds

    return Bounds(settings.jobs_paced, settings.jobs_waiting_max, settings.jobs_active_max, settings.pods_active_max)


def _make_scheduled_jobs(shared: Shared, channels: AsyncLeaderChannels, calls: Calls) -> ScheduledJobs:
    """Return the job creator of schedules: it creates jobs as the api does, in a worker."""
    from services.api.hosts import RemoteHosts
    from services.api.new_jobs import NewJobs
    from services.api.scheduled_jobs import ScheduledJobs
    from services.api.v1.lockdown import Locks
    from services.api.v1.specs import Specs
    from services.schedules import start_of

    storage, paths = shared.storage, PoolPaths(shared.storage.pools.specs)
    new_jobs = NewJobs(storage.jobs, Specs(storage.pools, calls, RemoteHosts(channels)), calls)
    locks, bounds = Locks(storage.lockdowns, calls), _bounds(shared.settings)
    return ScheduledJobs(
        storage.jobs,
        new_jobs,
        locks,
        storage.search,
        bounds=bounds,
        calls=calls,
        start_of=lambda job: start_of(job, paths(job.respool_id)),
    )


async def run_resmgr(shared: Shared, stop: asyncio.Event) -> None:
    from services.missing_workflows import MissingWorkflows
    from services.resmgr import server
    from services.resmgr.settings import LoopSettings, RecorderSettings, mover_settings
    from services.temporal_watch import TemporalWatch
    from services.worker_versions import VersionController
    from services.workflow_restarter import WorkflowRestarter

    settings, capacity, promotion = shared.settings, _host_managers(shared), Promotion(shared.settings.worker_promote)
    loop_settings = LoopSettings(
        entitlement_period_s=settings.entitlement_period_s,
        preempts=settings.preemption,
        preemption_period_s=settings.preemption_period_s,
        sustained_over_count=settings.preemption_rounds,
        checks_invariants=settings.check_invariants,
        backfill_s=settings.backfill_s,
    )
    async with _wakers(shared) as wakers:

        async def lead() -> Leading:
            running = await server.serve(
                shared.storage,
                wakers.jobs,
                capacity,
                f"{settings.host}:{settings.resmgr_port}",
                loop_settings,
                host_totals=capacity,
                mover_settings=mover_settings(settings),
                cluster_sums=capacity.sums,
                recorder_settings=RecorderSettings(settings.history_period_s),
                workflows=TemporalWatch(shared.temporal),
                direct_calls=settings.direct_calls,
            )
            sweep = _sweep(shared, wakers)
            await sweep.once()  # wake-ups of admitted pods may have died with a predecessor
            sweep.start()
            stored = shared.storage
            missing = MissingWorkflows(shared.temporal, stored.wakes.count_settled, stored.jobs.active_ids)
            versions = VersionController(shared.temporal, promotion)
            restarter = WorkflowRestarter(
                shared.temporal, wakers, missing=missing, current_version=lambda: versions.current
            )

            async def end() -> None:
                await sweep.close()
                await restarter.close()
                await versions.close()
                await running.stop()

            return Leading(running.port, end)

        await _lead(shared, "resmgr", stop, lead)


async def run_hostmgr(shared: Shared, stop: asyncio.Event) -> None:
    from services import host_monitors
    from services.cluster_drivers import cluster_driver_of, image_prefetcher_of, make_external_adoption
    from services.hostmgr.drain_watch import DrainWatch
    from services.hostmgr.image_prefetch import prefetcher
    from services.hostmgr.maintenance import MaintenanceController
    from services.hostmgr.manager import HostManagerCore, HostManagerSettings
    from services.hostmgr.qos import QosController
    from services.resmgr.client import ResourceManagerClient

    sys.setswitchinterval(SWITCH_S)
    settings, storage = shared.settings, shared.storage
    role = hostmgr_role(settings.cluster)
    qos_settings, advisor_settings = host_monitors.read_monitor_settings(settings)
    endpoint = prefetcher(settings.prefetch_url)
    evictor = ResourceManagerClient(shared.channels.channel("resmgr"))
    core_settings = HostManagerSettings(
        cluster=settings.cluster,
        lease_s=settings.host_lease_s,
        uses_host_pools=settings.host_pools,
        reserve_after_s=settings.host_reservation_after_s,
        reservation_s=settings.host_reservation_s,
        pods_api=settings.pods_api,
    )
    new_driver = cluster_driver_of(settings, storage.hosts, storage.external_pods)
    loop = asyncio.get_running_loop()
    async with _wakers(shared) as wakers:

        async def lead() -> Leading:
            watch = DrainWatch(wakers.pods, wakers)
            failed: asyncio.Future[None] = loop.create_future()
            give_up = partial(_fail, loop, failed)
            core = HostManagerCore(
                core_settings, storage, watch, new_driver(), give_up, evictor=evictor, daemons=wakers.daemons
            )
            adoption = make_external_adoption(settings, storage, core.driver, watch, evictor.job_why)
            maintenance = MaintenanceController(
                core,
                maintenance=storage.maintenance,
                pods=storage.host_pods,
                disrupts=storage.disruptions,
                host_pools=storage.host_pools,
                jobs=wakers.jobs,
                hosts=wakers,
                watch=watch,
                cluster=settings.cluster,
                share=settings.maintenance_share,
            )
            await _sweep(shared, wakers).once()  # wake-ups of reports may have died with a predecessor
            await asyncio.to_thread(core.start)
            await asyncio.to_thread(maintenance.start)
            qos = QosController(qos_settings, core, storage.host_pods, evictor, wakers.jobs)
            images = image_prefetcher_of(settings, core.driver, endpoint)
            return await _serve_hosts(
                shared,
                wakers,
                core,
                maintenance,
                qos=qos,
                advisor_settings=advisor_settings,
                images=images,
                adoption=adoption,
                failed=failed,
            )

        await _lead(shared, role, stop, lead)


async def _serve_hosts(
    shared: Shared,
    wakers: Wakers,
    core: HostManagerCore,
    maintenance: MaintenanceController,
    qos: QosController,
    advisor_settings: AdvisorSettings,
    images: ImagePrefetcher,
    adoption: ExternalAdoption | None,
    failed: asyncio.Future[None],
) -> Leading:
    """Serve a host manager that has started, with its periodic controllers."""
    from services import host_monitors
    from services.hostmgr.host_pool_controller import HostPoolController
    from services.hostmgr.rebalancer import Rebalancer
    from services.hostmgr.servicer import serve
    from services.hostmgr.views import ClusterViews

    settings, storage = shared.settings, shared.storage
    advisor, samples, latencies = host_monitors.advising(settings, advisor_settings, storage.jobs, core, qos)
    host_pools = None
    if settings.host_pools:
        deadline_s = settings.maintenance_deadline_s
        host_pools = HostPoolController(core, storage.host_pools, storage.host_pods, maintenance, deadline_s)
    rebalancer = Rebalancer(
        core.cache,
        storage.rebalances,
        settings.cluster,
        coming_back=storage.host_pods.coming_back,
        lifecycles=wakers.jobs,
        count_domains=core.count_domains,
        kill_evicted=core.kill_evicted,
    )
    server, port = serve(
        core,
        maintenance,
        images,
        samples.uses,
        f"{settings.host}:{settings.hostmgr_port}",
        deadline_s=settings.maintenance_deadline_s,
        rebalancer=rebalancer,
        advisor=advisor,
        views=ClusterViews(settings.cluster, core, advisor, samples.uses, storage.overview),
        host_pools=host_pools,
        direct_calls=settings.direct_calls,
    )
    for controller in (samples, host_pools, adoption):
        if controller is not None:
            controller.start()

    async def end() -> None:
        for source in (adoption, latencies, samples):
            if source is not None:
                await asyncio.to_thread(source.stop)
        await asyncio.to_thread(server.stop(SERVER_GRACE_S).wait)
        for part in (host_pools, maintenance, core):
            if part is not None:
                await asyncio.to_thread(part.stop)

    return Leading(port, end, failed)


async def _run_web(settings: Settings, stop: asyncio.Event, serves: Callable[[], None]) -> None:
    from services.web import server

    await server.run(settings, stop, serves)


async def _run_bridge(settings: Settings, stop: asyncio.Event, serves: Callable[[], None]) -> None:
    from services.aurorabridge import server

    await server.run(settings, stop, serves)


CLIENTS = {WEB: _run_web, BRIDGE: _run_bridge}
"""The roles that need the API alone."""


def _client(role: str) -> Callable[[Shared, asyncio.Event], Coroutine[Any, Any, None]]:
    return lambda shared, stop: CLIENTS[role](shared.settings, stop, partial(shared.health.note, role, ""))


def _fail(loop: asyncio.AbstractEventLoop, failed: asyncio.Future[None], why: str) -> None:
    """Make the future fail, from any thread."""

    def fail() -> None:
        if not failed.done():
            failed.set_exception(Unavailable(why))

    loop.call_soon_threadsafe(fail)


def _host_managers(shared: Shared) -> HostManagers:
    """Return the host managers of all clusters as one."""
    from services.hostmgr.client import HostManagerClient
    from services.hostmgr.federation import HostManagers

    channels = shared.channels
    return HostManagers(
        channels.clusters,
        lambda cluster: HostManagerClient(channels.cluster_channel(cluster)),
        shared.storage.hosts,
        shared.storage.host_pods,
    )


ROLES: dict[str, Callable[[Shared, asyncio.Event], Coroutine[Any, Any, None]]] = {
    "api": run_api,
    "worker": run_worker,
    "resmgr": run_resmgr,
    "hostmgr": run_hostmgr,
    WEB: _client(WEB),
    BRIDGE: _client(BRIDGE),
}


async def _lead(shared: Shared, role: str, stop: asyncio.Event, lead: Callable[[], Awaitable[Leading]]) -> None:
    """Stand by, lead, and resign."""
    election = LeaderElection(shared.storage.leases, role, shared.settings.leader_ttl_s)
    note = partial(shared.health.note, role.partition("/")[0])
    await lead_when_elected(election, role, shared.settings.advertised, stop, lead, note)


@asynccontextmanager
async def _wakers(shared: Shared, rank: Rank = Rank.CHANGE) -> AsyncIterator[Wakers]:
    wakers = Wakers(shared.temporal, shared.storage, shared.policies, rank=rank, cluster=shared.settings.cluster)
    try:
        yield wakers
    finally:
        await wakers.close()


def _sweep(shared: Shared, wakers: Wakers) -> Sweep:
    return Sweep(shared.storage.wakes, wakers.jobs.jobs_swept, lambda: wakers.jobs.backlog)


async def _end_deletions(jobs: Jobs) -> None:
    """Continue the deletions of jobs that an api began before it died. Deletions under way in another api may be among
    them.
    """
    try:
        for job_id in await asyncio.to_thread(jobs.half_deleted):
            log.info("resuming the deletion of job %s", job_id)
            await asyncio.to_thread(jobs.delete, job_id)
    except Exception as error:  # storage is unavailable: the next api that starts finds them
        log.warning("interrupted deletions not resumed, retrying: %s", error)


async def _connect(shared: Shared, stop: asyncio.Event) -> Client | None:
    """Return a connected client, which a worker requires to start; None when the stop came first."""
    said_at_s = 0.0
    while not stop.is_set():
        try:
            client = await temporal_connection.connect(shared.temporal_config, shared.identity, is_lazy=False)
            await temporal.register_search_attributes(client)
            return client
        except (RuntimeError, OSError) as error:
            if time.monotonic() - said_at_s > 10:
                log.info("waiting for Temporal at %s: %s", shared.temporal_config["target_host"], error)
                said_at_s = time.monotonic()
            await asyncio.sleep(TEMPORAL_RETRY_S)
    return None
