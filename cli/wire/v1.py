"""Messages of API v1alpha: ``v1.task.ListRequest``. Each module is imported at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.wire.lazy import lazy_modules

__all__ = ["admin_svc", "job", "job_svc", "peloton", "pod", "pod_svc", "query", "watch_svc"]

if TYPE_CHECKING:
    from peloton.api.v1alpha import peloton_pb2 as peloton
    from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as admin_svc
    from peloton.api.v1alpha.job.stateless import stateless_pb2 as job
    from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as job_svc
    from peloton.api.v1alpha.pod import pod_pb2 as pod
    from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as pod_svc
    from peloton.api.v1alpha.query import query_pb2 as query
    from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as watch_svc
else:
    __getattr__ = lazy_modules(
        globals(),
        "peloton.api.v1alpha",
        {
            "job": "job.stateless.stateless_pb2",
            "job_svc": "job.stateless.svc.stateless_svc_pb2",
            "peloton": "peloton_pb2",
        },
    )
