"""Placement: admitted pods onto leased hosts. The lease goes on to the launch, or is given back here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from temporalio import activity

from activities.errors import translated
from peloton.errors import PelotonError
from peloton.model.host import Desired, LaunchResult, PlacementBatch, ReadyGang
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape
from peloton.ports import HostManager, JobRecords, Placer, ResourceManager

LEASE_LOST = "hosts: the lease of those found was lost"


class PlacementActivities:
    def __init__(self, records: JobRecords, hosts: HostManager, resmgr: ResourceManager, placer: Placer) -> None:
        self._records = records
        self._hosts = hosts
        self._resmgr = resmgr
        self._placer = placer

    @activity.defn(name="place_and_launch")
    @translated
    def place_and_launch(self, job_id: str, limit: int) -> LaunchResult:
        """Of READY pods that stand alone, at most ``limit``. When nothing was launched, with the reason."""
        job = JobId(job_id)
        batch = self._place(job, self._records.ready_gangs(job, limit), for_gang=False)
        if not batch.placements:
            return LaunchResult(0, reason=batch.reason)
        launch = self._hosts.launch(job, batch.lease_id, batch.placements)
        return launch if launch.launched_count or launch.failed_count else replace(launch, reason=LEASE_LOST)

    @activity.defn(name="place_gang")
    @translated
    def place_gang(self, job_id: str) -> PlacementBatch:
        """Place all of the job's gang. Empty when it does not fit whole, with the reason."""
        job = JobId(job_id)
        gang = self._records.ready_gang(job)
        return self._place(job, [gang] if gang else [], for_gang=True)

    def _place(self, job: JobId, gangs: Sequence[ReadyGang], for_gang: bool) -> PlacementBatch:
        if not gangs:
            return PlacementBatch(job, "", reason="no pod waits for a host any more")
        wanted: Counter[PodShape] = Counter()
        for gang in gangs:
            wanted[gang.shape] += len(gang.pods)
        desired = [
            Desired(gang.pods[0][0], Hostname(gang.desired_host), gang.shape) for gang in gangs if gang.desired_host
        ]
        lease = self._hosts.acquire_hosts(job, list(wanted.items()), for_gang, desired)
        try:
            batch = self._placer.place(job, gangs, lease)
        except Exception:
            self._hosts.release(lease.lease_id)
            raise
        if not batch.placements:
            self._hosts.release(lease.lease_id)
        if batch.unplaced_count:
            self._note_unplaced(batch)
        return batch

    def _note_unplaced(self, batch: PlacementBatch) -> None:
        # Only `job why` reads it: a placement does not wait for a resource manager that is away.
        try:
            self._resmgr.note_unplaced(batch.job_id, batch.unplaced_count, batch.reason)
        except PelotonError as error:
            activity.logger.info("reason of unplaced pods not noted: %s", error)
