"""Changes of the bridge's pods, read by a watch of the api."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.query import query_pb2
from peloton.api.v1alpha.watch import watch_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from services.aurorabridge.backend import Backend
from services.aurorabridge.mapping.identity import JOB_MARK, POD_MARK

_JOB_LABEL, _POD_LABEL = (peloton_pb2.Label(key=key, value=value) for key, value in (JOB_MARK, POD_MARK))
JOBS_PAGE = 100


class Changes(NamedTuple):
    """Pods at a revision of the watch. The first ones of a watch have no pods: later changes follow."""

    revision: int
    pods: Sequence[pod_pb2.PodSummary] = ()


class Feed:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def watch(self, after: int) -> AsyncGenerator[Changes, None]:
        """Yield the changes after a revision, 0 for the present one, until the api ends the watch. Several changes of
        a pod that follow each other closely are one, with the last state. Raises grpc.aio.AioRpcError.
        """
        request = watch_svc_pb2.WatchRequest(start_revision=after, pod_filter=watch_pb2.PodFilter(labels=[_POD_LABEL]))
        call = self._backend.watches.Watch(request)
        try:
            async for response in call:
                yield Changes(response.revision, response.pods)
        finally:
            call.cancel()

    async def list_pods(self) -> AsyncGenerator[Sequence[pod_pb2.PodSummary], None]:
        """Yield the present pods of each job of the bridge. Raises grpc.aio.AioRpcError."""
        offset = 0
        while True:
            page = query_pb2.PaginationSpec(offset=offset, limit=JOBS_PAGE)
            spec = stateless_pb2.QuerySpec(pagination=page, labels=[_JOB_LABEL])
            answer = await self._backend.jobs.QueryJobs(stateless_svc_pb2.QueryJobsRequest(spec=spec))
            for job in answer.records:
                request = stateless_svc_pb2.ListPodsRequest(job_id=job.job_id)
                async for pods in self._backend.jobs.ListPods(request):
                    yield pods.pods
            offset += len(answer.records)
            if not answer.records or offset >= answer.pagination.total:
                return
