"""Names under which services are registered.

Existing clients call three services of v0 by a name without the version, such as ``peloton.api.job.JobManager``. The
name that follows from the package of the .proto file, and a third one with ``.svc``, are served as well. All names are
declared in .proto files, so reflection lists them and stubs exist for each.
"""

from __future__ import annotations

from typing import Any, Protocol

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from peloton.api.v0.advice import advice_pb2
from peloton.api.v0.bulk import bulk_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.history import history_pb2
from peloton.api.v0.job.svc import job_svc_pb2
from peloton.api.v0.lookup import lookup_pb2
from peloton.api.v0.maintenance import maintenance_pb2
from peloton.api.v0.migration import migration_pb2
from peloton.api.v0.mover import mover_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.rebalance import rebalance_pb2
from peloton.api.v0.respool.svc import respool_svc_pb2
from peloton.api.v0.schedule import schedule_pb2
from peloton.api.v0.short_names import job_pb2 as short_job_pb2
from peloton.api.v0.short_names import respool_pb2 as short_respool_pb2
from peloton.api.v0.short_names import task_pb2 as short_task_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.task.svc import task_svc_pb2
from peloton.api.v0.workers import workers_pb2

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
HISTORY_SERVICE = ("peloton.api.v0.history.HistoryService",)
LOOKUP_SERVICE = ("peloton.api.v0.lookup.LookupService",)
MAINTENANCE_SERVICE = ("peloton.api.v0.maintenance.MaintenanceService",)
MIGRATION_SERVICE = ("peloton.api.v0.migration.MigrationService",)
MOVER_SERVICE = ("peloton.api.v0.mover.MoverService",)
ADVICE_SERVICE = ("peloton.api.v0.advice.AdviceService",)
JOB_TABLE_SERVICE = ("peloton.api.v0.table.JobTableService",)
OVERVIEW_SERVICE = ("peloton.api.v0.overview.OverviewService",)
REBALANCE_SERVICE = ("peloton.api.v0.rebalance.RebalanceService",)
WORKER_VERSION_SERVICE = ("peloton.api.v0.workers.WorkerVersionService",)
SCHEDULE_SERVICE = ("peloton.api.v0.schedule.ScheduleService",)

# Importing these modules declares the services in the descriptor pool; they import the modules of the messages.
DECLARED_IN = (
    short_job_pb2,
    short_respool_pb2,
    short_task_pb2,
    job_svc_pb2,
    respool_svc_pb2,
    task_svc_pb2,
    advice_pb2,
    bulk_pb2,
    explain_pb2,
    history_pb2,
    lookup_pb2,
    maintenance_pb2,
    migration_pb2,
    mover_pb2,
    overview_pb2,
    rebalance_pb2,
    schedule_pb2,
    table_pb2,
    workers_pb2,
)


class GenericServer(Protocol):
    """Common interface of ``grpc.Server`` and ``grpc.aio.Server``."""

    def add_generic_rpc_handlers(self, handlers: Any, /) -> None: ...


def add_under_all_names(server: GenericServer, servicer: object, names: tuple[str, ...]) -> None:
    """Register one servicer under every name; works for any service whose .proto module has been imported."""
    server.add_generic_rpc_handlers(tuple(service_handler(name, servicer) for name in names))


def service_handler(name: str, servicer: object) -> grpc.GenericRpcHandler:
    service = descriptor_pool.Default().FindServiceByName(name)
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
