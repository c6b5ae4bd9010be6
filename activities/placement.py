"""Placement of admitted pods on leased hosts. The lease passes to the launch, or is returned here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from temporalio import activity

from activities.definition import define_activity
from peloton.errors import PelotonError, Unavailable
from peloton.lifecycle.failed_placements import FailedPlacements, find_failed_placements, find_unplaced
from peloton.lifecycle.reservation import waiting_pods
from peloton.model.host import (
    ClusterChoice,
    GangLaunch,
    LaunchedBatch,
    LaunchResult,
    PlacementBatch,
    ReadyGang,
    count_shapes,
    find_desired,
)
from peloton.model.ids import JobId
from peloton.model.reason import ClusterReason, ClusterRule
from peloton.ports import HostManager, Placer, PodRecords, ResourceManager

LEASE_LOST = (ClusterReason(rule=ClusterRule.LEASE_LOST),)
NOT_READY = (ClusterReason(rule=ClusterRule.NOT_READY),)


PlaceIn = Callable[[str, Sequence[ReadyGang], Collection[str]], LaunchedBatch]
"""Places pods in a cluster, while the other clusters are tried as well; it launches them, or returns placements."""


class PlacementActivities:
    def __init__(self, pods: PodRecords, hosts: HostManager, resmgr: ResourceManager, placer: Placer) -> None:
        self._pods = pods
        self._hosts = hosts
        self._resmgr = resmgr
        self._placer = placer

    @define_activity("place_and_launch")
    def place_and_launch(self, job_id: str, limit: int, placement_s: float = math.inf) -> LaunchResult:
        """Place and launch at most ``limit`` READY pods that are not in a gang. Return the reason when none was
        launched.

        Pods are queued again when no host could take them even if it were empty, and when none was found within
        ``placement_s``, or sooner after several failed placements.
        """
        job = JobId(job_id)
        gangs: Sequence[ReadyGang] = ()
        if found := self._hosts.place_and_launch(job, limit):
            launch, left = found
        else:
            gangs = self._pods.ready_gangs(job, limit)
            launch, left = self._place(job, gangs, limit, for_gang=False)
        launch = _explain(launch, left)
        if not left.unplaced_count:
            return launch
        turns = self._note_unplaced(left)
        failed = find_failed_placements(gangs or self._pods.ready_gangs(job, limit), left, placement_s, turns)
        return replace(launch, requeued_count=self._requeue(job, failed, left.reserved)) if failed.instances else launch

    def _requeue(self, job: JobId, failed: FailedPlacements, reserved: Sequence[int]) -> int:
        """Queue pods again, except pods with a reserved host. While the resource manager is unavailable all keep
        waiting: other pods of the job are placed meanwhile.
        """
        try:
            return self._resmgr.requeue_pods(job, failed.instances, failed.reason, reserved)
        except Unavailable as error:
            activity.logger.info("pods without a host not requeued: %s", error)
            return 0

    @define_activity("place_gang")
    def place_gang(self, job_id: str) -> PlacementBatch:
        """Place all of the job's gang. Return an empty batch with the reason when it does not fit whole.

        The batch crosses the history of the workflow twice, so it is for small gangs.
        """
        job = JobId(job_id)
        gangs = self._read_gang(job)
        batch = self._try_clusters(job, gangs, self._lease_for(job, for_gang=True)).left
        self._note_unplaced(batch)
        return batch

    def _read_gang(self, job: JobId) -> Sequence[ReadyGang]:
        gang = self._pods.ready_gang(job)
        return [gang] if gang else []

    @define_activity("place_and_launch_gang")
    def place_and_launch_gang(self, job_id: str) -> GangLaunch:
        """Place all of the job's gang and launch it. A gang that does not fit whole stays, with the reason."""
        job = JobId(job_id)
        found = self._hosts.place_and_launch(job, 0, for_gang=True)
        launch, left = found or self._place(job, self._read_gang(job), 0, for_gang=True)
        self._note_unplaced(left)
        launch = _explain(launch, left)
        infeasible = next((each.infeasible for each in left.unplaced if each.fits_no_host), ())
        return GangLaunch(launch.launched_count, launch.failed_count, launch.why, infeasible)

    def _place(self, job: JobId, gangs: Sequence[ReadyGang], limit: int, for_gang: bool) -> LaunchedBatch:
        """Place and launch pods in one of several clusters, which the host manager of that cluster does. Pods that
        spread, which are counted in all clusters from the lease to the launch, are placed by lease; so are those of a
        host manager of the last release."""
        lease = self._lease_for(job, for_gang)
        spread = any(gang.shape.layout and gang.shape.layout.spread for gang in gangs)

        def place_in(cluster: str, mine: Sequence[ReadyGang], others: Collection[str]) -> LaunchedBatch:
            found = None
            if not spread:
                wanted = count_shapes(mine)
                found = self._hosts.place_and_launch(job, limit, for_gang, cluster, others=others, wanted=wanted)
            return found or lease(cluster, mine, others)

        launch, left = self._try_clusters(job, gangs, place_in)
        if left.placements:
            launch = self._hosts.launch(job, left.lease_id, left.placements)
        return LaunchedBatch(launch, left)

    def _try_clusters(self, job: JobId, gangs: Sequence[ReadyGang], place_in: PlaceIn) -> LaunchedBatch:
        if not gangs:
            return LaunchedBatch(LaunchResult(0), PlacementBatch(job, ""))
        preferred = Counter(gang.desired_cluster for gang in gangs if gang.desired_host)
        choice = self._hosts.choose_clusters(count_shapes(gangs), preferred)
        if choice.order and not choice.passed_over and len(choice.order) == 1:
            return place_in(choice.order[0], gangs, ())
        return self._place_in_first(choice, job, gangs, place_in)

    def _place_in_first(
        self, choice: ClusterChoice, job: JobId, gangs: Sequence[ReadyGang], place_in: PlaceIn
    ) -> LaunchedBatch:
        """Place pods in the first cluster where some fit: a batch, and so a gang, never spans two. Pods that return to
        a cluster that is also tried wait for its turn. Raises Unavailable when no cluster answers.
        """
        passed_over, faults = list(choice.passed_over), list[Unavailable]()
        tried: dict[str, PlacementBatch] = {}
        for cluster in choice.order:
            others = {*choice.order} - {cluster}
            mine = [gang for gang in gangs if not gang.desired_host or gang.desired_cluster not in others]
            launch, batch = LaunchResult(0), PlacementBatch(job, "")
            try:
                if mine:
                    launch, batch = place_in(cluster, mine, others)
            except Unavailable as error:
                faults.append(error)
                passed_over.append(ClusterReason(cluster, ClusterRule.FAILED, detail=error.message))
                continue
            batch = replace(batch, why=tuple(reason.within(cluster) for reason in batch.why))
            # The next attempt tries the other clusters for the rest.
            if batch.placements or launch.launched_count or launch.refused_count or launch.failed_count:
                return LaunchedBatch(launch, replace(batch, unplaced=()))
            tried[cluster] = batch
        if faults and len(faults) == len(choice.order):
            raise faults[0]
        found = [reason for batch in tried.values() for reason in batch.why]
        why = tuple(sorted([*passed_over, *found], key=lambda reason: reason.cluster))
        count = max((one.unplaced_count for one in tried.values()), default=0) or sum(len(g.pods) for g in gangs)
        silent = [reason.cluster for reason in passed_over if reason.rule is not ClusterRule.ELSEWHERE]
        left = find_unplaced(gangs, tried, silent)
        reserved = tuple(sorted({instance for one in tried.values() for instance in one.reserved}))
        none = PlacementBatch(job, "", unplaced_count=count, why=why, unplaced=left, reserved=reserved)
        return LaunchedBatch(LaunchResult(0), none)

    def _lease_for(self, job: JobId, for_gang: bool) -> PlaceIn:
        def place_in(cluster: str, gangs: Sequence[ReadyGang], others: Collection[str]) -> LaunchedBatch:
            """Place pods on leased hosts; the lease passes to their launch."""
            waiting = () if for_gang else waiting_pods(gangs)
            lease = self._hosts.acquire_hosts(job, count_shapes(gangs), for_gang, find_desired(gangs), cluster, waiting)
            try:
                batch = self._placer.place(job, gangs, lease)
            except Exception:
                self._hosts.release(lease.lease_id)
                raise
            if not batch.placements:
                self._hosts.release(lease.lease_id)
            return LaunchedBatch(LaunchResult(0), batch)

        return place_in

    def _note_unplaced(self, batch: PlacementBatch) -> int:
        """Record the reason of unplaced pods. Return how often pods in backoff have filled the pool, if the resource
        manager answers.
        """
        if not batch.unplaced_count:
            return 0
        # For `job why`: a placement does not wait for an unavailable resource manager.
        try:
            return self._resmgr.note_unplaced(batch.job_id, batch.unplaced_count, batch.why)
        except PelotonError as error:
            activity.logger.info("reason of unplaced pods not stored: %s", error)
            return 0


def _explain(launch: LaunchResult, left: PlacementBatch) -> LaunchResult:
    """Return the result, with the reason if no pod was launched."""
    if launch.launched_count or launch.failed_count:
        return launch
    return replace(launch, why=LEASE_LOST if launch.refused_count else left.why or NOT_READY)
