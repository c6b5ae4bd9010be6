"""Api process: every public service on one port.

Served here: v0 JobManager and TaskManager under all their names, UpdateService and VolumeService; Peloton's
BulkService, GangService, LookupService, JobTableService, HistoryService, MigrationService, ScheduleService,
AccessService, AuditService and WorkerVersionService;
v1alpha JobService, PodService, VolumeService, WatchService, AdminService, and ResourcePoolService by way of v0;
DisableKillTasks of the original's private InternalHostService; for other roles BulkReads and the lease of the Aurora
bridge's publisher, and reports of processes; health and reflection.

Passed through: v0 ResourceManager, Peloton's ExplainService and RetentionService to the resource manager, HostService
of both versions and Peloton's MaintenanceService, RebalanceService, AdviceService to the host manager. Other private
calls of the original are refused by name; gRPC returns UNIMPLEMENTED for all others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from peloton.api.service_names import (
    ACCESS_SERVICE,
    ADMIN_SERVICE,
    ADVICE_SERVICE,
    AUDIT_SERVICE,
    BULK_SERVICE,
    EXPLAIN_SERVICE,
    GANG_SERVICE,
    HISTORY_SERVICE,
    HOST_SERVICE,
    HOST_SERVICE_V1,
    INTERNAL_HOST_SERVICE,
    JOB_MANAGER,
    JOB_SERVICE,
    JOB_TABLE_SERVICE,
    LOOKUP_SERVICE,
    MAINTENANCE_SERVICE,
    MIGRATION_SERVICE,
    MOVER_SERVICE,
    OVERVIEW_SERVICE,
    POD_SERVICE,
    REBALANCE_SERVICE,
    RESOURCE_MANAGER,
    RESPOOL_SERVICE,
    RETENTION_SERVICE,
    SCHEDULE_SERVICE,
    SERVED,
    TASK_MANAGER,
    UPDATE_SERVICE,
    VOLUME_SERVICE,
    VOLUME_SERVICE_V1,
    WATCH_SERVICE,
    WORKER_VERSION_SERVICE,
    add_under_all_names,
)
from services.access.access import Access
from services.access.ended_sessions import EndedSessions
from services.access.gate import Authorize, Identify
from services.access.methods import make_rules
from services.access.pools import PoolFinder
from services.access.quotas import NO_QUOTAS, Quotas
from services.access.redaction_gate import Redact
from services.access.service import AccessService
from services.access.shares import Share
from services.api.access_records import AccessRecords
from services.api.backlog import BacklogGate, Bounds
from services.api.bulk_reads import BULK_READS, BulkReads
from services.api.bulk_service import BulkService
from services.api.calls import Calls
from services.api.channels import AsyncLeaderChannels, ClusterLookup, LeaderLookup
from services.api.cluster_services import ClusterServices
from services.api.event_publisher import NAME as EVENT_PUBLISHER
from services.api.event_publisher import EventPublisher
from services.api.forward import RESMGR, ForwardedServices
from services.api.gang_service import WAITING_MAX, GangService
from services.api.history_service import HistoryService
from services.api.hosts import Hosts, RemoteHosts
from services.api.internal_host_service import InternalHostService
from services.api.job_manager import JobManager
from services.api.job_table_service import JobTableService
from services.api.lookup_service import LookupService
from services.api.migration_service import MigrationService, NoTargets, Targets
from services.api.overview_service import OverviewService, WatchesTemporal
from services.api.pending_reasons import PendingReasons
from services.api.private_calls import REFUSED, PrivateCalls
from services.api.processes import NAME as PROCESSES
from services.api.processes import Processes
from services.api.quotas import Creators, PodQuota, QuotaGate, Submissions
from services.api.rebalance_service import RebalanceService
from services.api.schedule_service import Schedules, ScheduleService
from services.api.servicer import Backend, Servicer
from services.api.task_manager import TaskManager
from services.api.update_service import UpdateService
from services.api.v1.admin_service import AdminService
from services.api.v1.job_service import JobService
from services.api.v1.lockdown import LockdownGate, Locks
from services.api.v1.pod_service import PodService
from services.api.v1.respool_service import ResourcePoolService
from services.api.v1.specs import Specs
from services.api.v1.watch_changes import ChangeReader
from services.api.v1.watch_hub import CLIENTS_MAX, WatchHub
from services.api.v1.watch_service import WatchService
from services.api.volume_service import VolumeService, VolumeServiceV1
from services.api.wake import Wake, Wakers
from services.api.worker_version_service import NoWorkers, Workers, WorkerVersionService
from services.audit.gate import Audit, AuditUnidentified
from services.audit.recorder import Recorder
from services.audit.service import AuditService
from services.servers.grpc_bounds import Receive
from services.servers.grpc_requests import SERVER_OPTIONS, Requests
from services.servers.grpc_status import ErrorsToStatus
from services.servers.role_surface import roles_only_in
from services.storage.storage import Storage
from services.telemetry.calls import measure_calls
from services.tls.transport import PLAINTEXT, Transport

log = logging.getLogger(__name__)

RPCS_MAX = 1_000 + CLIENTS_MAX + WAITING_MAX
"""Maximum number of concurrent calls and watches; gRPC returns RESOURCE_EXHAUSTED beyond it."""
DRAIN_S = 5.0

VOLUME_SERVICES: tuple[tuple[type[Servicer], tuple[str, ...]], ...] = (
    (VolumeService, VOLUME_SERVICE),
    (VolumeServiceV1, VOLUME_SERVICE_V1),
)
LOCKING_SERVICES = ((AdminService, ADMIN_SERVICE), (InternalHostService, INTERNAL_HOST_SERVICE))
HOSTMGR_SERVICES = (*HOST_SERVICE, *HOST_SERVICE_V1, *MAINTENANCE_SERVICE, *ADVICE_SERVICE)
ABOUT_HOSTS = {name: name for name in HOSTMGR_SERVICES} | dict(zip(HOST_SERVICE_V1, HOST_SERVICE, strict=True))
FOR_ROLES = (*BULK_READS, EVENT_PUBLISHER, PROCESSES)
"""Private services of the api."""
Gates = Sequence[grpc.aio.ServerInterceptor]
OPTIONS = (
    *SERVER_OPTIONS,
    ("grpc.so_reuseport", 0),  # a second api on a used port is an error, not a second listener
)


@dataclass(frozen=True)
class ApiServer:
    """Running server; ``port`` is the bound one."""

    port: int
    _server: grpc.aio.Server
    _health: Any
    _calls: Calls
    _channels: AsyncLeaderChannels
    _watches: WatchHub
    _bulk: BulkService
    _recorder: Recorder | None

    async def stop(self, grace_s: float = DRAIN_S) -> None:
        """Reject new calls, let calls in flight end within ``grace_s``, then wait for committed writes."""
        await self._health.enter_graceful_shutdown()
        await self._watches.close()  # watches do not end by themselves
        await self._server.stop(grace_s)
        await self._bulk.close()
        if self._recorder is not None:
            await self._recorder.close()
        await self._calls.close()
        await self._channels.close()

    async def wait_for_termination(self) -> None:
        await self._server.wait_for_termination()


async def start(
    storage: Storage,
    wakers: Wakers,
    leader: LeaderLookup,
    address: str,
    hosts: Hosts | None = None,
    bounds: Bounds | None = None,
    clusters: ClusterLookup = dict,
    targets: Targets | None = None,
    temporal: Mapping[str, object] = MappingProxyType({}),
    workers: Workers | None = None,
    watch: WatchesTemporal | None = None,
    schedules: Schedules | None = None,
    transport: Transport = PLAINTEXT,
    access: Access | None = None,
    recorder: Recorder | None = None,
    quotas: Quotas = NO_QUOTAS,
) -> ApiServer:
    """Serve on ``address`` (``host:port``, port 0 for any free one). Raises OSError when it is in use.

    ``leader`` finds the leader of the role ``resmgr``, and ``clusters`` the host managers, which ``hosts`` replaces.
    ``bounds`` limit the backlog, ``quotas`` users; ``watch``, ``workers``, ``schedules`` call Temporal. ``transport``
    is that of all channels and ports. Without ``access`` the cluster asks for no credentials."""
    calls, channels, bounds = Calls(), AsyncLeaderChannels(leader, clusters, transport), bounds or Bounds()
    hosts = hosts or RemoteHosts(channels)
    specs, locks = Specs(storage.pools, calls, hosts), Locks(storage.lockdowns, calls)
    watches, backlog = WatchHub(ChangeReader(storage), calls), BacklogGate(storage.search, calls, bounds)
    gates = [QuotaGate(Submissions(quotas)), LockdownGate(locks), backlog]
    guard = Guard(access, make_finder(storage, calls, schedules), recorder)
    server = _make_server(roles_only_in(FOR_ROLES, transport), guard, gates)
    quota = PodQuota(quotas, storage.search, storage.jobs, Creators(quotas, storage.creators, calls), calls)
    backend = Backend(storage, calls, hosts, Wake(wakers), PendingReasons(channels), quota)
    jobs, bulk = JobManager(backend, specs), BulkService(backend, specs)
    of_hosts = ClusterServices(ABOUT_HOSTS, channels, lambda names: storage.hosts.clusters_of(names))
    moves = RebalanceService(storage.rebalances, of_hosts.answer, channels.clusters, calls, wakers.rebalances_changed)
    overview = OverviewService(
        storage, channels, calls, temporal, watch=watch, bounds=bounds, expires_at=transport.expires_at
    )
    servicers: tuple[tuple[object, tuple[str, ...]], ...] = (
        (AccessService(access, EndedSessions(storage.ended_sessions, calls.run), quotas), ACCESS_SERVICE),
        (AuditService(storage.audit, calls), AUDIT_SERVICE),
        (jobs, JOB_MANAGER),
        (TaskManager(backend), TASK_MANAGER),
        (bulk, BULK_SERVICE),
        (MigrationService(storage, targets or NoTargets(), calls, wakers.migrations_changed), MIGRATION_SERVICE),
        (moves, REBALANCE_SERVICE),
        (overview, OVERVIEW_SERVICE),
        (WorkerVersionService(workers or NoWorkers(), calls), WORKER_VERSION_SERVICE),
        (LookupService(storage.search, storage.pools, storage.hosts, calls), LOOKUP_SERVICE),
        (JobTableService(storage, calls, channels), JOB_TABLE_SERVICE),
        (ScheduleService(schedules, jobs.new_jobs, storage.pools, calls), SCHEDULE_SERVICE),
        (GangService(storage.jobs, storage.pods, calls), GANG_SERVICE),
        (HistoryService(storage.history, storage.pools, clusters, calls), HISTORY_SERVICE),
        (UpdateService(backend, specs), UPDATE_SERVICE),
        *((service(backend), names) for service, names in VOLUME_SERVICES),
        (JobService(backend, specs), JOB_SERVICE),
        (PodService(backend), POD_SERVICE),
        (WatchService(watches), WATCH_SERVICE),
        *((service(locks, calls), names) for service, names in LOCKING_SERVICES),
        (ResourcePoolService(channels), RESPOOL_SERVICE),
        *((BulkReads(storage, calls), BULK_READS), (Processes(storage.processes, calls), (PROCESSES,))),
        (EventPublisher(storage.leases, storage.watch_log, calls), (EVENT_PUBLISHER,)),
    )
    for servicer, names in servicers:
        add_under_all_names(server, servicer, names)
    server.add_generic_rpc_handlers((_make_forwarding(channels, jobs), of_hosts, PrivateCalls()))
    port = await _bind(transport, server, address, bulk.close, channels.close)
    checks = await _begin(server, recorder)
    log.info("api listens on %s, port %d", address, port)
    return ApiServer(port, server, checks, calls, _channels=channels, _watches=watches, _bulk=bulk, _recorder=recorder)


def _make_forwarding(channels: AsyncLeaderChannels, jobs: JobManager) -> ForwardedServices:
    roles = dict.fromkeys((*RESOURCE_MANAGER, *EXPLAIN_SERVICE, *MOVER_SERVICE, *RETENTION_SERVICE), RESMGR)
    return ForwardedServices(roles, channels, {f"/{name}/JobPlan": jobs.check_plan for name in EXPLAIN_SERVICE})


async def _begin(server: grpc.aio.Server, recorder: Recorder | None) -> Any:
    """Start the server and the audit log, and return the health servicer, which reports all services as serving."""
    health_servicer = _add_health_and_reflection(server)
    if recorder is not None:
        recorder.start()
    await server.start()
    await asyncio.gather(*(health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING) for name in ("", *SERVED)))
    return health_servicer


async def _bind(
    transport: Transport, server: grpc.aio.Server, address: str, *ends: Callable[[], Awaitable[None]]
) -> int:
    """Return the port. Raises OSError after ``ends`` when the address is in use."""
    try:
        return transport.bind_for_clients(server, address)
    except RuntimeError as error:
        await asyncio.gather(*(end() for end in ends))
        raise OSError(f"the api cannot listen on {address}: {error}") from error


@dataclass(frozen=True)
class Guard:
    """Identification of callers, the decision what they may do, and the log of what they did."""

    access: Access | None
    finder: PoolFinder
    recorder: Recorder | None

    def interceptors(self) -> Gates:
        """Return the interceptors, with those that read requests, from the outermost on."""
        rules = make_rules(REFUSED)
        audit = Audit(self.recorder, rules)
        unidentified = AuditUnidentified(self.recorder if self.access is not None else None)
        identify, authorize = Identify(self.access, rules), Authorize(self.access, rules, self.finder)
        share = Share(self.access is not None, rules, RPCS_MAX)
        return unidentified, identify, share, Requests(), audit, authorize, Redact(self.access, rules, self.finder)


def _make_server(for_roles: Gates, guard: Guard, gates: Gates) -> grpc.aio.Server:
    around = [Receive(), *for_roles, *measure_calls(), ErrorsToStatus("api"), *guard.interceptors(), *gates]
    return grpc.aio.server(interceptors=around, options=list(OPTIONS), maximum_concurrent_rpcs=RPCS_MAX)


def make_finder(storage: Storage, calls: Calls, schedules: Schedules | None) -> PoolFinder:
    """Return what finds the pools of the objects that requests name."""

    async def pool_of_schedule(name: str) -> tuple[str, str]:
        found = await schedules.get(name, 1) if schedules is not None else None
        return (found.pool_id, found.pool_path) if found is not None else ("", "")

    return PoolFinder(AccessRecords(storage), calls.run, pool_of_schedule)


def _add_health_and_reflection(server: grpc.aio.Server) -> Any:
    """Return the health servicer, which reports nothing as serving yet."""
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection((*SERVED, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return health_servicer
