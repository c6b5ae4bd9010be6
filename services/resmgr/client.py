"""Client of the resource manager. It looks up the leader for each call, so it survives a failover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc

from peloton.api.convert_reason import placement_to_wire, qos_to_wire, requeue_to_wire
from peloton.api.private import resmgr_pb2 as pb
from peloton.api.private import resmgr_pb2_grpc
from peloton.api.v0.explain import explain_pb2, explain_pb2_grpc
from peloton.api.v0.peloton_pb2 import JobID
from peloton.model.ids import JobId, PodId
from peloton.model.job import Queued
from peloton.model.reason import PlacementReason, QosReason, RequeueReason
from services.servers.grpc_errors import call_peer

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
NAME = "resource manager"


class ResourceManagerClient:
    """The implementation of ``ports.ResourceManager`` by gRPC."""

    def __init__(self, channel: Callable[[], grpc.Channel]) -> None:
        """``channel`` returns a channel to the leader, or raises Unavailable."""
        self._channel = channel

    def enqueue(self, job_id: JobId, limit: int) -> Queued:
        answer = _call(self._stub().Enqueue, pb.EnqueueRequest(job_id=job_id, limit=limit))
        return Queued(answer.queued, answer.admitted)

    def job_why(self, job_id: JobId) -> explain_pb2.JobWhyResponse:
        """Ask why the job waits."""
        request = explain_pb2.JobWhyRequest(jobId=JobID(value=job_id))
        return _call(explain_pb2_grpc.ExplainServiceStub(self._channel()).JobWhy, request)

    def kill_queued(self, job_id: JobId) -> int:
        return _call(self._stub().KillQueued, pb.KillQueuedRequest(job_id=job_id)).killed

    def requeue_gang(self, job_id: JobId, reason: RequeueReason) -> None:
        request = pb.RequeueGangRequest(job_id=job_id, why=requeue_to_wire(reason))
        _call(self._stub().RequeueGang, request)

    def requeue_pods(
        self, job_id: JobId, instances: Sequence[tuple[int, int]], reason: RequeueReason, but: Sequence[int] = ()
    ) -> int:
        ranges = [pb.RequeuePodsRequest.Range(start=start, count=count) for start, count in instances]
        request = pb.RequeuePodsRequest(job_id=job_id, instances=ranges, why=requeue_to_wire(reason), but=but)
        return _call(self._stub().RequeuePods, request).requeued

    def note_unplaced(self, job_id: JobId, count: int, why: PlacementReason) -> int:
        request = pb.NoteUnplacedRequest(job_id=job_id, count=count, why=placement_to_wire(why))
        return _call(self._stub().NoteUnplaced, request).turns_held_back

    def evict(self, pods: Sequence[tuple[PodId, QosReason]]) -> int:
        """Evict pods; implements ``ports.Evictor``."""
        request = pb.EvictRequest(
            pods=[pb.EvictRequest.Pod(pod_id=str(pod), why=qos_to_wire(why)) for pod, why in pods]
        )
        return _call(self._stub().Evict, request).evicted

    def _stub(self) -> resmgr_pb2_grpc.AdmissionStub:
        return resmgr_pb2_grpc.AdmissionStub(self._channel())


def _call(method: Callable[..., T], request: object) -> T:
    return call_peer(NAME, method, request, CALL_TIMEOUT_S)
