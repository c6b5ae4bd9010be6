"""The services of the public API as attributes of a client, the headers of their calls, and the address of a client.

The table has one row for each service. A client of either kind gets its stubs from it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import grpc
import grpc.aio

from peloton.api.limits import MESSAGE_SIZES
from peloton.client.credentials import TokenFile
from peloton.client.tls import Tls, channels_of, find_tls
from peloton.errors import InvalidArgument

if TYPE_CHECKING:
    from peloton.api.v0.access.access_pb2_grpc import AccessServiceAsyncStub, AccessServiceStub
    from peloton.api.v0.advice.advice_pb2_grpc import AdviceServiceAsyncStub, AdviceServiceStub
    from peloton.api.v0.audit.audit_pb2_grpc import AuditServiceAsyncStub, AuditServiceStub
    from peloton.api.v0.bulk.bulk_pb2_grpc import BulkServiceAsyncStub, BulkServiceStub
    from peloton.api.v0.explain.explain_pb2_grpc import ExplainServiceAsyncStub, ExplainServiceStub
    from peloton.api.v0.gang.gang_pb2_grpc import GangServiceAsyncStub, GangServiceStub
    from peloton.api.v0.history.history_pb2_grpc import HistoryServiceAsyncStub, HistoryServiceStub
    from peloton.api.v0.host.svc.host_svc_pb2_grpc import HostServiceAsyncStub, HostServiceStub
    from peloton.api.v0.lookup.lookup_pb2_grpc import LookupServiceAsyncStub, LookupServiceStub
    from peloton.api.v0.maintenance.maintenance_pb2_grpc import MaintenanceServiceAsyncStub, MaintenanceServiceStub
    from peloton.api.v0.migration.migration_pb2_grpc import MigrationServiceAsyncStub, MigrationServiceStub
    from peloton.api.v0.mover.mover_pb2_grpc import MoverServiceAsyncStub, MoverServiceStub
    from peloton.api.v0.overview.overview_pb2_grpc import OverviewServiceAsyncStub, OverviewServiceStub
    from peloton.api.v0.rebalance.rebalance_pb2_grpc import RebalanceServiceAsyncStub, RebalanceServiceStub
    from peloton.api.v0.retention.retention_pb2_grpc import RetentionServiceAsyncStub, RetentionServiceStub
    from peloton.api.v0.schedule.schedule_pb2_grpc import ScheduleServiceAsyncStub, ScheduleServiceStub
    from peloton.api.v0.short_names.job_pb2_grpc import JobManagerAsyncStub, JobManagerStub
    from peloton.api.v0.short_names.respool_pb2_grpc import ResourceManagerAsyncStub, ResourceManagerStub
    from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerAsyncStub, TaskManagerStub
    from peloton.api.v0.table.table_pb2_grpc import JobTableServiceAsyncStub, JobTableServiceStub
    from peloton.api.v0.update.svc.update_svc_pb2_grpc import UpdateServiceAsyncStub, UpdateServiceStub
    from peloton.api.v0.volume.svc.volume_svc_pb2_grpc import VolumeServiceAsyncStub, VolumeServiceStub
    from peloton.api.v0.workers.workers_pb2_grpc import WorkerVersionServiceAsyncStub, WorkerVersionServiceStub
    from peloton.api.v1alpha.admin.svc.admin_svc_pb2_grpc import AdminServiceAsyncStub, AdminServiceStub
    from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceAsyncStub, JobServiceStub
    from peloton.api.v1alpha.pod.svc.pod_svc_pb2_grpc import PodServiceAsyncStub, PodServiceStub
    from peloton.api.v1alpha.watch.svc.watch_svc_pb2_grpc import WatchServiceAsyncStub, WatchServiceStub

Metadata = Callable[[], Sequence[tuple[str, str]]]
"""Returns more headers of a call, such as a token; called for each."""

DEFAULT_ADDRESS = "localhost:5397"
DEFAULT_TIMEOUT_S = 20.0
CALLER = "peloton-cli"

JOBMGR = "peloton-jobmgr"
RESMGR = "peloton-resmgr"
HOSTMGR = "peloton-hostmgr"

CHANNEL_OPTIONS = [
    *MESSAGE_SIZES,
    ("grpc.enable_http_proxy", 0),
    # Reconnect soon after an outage, since users are waiting. The second value is the timeout of a connection attempt,
    # long enough for a server that has no cpu for a moment.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
]


def target(addresses: str) -> str:
    """Return the gRPC target of one address or several. gRPC takes several addresses as numbers only, so names are
    resolved here, once, and unresolvable ones are left out. Raises InvalidArgument."""
    each = [address for one in addresses.split(",") if (address := one.strip())]
    if not each:
        raise InvalidArgument(f"no address of Peloton in {addresses!r}: want HOST:PORT, or several with commas between")
    if "," not in addresses:
        return addresses
    found = []
    for address in each:
        host, _, port = address.rpartition(":")
        if not (host and port.isascii() and port.isdigit()):
            raise InvalidArgument(f"address {address!r} of {addresses!r}: want HOST:PORT")
        with suppress(OSError, UnicodeError):  # UnicodeError: an invalid name
            found.append(f"{socket.gethostbyname(host)}:{port}")
    return f"ipv4:{','.join(found)}" if found else each[0]


def headers(service: str) -> list[tuple[str, str]]:
    """Return the headers that the original's servers require."""
    return [("rpc-caller", CALLER), ("rpc-service", service), ("rpc-encoding", "proto")]


T = TypeVar("T")
A = TypeVar("A")


class OfThreads(Protocol):
    """A client whose calls block."""

    def channel(self, service: str, streams_end: bool = True) -> grpc.Channel: ...


class OfEventLoop(Protocol):
    """A client whose calls are awaited."""

    def channel(self, service: str, streams_end: bool = True) -> grpc.aio.Channel: ...


class Stub(Generic[T, A]):
    """The stub of a service as an attribute of a client, whose module is imported at its first use."""

    def __init__(self, service: str, module: str, streams_end: bool = True) -> None:
        self._service, self._module, self._streams_end = service, module, streams_end

    def __set_name__(self, owner: type[Services], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, client: OfThreads, owner: type[Any]) -> T: ...
    @overload
    def __get__(self, client: OfEventLoop, owner: type[Any]) -> A: ...
    def __get__(self, client: Any, owner: type[Any]) -> Any:
        [make] = [
            one for name, one in vars(import_module(f"peloton.api.{self._module}")).items() if name.endswith("Stub")
        ]
        stub = make(client.channel(self._service, self._streams_end))
        vars(client)[self._name] = stub  # it comes before this descriptor from now on
        return stub


class Services:
    """Stubs of all services, and the addresses to which their calls go."""

    jobs: Stub[JobManagerStub, JobManagerAsyncStub] = Stub(JOBMGR, "v0.short_names.job_pb2_grpc")
    tasks: Stub[TaskManagerStub, TaskManagerAsyncStub] = Stub(JOBMGR, "v0.short_names.task_pb2_grpc")
    bulk: Stub[BulkServiceStub, BulkServiceAsyncStub] = Stub(JOBMGR, "v0.bulk.bulk_pb2_grpc", streams_end=False)
    respools: Stub[ResourceManagerStub, ResourceManagerAsyncStub] = Stub(RESMGR, "v0.short_names.respool_pb2_grpc")
    explain: Stub[ExplainServiceStub, ExplainServiceAsyncStub] = Stub(RESMGR, "v0.explain.explain_pb2_grpc")
    hosts: Stub[HostServiceStub, HostServiceAsyncStub] = Stub(HOSTMGR, "v0.host.svc.host_svc_pb2_grpc")
    lookup: Stub[LookupServiceStub, LookupServiceAsyncStub] = Stub(JOBMGR, "v0.lookup.lookup_pb2_grpc")
    job_table: Stub[JobTableServiceStub, JobTableServiceAsyncStub] = Stub(JOBMGR, "v0.table.table_pb2_grpc")
    gangs: Stub[GangServiceStub, GangServiceAsyncStub] = Stub(JOBMGR, "v0.gang.gang_pb2_grpc")
    history: Stub[HistoryServiceStub, HistoryServiceAsyncStub] = Stub(JOBMGR, "v0.history.history_pb2_grpc")
    updates: Stub[UpdateServiceStub, UpdateServiceAsyncStub] = Stub(JOBMGR, "v0.update.svc.update_svc_pb2_grpc")
    services: Stub[JobServiceStub, JobServiceAsyncStub] = Stub(
        JOBMGR, "v1alpha.job.stateless.svc.stateless_svc_pb2_grpc"
    )
    pods: Stub[PodServiceStub, PodServiceAsyncStub] = Stub(JOBMGR, "v1alpha.pod.svc.pod_svc_pb2_grpc")
    watches: Stub[WatchServiceStub, WatchServiceAsyncStub] = Stub(
        JOBMGR, "v1alpha.watch.svc.watch_svc_pb2_grpc", streams_end=False
    )
    admin: Stub[AdminServiceStub, AdminServiceAsyncStub] = Stub(JOBMGR, "v1alpha.admin.svc.admin_svc_pb2_grpc")
    maintenance: Stub[MaintenanceServiceStub, MaintenanceServiceAsyncStub] = Stub(
        HOSTMGR, "v0.maintenance.maintenance_pb2_grpc"
    )
    migrations: Stub[MigrationServiceStub, MigrationServiceAsyncStub] = Stub(JOBMGR, "v0.migration.migration_pb2_grpc")
    mover: Stub[MoverServiceStub, MoverServiceAsyncStub] = Stub(RESMGR, "v0.mover.mover_pb2_grpc")
    retention: Stub[RetentionServiceStub, RetentionServiceAsyncStub] = Stub(RESMGR, "v0.retention.retention_pb2_grpc")
    overview: Stub[OverviewServiceStub, OverviewServiceAsyncStub] = Stub(JOBMGR, "v0.overview.overview_pb2_grpc")
    rebalances: Stub[RebalanceServiceStub, RebalanceServiceAsyncStub] = Stub(HOSTMGR, "v0.rebalance.rebalance_pb2_grpc")
    worker_versions: Stub[WorkerVersionServiceStub, WorkerVersionServiceAsyncStub] = Stub(
        JOBMGR, "v0.workers.workers_pb2_grpc"
    )
    schedules: Stub[ScheduleServiceStub, ScheduleServiceAsyncStub] = Stub(JOBMGR, "v0.schedule.schedule_pb2_grpc")
    access: Stub[AccessServiceStub, AccessServiceAsyncStub] = Stub(JOBMGR, "v0.access.access_pb2_grpc")
    audit: Stub[AuditServiceStub, AuditServiceAsyncStub] = Stub(JOBMGR, "v0.audit.audit_pb2_grpc")
    advice: Stub[AdviceServiceStub, AdviceServiceAsyncStub] = Stub(HOSTMGR, "v0.advice.advice_pb2_grpc")
    volumes: Stub[VolumeServiceStub, VolumeServiceAsyncStub] = Stub(JOBMGR, "v0.volume.svc.volume_svc_pb2_grpc")

    def __init__(
        self,
        address: str,
        timeout_s: float,
        overrides: Mapping[str, str] | None,
        tls: Tls | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.last_address = address  # address of the latest call, for error messages
        self._overrides = dict(overrides or {})
        self._metadata = metadata or (lambda: ())
        self.opens = channels_of(tls or find_tls(address))

    @property
    def renews(self) -> bool:
        """Return whether the headers of the next call will block, since they renew a token."""
        return isinstance(self._metadata, TokenFile) and self._metadata.is_due()

    def headers_of(self, service: str) -> list[tuple[str, str]]:
        """Return the headers of a call of a service."""
        return [*headers(service), *self._metadata()]

    def address_of(self, service: str) -> str:
        return self._overrides.get(service, self.address)
