"""Steps on hosts: launch and kill."""

from __future__ import annotations

from temporalio import activity

from activities.errors import translated
from peloton.model.host import LaunchResult, PlacementBatch
from peloton.model.ids import JobId
from peloton.ports import HostManager


class LaunchActivities:
    def __init__(self, hosts: HostManager) -> None:
        self._hosts = hosts

    @activity.defn(name="launch")
    @translated
    def launch(self, batch: PlacementBatch) -> LaunchResult:
        return self._hosts.launch(batch.job_id, batch.lease_id, batch.placements)

    @activity.defn(name="kill_running")
    @translated
    def kill_running(self, job_id: str) -> int:
        return self._hosts.kill_running(JobId(job_id))
