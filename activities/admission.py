"""Steps on the resource manager."""

from __future__ import annotations

from temporalio import activity

from activities.errors import translated
from peloton.model.ids import JobId
from peloton.model.job import Queued
from peloton.model.reason import RequeueReason, RequeueRule
from peloton.ports import ResourceManager


class AdmissionActivities:
    def __init__(self, resmgr: ResourceManager) -> None:
        self._resmgr = resmgr

    @activity.defn(name="enqueue")
    @translated
    def enqueue(self, job_id: str, limit: int) -> Queued:
        return self._resmgr.enqueue(JobId(job_id), limit)

    @activity.defn(name="requeue_gang")
    @translated
    def requeue_gang(self, job_id: str, reason: RequeueReason | str) -> None:
        """``reason`` is a text when a worker from before reasons were values has scheduled this."""
        self._resmgr.requeue_gang(
            JobId(job_id), RequeueReason(RequeueRule.UNKNOWN) if isinstance(reason, str) else reason
        )

    @activity.defn(name="kill_queued")
    @translated
    def kill_queued(self, job_id: str) -> int:
        return self._resmgr.kill_queued(JobId(job_id))
