"""Steps on the resource manager."""

from __future__ import annotations

from temporalio import activity

from activities.errors import translated
from peloton.model.ids import JobId
from peloton.model.job import Queued
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
    def requeue_gang(self, job_id: str, reason: str) -> None:
        self._resmgr.requeue_gang(JobId(job_id), reason)

    @activity.defn(name="kill_queued")
    @translated
    def kill_queued(self, job_id: str) -> int:
        return self._resmgr.kill_queued(JobId(job_id))
