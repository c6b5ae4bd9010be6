"""Private calls of workers: queue pods, end queued pods, note why pods found no host."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import grpc
import grpc.aio

from peloton.api.convert_reason import placement_from_wire, qos_from_wire, requeue_from_wire
from peloton.api.private import resmgr_pb2 as pb
from peloton.api.private import resmgr_pb2_grpc
from peloton.errors import InvalidArgument, PelotonError
from peloton.model.admission import EvictionOrder
from peloton.model.ids import JobId, PodId
from peloton.model.job import Queued
from peloton.ports import REQUEUED_PODS_MAX
from services.resmgr.loop import AdmissionLoop
from services.servers.grpc_errors import details_of, status_of, trailing_of

log = logging.getLogger(__name__)
T = TypeVar("T")

Context = grpc.aio.ServicerContext[object, object]
EVICTED_PODS_MAX = 1_000
"""Limit of evicted pods in one call."""


class AdmissionServicer(resmgr_pb2_grpc.AdmissionServicer):
    def __init__(self, loop: AdmissionLoop) -> None:
        self._loop = loop

    async def Enqueue(self, request: pb.EnqueueRequest, context: Context) -> pb.EnqueueResponse:
        queued = await _answer(self._enqueue(JobId(request.job_id), request.limit), context)
        return pb.EnqueueResponse(queued=queued.count, admitted=queued.admitted_count)

    async def _enqueue(self, job_id: JobId, limit: int) -> Queued:
        with self._loop.waiters.waiter(job_id) as waiter:
            count = await self._loop.enqueue(job_id, limit)
            return Queued(count, await waiter.count_admitted() if count else 0)

    async def KillQueued(self, request: pb.KillQueuedRequest, context: Context) -> pb.KillQueuedResponse:
        killed = self._loop.kill_queued(JobId(request.job_id))
        return pb.KillQueuedResponse(killed=await _answer(killed, context))

    async def RequeueGang(self, request: pb.RequeueGangRequest, context: Context) -> pb.RequeueGangResponse:
        await _answer(self._loop.requeue_gang(JobId(request.job_id), requeue_from_wire(request.why)), context)
        return pb.RequeueGangResponse()

    async def RequeuePods(self, request: pb.RequeuePodsRequest, context: Context) -> pb.RequeuePodsResponse:
        return pb.RequeuePodsResponse(requeued=await _answer(self._requeue_pods(request), context))

    async def _requeue_pods(self, request: pb.RequeuePodsRequest) -> int:
        count = sum(span.count for span in request.instances) + len(request.but)
        if count > REQUEUED_PODS_MAX:
            raise InvalidArgument(
                f"{count} pods are to be queued again or to wait on, at most {REQUEUED_PODS_MAX} at a time"
            )
        ranges = [(span.start, span.count) for span in request.instances]
        return await self._loop.requeue_pods(
            JobId(request.job_id), ranges, requeue_from_wire(request.why), list(request.but)
        )

    async def NoteUnplaced(self, request: pb.NoteUnplacedRequest, context: Context) -> pb.NoteUnplacedResponse:
        turns = self._loop.note_unplaced(JobId(request.job_id), request.count, placement_from_wire(request.why))
        return pb.NoteUnplacedResponse(turns_held_back=turns)

    async def Evict(self, request: pb.EvictRequest, context: Context) -> pb.EvictResponse:
        return pb.EvictResponse(evicted=await _answer(self._evict(request.pods), context))

    async def _evict(self, pods: Sequence[pb.EvictRequest.Pod]) -> int:
        return await self._loop.evict(_eviction_orders(pods))


def _eviction_orders(pods: Sequence[pb.EvictRequest.Pod]) -> list[EvictionOrder]:
    if len(pods) > EVICTED_PODS_MAX:
        raise InvalidArgument(f"{len(pods)} pods are to be evicted, at most {EVICTED_PODS_MAX} at a time")
    orders = []
    for pod in pods:
        try:
            run = PodId.parse(pod.pod_id)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        orders.append(EvictionOrder(run.job_id, run.instance_id, 1, False, qos_from_wire(pod.why), run.run_id))
    return orders


async def _answer(work: Awaitable[T], context: Context) -> T:
    """Turn expected errors into the call's status; log the rest as Unavailable, so that the caller may try again."""
    try:
        return await work
    except PelotonError as error:
        await context.abort(status_of(error), details_of(error), trailing_of(error))
    except Exception:
        log.exception("admission call failed")
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the resource manager could not reach its storage")
    raise AssertionError("abort raises")
