"""Thin typed client of the public API: stubs under the names of the wire, with defaults for every call.

    with Client("localhost:5397") as client:
        job_id = client.jobs.Create(request).jobId

Every call carries the headers that the original's servers require, and ends after ``timeout_s`` unless the caller sets
a timeout; watches and streams of requests end when the caller ends them. Errors are ``grpc.RpcError``; the caller has
to check for errors inside a response. Thread-safe.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import grpc

from peloton.api.limits import MESSAGE_SIZES, RETRY_AFTER
from peloton.errors import InvalidArgument

if TYPE_CHECKING:
    from peloton.api.v0.advice.advice_pb2_grpc import AdviceServiceStub
    from peloton.api.v0.bulk.bulk_pb2_grpc import BulkServiceStub
    from peloton.api.v0.explain.explain_pb2_grpc import ExplainServiceStub
    from peloton.api.v0.history.history_pb2_grpc import HistoryServiceStub
    from peloton.api.v0.host.svc.host_svc_pb2_grpc import HostServiceStub
    from peloton.api.v0.lookup.lookup_pb2_grpc import LookupServiceStub
    from peloton.api.v0.maintenance.maintenance_pb2_grpc import MaintenanceServiceStub
    from peloton.api.v0.migration.migration_pb2_grpc import MigrationServiceStub
    from peloton.api.v0.mover.mover_pb2_grpc import MoverServiceStub
    from peloton.api.v0.overview.overview_pb2_grpc import OverviewServiceStub
    from peloton.api.v0.rebalance.rebalance_pb2_grpc import RebalanceServiceStub
    from peloton.api.v0.schedule.schedule_pb2_grpc import ScheduleServiceStub
    from peloton.api.v0.short_names.job_pb2_grpc import JobManagerStub
    from peloton.api.v0.short_names.respool_pb2_grpc import ResourceManagerStub
    from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerStub
    from peloton.api.v0.table.table_pb2_grpc import JobTableServiceStub
    from peloton.api.v0.update.svc.update_svc_pb2_grpc import UpdateServiceStub
    from peloton.api.v0.volume.svc.volume_svc_pb2_grpc import VolumeServiceStub
    from peloton.api.v0.workers.workers_pb2_grpc import WorkerVersionServiceStub
    from peloton.api.v1alpha.admin.svc.admin_svc_pb2_grpc import AdminServiceStub
    from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceStub
    from peloton.api.v1alpha.pod.svc.pod_svc_pb2_grpc import PodServiceStub
    from peloton.api.v1alpha.watch.svc.watch_svc_pb2_grpc import WatchServiceStub

DEFAULT_ADDRESS = "localhost:5397"
DEFAULT_TIMEOUT_S = 20.0
CALLER = "peloton-cli"
TIMEOUT_S = 60.0

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


@dataclass(frozen=True)
class BusyRetry:
    """Repeats calls that a busy server refused and that may be repeated, up to ``seconds`` of ``clock`` after the first
    refusal. ``say`` is called with each refusal."""

    sleep: Callable[[float], None]
    say: Callable[[str], None]
    clock: Callable[[], float]
    seconds: float = TIMEOUT_S


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


T = TypeVar("T")


class Stub(Generic[T]):
    """The stub of a service as an attribute of the client, whose module is imported at its first use."""

    def __init__(self, service: str, module: str, streams_end: bool = True) -> None:
        self._service, self._module, self._streams_end = service, module, streams_end

    def __set_name__(self, owner: type[Client], name: str) -> None:
        self._name = name

    def __get__(self, client: Client, owner: type[Client]) -> T:
        [make] = [
            one for name, one in vars(import_module(f"peloton.api.{self._module}")).items() if name.endswith("Stub")
        ]
        stub: T = make(client.channel(self._service, self._streams_end))
        vars(client)[self._name] = stub  # it comes before this descriptor from now on
        return stub


class Client:
    """Stubs for the services of one Peloton installation.

    ``address`` may name several APIs, separated by commas: calls go round robin to available ones. ``overrides`` sets
    the address of a service (JOBMGR, RESMGR, HOSTMGR); the others are at ``address``. Without ``busy_retry`` a refusal
    of a busy server is raised at once.
    """

    jobs: Stub[JobManagerStub] = Stub(JOBMGR, "v0.short_names.job_pb2_grpc")
    tasks: Stub[TaskManagerStub] = Stub(JOBMGR, "v0.short_names.task_pb2_grpc")
    bulk: Stub[BulkServiceStub] = Stub(JOBMGR, "v0.bulk.bulk_pb2_grpc", streams_end=False)
    respools: Stub[ResourceManagerStub] = Stub(RESMGR, "v0.short_names.respool_pb2_grpc")
    explain: Stub[ExplainServiceStub] = Stub(RESMGR, "v0.explain.explain_pb2_grpc")
    hosts: Stub[HostServiceStub] = Stub(HOSTMGR, "v0.host.svc.host_svc_pb2_grpc")
    lookup: Stub[LookupServiceStub] = Stub(JOBMGR, "v0.lookup.lookup_pb2_grpc")
    job_table: Stub[JobTableServiceStub] = Stub(JOBMGR, "v0.table.table_pb2_grpc")
    history: Stub[HistoryServiceStub] = Stub(JOBMGR, "v0.history.history_pb2_grpc")
    updates: Stub[UpdateServiceStub] = Stub(JOBMGR, "v0.update.svc.update_svc_pb2_grpc")
    services: Stub[JobServiceStub] = Stub(JOBMGR, "v1alpha.job.stateless.svc.stateless_svc_pb2_grpc")
    pods: Stub[PodServiceStub] = Stub(JOBMGR, "v1alpha.pod.svc.pod_svc_pb2_grpc")
    watches: Stub[WatchServiceStub] = Stub(JOBMGR, "v1alpha.watch.svc.watch_svc_pb2_grpc", streams_end=False)
    admin: Stub[AdminServiceStub] = Stub(JOBMGR, "v1alpha.admin.svc.admin_svc_pb2_grpc")
    maintenance: Stub[MaintenanceServiceStub] = Stub(HOSTMGR, "v0.maintenance.maintenance_pb2_grpc")
    migrations: Stub[MigrationServiceStub] = Stub(JOBMGR, "v0.migration.migration_pb2_grpc")
    mover: Stub[MoverServiceStub] = Stub(RESMGR, "v0.mover.mover_pb2_grpc")
    overview: Stub[OverviewServiceStub] = Stub(JOBMGR, "v0.overview.overview_pb2_grpc")
    rebalances: Stub[RebalanceServiceStub] = Stub(HOSTMGR, "v0.rebalance.rebalance_pb2_grpc")
    worker_versions: Stub[WorkerVersionServiceStub] = Stub(JOBMGR, "v0.workers.workers_pb2_grpc")
    schedules: Stub[ScheduleServiceStub] = Stub(JOBMGR, "v0.schedule.schedule_pb2_grpc")
    advice: Stub[AdviceServiceStub] = Stub(HOSTMGR, "v0.advice.advice_pb2_grpc")
    volumes: Stub[VolumeServiceStub] = Stub(JOBMGR, "v0.volume.svc.volume_svc_pb2_grpc")

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        overrides: Mapping[str, str] | None = None,
        busy_retry: BusyRetry | None = None,
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.last_address = address  # address of the latest call, for error messages
        self._overrides = dict(overrides or {})
        self._busy_retry = busy_retry
        self._channels: dict[str, grpc.Channel] = {}

    def address_of(self, service: str) -> str:
        return self._overrides.get(service, self.address)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def channel(self, service: str, streams_end: bool = True) -> grpc.Channel:
        address = self.address_of(service)
        if address not in self._channels:
            self._channels[address] = grpc.insecure_channel(target(address), options=CHANNEL_OPTIONS)
        defaults = CallDefaults(service, self.timeout_s, streams_end, lambda: self._note(address), self._busy_retry)
        return grpc.intercept_channel(self._channels[address], defaults)

    def _note(self, address: str) -> None:
        self.last_address = address


class CallDetails(NamedTuple):
    """Details of a call for grpc, which requires only an object with these attributes."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


@dataclass(frozen=True)
class CallDefaults(
    grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor
):
    """Sets the timeout and the headers, and repeats calls with ``busy_retry``."""

    service: str
    timeout_s: float
    streams_end: bool
    on_call: Callable[[], None]
    busy_retry: BusyRetry | None = None

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return self.retry_while_busy(lambda: continuation(self.fill_in(client_call_details, self.timeout_s), request))

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self.fill_in(client_call_details, self.timeout_s if self.streams_end else None), request)

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """Repeat the call if its messages are no iterator, and so can be sent again."""
        timeout_s = self.timeout_s if self.streams_end else None

        def call() -> Any:
            return continuation(self.fill_in(client_call_details, timeout_s), iter(request_iterator))

        return call() if isinstance(request_iterator, Iterator) else self.retry_while_busy(call)

    def retry_while_busy(self, repeatable: Callable[[], Any]) -> Any:
        until_s: float | None = None
        while True:
            call = repeatable()
            wait_s = retry_after_s(call) if self.busy_retry else None
            if self.busy_retry is None or wait_s is None:
                return call
            now_s = self.busy_retry.clock()
            until_s = now_s + self.busy_retry.seconds if until_s is None else until_s
            if now_s + wait_s > until_s:
                return call
            self.busy_retry.say(call.details())
            self.busy_retry.sleep(wait_s)

    def fill_in(self, details: Any, timeout_s: float | None) -> CallDetails:
        self.on_call()
        return CallDetails(
            method=details.method,
            timeout=timeout_s if details.timeout is None else details.timeout,
            metadata=[
                *(details.metadata or ()),
                ("rpc-caller", CALLER),
                ("rpc-service", self.service),
                ("rpc-encoding", "proto"),
            ],
            credentials=details.credentials,
            wait_for_ready=getattr(details, "wait_for_ready", None),
            compression=getattr(details, "compression", None),
        )


def retry_after_s(call: Any) -> float | None:
    """Return the seconds after which a call that a busy server refused may be repeated; None for any other call."""
    if call.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    return next((int(value) / 1000 for key, value in call.trailing_metadata() or () if key == RETRY_AFTER), None)
