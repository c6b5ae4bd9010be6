"""Services of the public API, which role api serves by itself or through the leaders of other roles.

Importing this module declares all of them in the descriptor pool.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from peloton.api.service_names import (
    ADVICE_SERVICE,
    BULK_SERVICE,
    EXPLAIN_SERVICE,
    HISTORY_SERVICE,
    JOB_MANAGER,
    JOB_TABLE_SERVICE,
    LOOKUP_SERVICE,
    MAINTENANCE_SERVICE,
    MIGRATION_SERVICE,
    MOVER_SERVICE,
    OVERVIEW_SERVICE,
    REBALANCE_SERVICE,
    RESOURCE_MANAGER,
    SCHEDULE_SERVICE,
    TASK_MANAGER,
    WORKER_VERSION_SERVICE,
)
from peloton.api.v0.host import internal_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from peloton.api.v1alpha.admin.svc import admin_svc_pb2
from peloton.api.v1alpha.host.svc import host_svc_pb2 as host_svc_v1_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.api.v1alpha.respool.svc import respool_svc_pb2
from peloton.api.v1alpha.volume.svc import volume_svc_pb2 as volume_svc_v1_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2

HOST_SERVICE = host_svc_pb2.DESCRIPTOR.services_by_name["HostService"].full_name
INTERNAL_HOST_SERVICE = internal_pb2.DESCRIPTOR.services_by_name["InternalHostService"].full_name
VOLUME_SERVICE = volume_svc_pb2.DESCRIPTOR.services_by_name["VolumeService"].full_name
UPDATE_SERVICE = update_svc_pb2.DESCRIPTOR.services_by_name["UpdateService"].full_name
JOB_SERVICE = stateless_svc_pb2.DESCRIPTOR.services_by_name["JobService"].full_name
POD_SERVICE = pod_svc_pb2.DESCRIPTOR.services_by_name["PodService"].full_name
WATCH_SERVICE = watch_svc_pb2.DESCRIPTOR.services_by_name["WatchService"].full_name
ADMIN_SERVICE = admin_svc_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name
RESPOOL_SERVICE = respool_svc_pb2.DESCRIPTOR.services_by_name["ResourcePoolService"].full_name
HOST_SERVICE_V1 = host_svc_v1_pb2.DESCRIPTOR.services_by_name["HostService"].full_name
VOLUME_SERVICE_V1 = volume_svc_v1_pb2.DESCRIPTOR.services_by_name["VolumeService"].full_name

SPELLINGS = (
    JOB_MANAGER,
    TASK_MANAGER,
    BULK_SERVICE,
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
    WORKER_VERSION_SERVICE,
    (HOST_SERVICE,),
    (HOST_SERVICE_V1,),
    (INTERNAL_HOST_SERVICE,),
    MAINTENANCE_SERVICE,
    ADVICE_SERVICE,
    (VOLUME_SERVICE,),
    (VOLUME_SERVICE_V1,),
    (UPDATE_SERVICE,),
    (JOB_SERVICE,),
    (POD_SERVICE,),
    (WATCH_SERVICE,),
    (ADMIN_SERVICE,),
    (RESPOOL_SERVICE,),
)
"""Names of each service; clients use the first one."""
SERVED = tuple(name for names in SPELLINGS for name in names)


def service_of(name: str) -> ServiceDescriptor:
    """Return the descriptor of a service by one of its names."""
    return descriptor_pool.Default().FindServiceByName(name)


def list_methods() -> Iterator[tuple[str, MethodDescriptor]]:
    """Yield each method of each service with its path, ``service/method``."""
    for name in SERVED:
        for method in service_of(name).methods:
            yield f"{name}/{method.name}", method
