"""Steps on hosts that no pod waits for."""

from __future__ import annotations

from temporalio import activity

from activities.errors import translated
from peloton.model.ids import JobId
from peloton.ports import HostManager


class HostsActivities:
    def __init__(self, hosts: HostManager) -> None:
        self._hosts = hosts

    @activity.defn(name="prefetch")
    @translated
    def prefetch(self, job_id: str, hostnames: list[str]) -> None:
        """The image of the job's newest configuration, on these hosts."""
        self._hosts.prefetch(JobId(job_id), hostnames)
