"""Reasons for waiting pods, taken from the resource manager's explanation of their job."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import grpc.aio

from peloton.api.v0.explain import explain_pb2, explain_pb2_grpc
from peloton.api.v0.peloton_pb2 import JobID
from peloton.errors import Unavailable
from peloton.model.ids import JobId
from peloton.model.pod import PodRecord, PodState
from services.api.channels import AsyncLeaderChannels
from services.api.forward import RESMGR

log = logging.getLogger(__name__)

TIMEOUT_S = 1.0
"""Timeout of an explanation in seconds; a reason is not worth a longer wait."""
AGE_MAX_S = 2.0
JOBS_MAX = 1_000
"""Maximum number of cached answers."""
WAITING = frozenset({PodState.PENDING, PodState.READY})


@dataclass(frozen=True, slots=True)
class Reasons:
    """Reasons of one job. ``queued``: (first instance, count, reason) of queued pods."""

    queued: tuple[tuple[int, int, str], ...] = ()
    admitted: str = ""

    def of(self, state: PodState, instance_id: int) -> str:
        if state is PodState.READY:
            return self.admitted
        return next((text for first, count, text in self.queued if first <= instance_id < first + count), "")


def reasons_of(answer: explain_pb2.JobWhyResponse) -> Reasons:
    queued = [(one.firstInstance, one.gangCount * one.gangSize, one.reason.text) for one in answer.waiting]
    admitted = (one.text for one in answer.reasons if one.rule == explain_pb2.RULE_NO_HOST)
    return Reasons(tuple(queued), next(admitted, ""))


class PendingReasons:
    def __init__(self, channels: AsyncLeaderChannels, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._channels = channels
        self._clock_s = clock_s
        self._known: OrderedDict[JobId, tuple[float, Reasons]] = OrderedDict()

    @staticmethod
    def lacks_reason(pod: PodRecord) -> bool:
        return pod.state in WAITING and not pod.reason

    async def explain(self, pods: Iterable[PodRecord]) -> list[PodRecord]:
        """Return pods of one job, with reasons added to waiting ones as far as known."""
        found = list(pods)
        if not any(map(self.lacks_reason, found)):
            return found
        reasons = await self.of_job(found[0].job_id)
        return [
            replace(pod, reason=reasons.of(pod.state, pod.instance_id)) if self.lacks_reason(pod) else pod
            for pod in found
        ]

    async def of_job(self, job_id: JobId) -> Reasons:
        """Return reasons no older than AGE_MAX_S; empty while the resource manager is silent."""
        at_s, reasons = self._known.get(job_id, (0.0, Reasons()))
        now_s = self._clock_s()
        if job_id in self._known and now_s - at_s < AGE_MAX_S:
            return reasons
        reasons = await self._ask(job_id)
        self._known.pop(job_id, None)
        self._known[job_id] = now_s, reasons
        while len(self._known) > JOBS_MAX:
            self._known.popitem(last=False)
        return reasons

    async def _ask(self, job_id: JobId) -> Reasons:
        request = explain_pb2.JobWhyRequest(jobId=JobID(value=job_id))
        try:
            stub = explain_pb2_grpc.ExplainServiceStub(await self._channels.to(RESMGR))
            return reasons_of(await stub.JobWhy(request, timeout=TIMEOUT_S))
        except (Unavailable, grpc.aio.AioRpcError) as error:
            log.info("reason why pods of job %s wait is unknown: %s", job_id, error)
            return Reasons()
