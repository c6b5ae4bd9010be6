"""Activities on the resource manager."""

from __future__ import annotations

from activities.definition import define_activity
from peloton.model.ids import JobId
from peloton.model.job import Queued
from peloton.model.reason import RequeueReason, RequeueRule
from peloton.ports import ResourceManager


class AdmissionActivities:
    def __init__(self, resmgr: ResourceManager) -> None:
        self._resmgr = resmgr

    @define_activity("enqueue")
    def enqueue(self, job_id: str, limit: int) -> Queued:
        return self._resmgr.enqueue(JobId(job_id), limit)

    @define_activity("requeue_gang")
    def requeue_gang(self, job_id: str, reason: RequeueReason | str) -> None:
        """Queue the gang again. ``reason`` is a text when an earlier worker, without typed reasons, has scheduled
        this.
        """
        self._resmgr.requeue_gang(
            JobId(job_id), RequeueReason(RequeueRule.UNKNOWN) if isinstance(reason, str) else reason
        )

    @define_activity("kill_queued")
    def kill_queued(self, job_id: str) -> int:
        return self._resmgr.kill_queued(JobId(job_id))
