"""Services of the public API, which role api serves by itself or through the leaders of other roles, and their names.

Existing clients call three services of v0 by a name without the version, such as ``peloton.api.job.JobManager``. The
name that follows from the package of the .proto file, and a third one with ``.svc``, are served as well. All names are
declared in .proto files, so reflection lists them and stubs exist for each.
"""

# ruff: noqa: F401 - the imported modules declare the services in the descriptor pool, and import their messages
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

import peloton.api.v0.access.access_pb2
import peloton.api.v0.advice.advice_pb2
import peloton.api.v0.audit.audit_pb2
import peloton.api.v0.bulk.bulk_pb2
import peloton.api.v0.explain.explain_pb2
import peloton.api.v0.gang.gang_pb2
import peloton.api.v0.history.history_pb2
import peloton.api.v0.host.internal_pb2
import peloton.api.v0.host.svc.host_svc_pb2
import peloton.api.v0.job.svc.job_svc_pb2
import peloton.api.v0.lookup.lookup_pb2
import peloton.api.v0.maintenance.maintenance_pb2
import peloton.api.v0.migration.migration_pb2
import peloton.api.v0.mover.mover_pb2
import peloton.api.v0.overview.overview_pb2
import peloton.api.v0.rebalance.rebalance_pb2
import peloton.api.v0.respool.svc.respool_svc_pb2
import peloton.api.v0.retention.retention_pb2
import peloton.api.v0.schedule.schedule_pb2
import peloton.api.v0.short_names.job_pb2
import peloton.api.v0.short_names.respool_pb2
import peloton.api.v0.short_names.task_pb2
import peloton.api.v0.table.table_pb2
import peloton.api.v0.task.svc.task_svc_pb2
import peloton.api.v0.update.svc.update_svc_pb2
import peloton.api.v0.volume.svc.volume_svc_pb2
import peloton.api.v0.workers.workers_pb2
import peloton.api.v1alpha.admin.svc.admin_svc_pb2
import peloton.api.v1alpha.host.svc.host_svc_pb2
import peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2
import peloton.api.v1alpha.pod.svc.pod_svc_pb2
import peloton.api.v1alpha.respool.svc.respool_svc_pb2
import peloton.api.v1alpha.volume.svc.volume_svc_pb2
import peloton.api.v1alpha.watch.svc.watch_svc_pb2

# Clients use the first name of each.
JOB_MANAGER = (
    "peloton.api.job.JobManager",
    "peloton.api.v0.job.JobManager",
    "peloton.api.v0.job.svc.JobManager",
)
TASK_MANAGER = (
    "peloton.api.task.TaskManager",
    "peloton.api.v0.task.TaskManager",
    "peloton.api.v0.task.svc.TaskManager",
)
RESOURCE_MANAGER = (
    "peloton.api.respool.ResourceManager",
    "peloton.api.v0.respool.ResourceManager",
    "peloton.api.v0.respool.svc.ResourceManager",
)
EXPLAIN_SERVICE = ("peloton.api.v0.explain.ExplainService",)
BULK_SERVICE = ("peloton.api.v0.bulk.BulkService",)
GANG_SERVICE = ("peloton.api.v0.gang.GangService",)
HISTORY_SERVICE = ("peloton.api.v0.history.HistoryService",)
LOOKUP_SERVICE = ("peloton.api.v0.lookup.LookupService",)
MAINTENANCE_SERVICE = ("peloton.api.v0.maintenance.MaintenanceService",)
MIGRATION_SERVICE = ("peloton.api.v0.migration.MigrationService",)
MOVER_SERVICE = ("peloton.api.v0.mover.MoverService",)
ACCESS_SERVICE = ("peloton.api.v0.access.AccessService",)
AUDIT_SERVICE = ("peloton.api.v0.audit.AuditService",)
ADVICE_SERVICE = ("peloton.api.v0.advice.AdviceService",)
JOB_TABLE_SERVICE = ("peloton.api.v0.table.JobTableService",)
OVERVIEW_SERVICE = ("peloton.api.v0.overview.OverviewService",)
REBALANCE_SERVICE = ("peloton.api.v0.rebalance.RebalanceService",)
RETENTION_SERVICE = ("peloton.api.v0.retention.RetentionService",)
WORKER_VERSION_SERVICE = ("peloton.api.v0.workers.WorkerVersionService",)
SCHEDULE_SERVICE = ("peloton.api.v0.schedule.ScheduleService",)
HOST_SERVICE = ("peloton.api.v0.host.svc.HostService",)
INTERNAL_HOST_SERVICE = ("peloton.private.hostmgr.hostsvc.InternalHostService",)
VOLUME_SERVICE = ("peloton.api.v0.volume.svc.VolumeService",)
UPDATE_SERVICE = ("peloton.api.v0.update.svc.UpdateService",)
JOB_SERVICE = ("peloton.api.v1alpha.job.stateless.svc.JobService",)
POD_SERVICE = ("peloton.api.v1alpha.pod.svc.PodService",)
WATCH_SERVICE = ("peloton.api.v1alpha.watch.svc.WatchService",)
ADMIN_SERVICE = ("peloton.api.v1alpha.admin.svc.AdminService",)
RESPOOL_SERVICE = ("peloton.api.v1alpha.respool.ResourcePoolService",)
HOST_SERVICE_V1 = ("peloton.api.v1alpha.host.svc.HostService",)
VOLUME_SERVICE_V1 = ("peloton.api.v1alpha.volume.svc.VolumeService",)

SPELLINGS = (
    ACCESS_SERVICE,
    AUDIT_SERVICE,
    JOB_MANAGER,
    TASK_MANAGER,
    BULK_SERVICE,
    GANG_SERVICE,
    HISTORY_SERVICE,
    LOOKUP_SERVICE,
    JOB_TABLE_SERVICE,
    MIGRATION_SERVICE,
    OVERVIEW_SERVICE,
    REBALANCE_SERVICE,
    SCHEDULE_SERVICE,
    RESOURCE_MANAGER,
    EXPLAIN_SERVICE,
    MOVER_SERVICE,
    RETENTION_SERVICE,
    WORKER_VERSION_SERVICE,
    HOST_SERVICE,
    HOST_SERVICE_V1,
    INTERNAL_HOST_SERVICE,
    MAINTENANCE_SERVICE,
    ADVICE_SERVICE,
    VOLUME_SERVICE,
    VOLUME_SERVICE_V1,
    UPDATE_SERVICE,
    JOB_SERVICE,
    POD_SERVICE,
    WATCH_SERVICE,
    ADMIN_SERVICE,
    RESPOOL_SERVICE,
)
"""Names of each service; clients use the first one."""
SERVED = tuple(name for names in SPELLINGS for name in names)


class GenericServer(Protocol):
    """Common interface of ``grpc.Server`` and ``grpc.aio.Server``."""

    def add_generic_rpc_handlers(self, handlers: Any, /) -> None: ...


def add_under_all_names(server: GenericServer, servicer: object, names: tuple[str, ...]) -> None:
    """Register one servicer under every name; works for any service whose .proto module has been imported."""
    server.add_generic_rpc_handlers(tuple(service_handler(name, servicer) for name in names))


def service_handler(name: str, servicer: object) -> grpc.GenericRpcHandler:
    service = service_of(name)
    handlers = {method.name: method_handler(method, getattr(servicer, method.name)) for method in service.methods}
    return grpc.method_handlers_generic_handler(name, handlers)


def method_handler(method: MethodDescriptor, behaviour: Any) -> grpc.RpcMethodHandler[Any, Any]:
    request = message_factory.GetMessageClass(method.input_type)
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    make_handler: Any = kinds[method.client_streaming, method.server_streaming]
    handler: grpc.RpcMethodHandler[Any, Any] = make_handler(
        behaviour, request_deserializer=request.FromString, response_serializer=serialize
    )
    return handler


def serialize(answer: Message | bytes) -> bytes:
    """Serialize an answer, unless the servicer has returned it serialized."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def service_of(name: str) -> ServiceDescriptor:
    """Return the descriptor of a service by one of its names."""
    return descriptor_pool.Default().FindServiceByName(name)


def list_methods() -> Iterator[tuple[str, MethodDescriptor]]:
    """Yield each method of each service with its path, ``service/method``."""
    for name in SERVED:
        for method in service_of(name).methods:
            yield f"{name}/{method.name}", method
