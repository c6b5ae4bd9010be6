"""Activities on hosts: launch and kill."""

from __future__ import annotations

from activities.definition import define_activity
from peloton.model.host import LaunchResult, PlacementBatch
from peloton.model.ids import JobId
from peloton.ports import HostManager


class LaunchActivities:
    def __init__(self, hosts: HostManager) -> None:
        self._hosts = hosts

    @define_activity("launch")
    def launch(self, batch: PlacementBatch) -> LaunchResult:
        return self._hosts.launch(batch.job_id, batch.lease_id, batch.placements)

    @define_activity("kill_running")
    def kill_running(self, job_id: str) -> int:
        return self._hosts.kill_running(JobId(job_id))
