"""Messages of API v0: ``v0.task.ListRequest``. Each module is imported at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.wire.lazy import lazy_modules

__all__ = [
    "access",
    "advice",
    "audit",
    "bulk",
    "explain",
    "history",
    "host",
    "host_svc",
    "job",
    "lookup",
    "maintenance",
    "migration",
    "mover",
    "overview",
    "peloton",
    "query",
    "rebalance",
    "respool",
    "retention",
    "schedule",
    "table",
    "task",
    "update",
    "update_svc",
    "volume",
    "volume_svc",
    "workers",
]

if TYPE_CHECKING:
    from peloton.api.v0 import peloton_pb2 as peloton
    from peloton.api.v0.access import access_pb2 as access
    from peloton.api.v0.advice import advice_pb2 as advice
    from peloton.api.v0.audit import audit_pb2 as audit
    from peloton.api.v0.bulk import bulk_pb2 as bulk
    from peloton.api.v0.explain import explain_pb2 as explain
    from peloton.api.v0.history import history_pb2 as history
    from peloton.api.v0.host import host_pb2 as host
    from peloton.api.v0.host.svc import host_svc_pb2 as host_svc
    from peloton.api.v0.job import job_pb2 as job
    from peloton.api.v0.lookup import lookup_pb2 as lookup
    from peloton.api.v0.maintenance import maintenance_pb2 as maintenance
    from peloton.api.v0.migration import migration_pb2 as migration
    from peloton.api.v0.mover import mover_pb2 as mover
    from peloton.api.v0.overview import overview_pb2 as overview
    from peloton.api.v0.query import query_pb2 as query
    from peloton.api.v0.rebalance import rebalance_pb2 as rebalance
    from peloton.api.v0.respool import respool_pb2 as respool
    from peloton.api.v0.retention import retention_pb2 as retention
    from peloton.api.v0.schedule import schedule_pb2 as schedule
    from peloton.api.v0.table import table_pb2 as table
    from peloton.api.v0.task import task_pb2 as task
    from peloton.api.v0.update import update_pb2 as update
    from peloton.api.v0.update.svc import update_svc_pb2 as update_svc
    from peloton.api.v0.volume import volume_pb2 as volume
    from peloton.api.v0.volume.svc import volume_svc_pb2 as volume_svc
    from peloton.api.v0.workers import workers_pb2 as workers
else:
    __getattr__ = lazy_modules(globals(), "peloton.api.v0", {"peloton": "peloton_pb2"})
