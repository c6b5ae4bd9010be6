"""Daemons on the hosts of one cluster: instances follow hosts that join and leave, and launch in resources reserved for
them.

A step does the next bounded part of both, and may be repeated and interrupted anywhere: it reads the due work from
storage and from the host book each time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from peloton.errors import Unavailable
from peloton.hosts.daemon_hosts import lacks_resources
from peloton.hosts.state import HOSTS_UNKNOWN, PlacedPods
from peloton.lifecycle.daemon import FollowPlan
from peloton.lifecycle.daemon_plan import count_daemon_hosts
from peloton.model.daemon import DaemonPlan, DaemonReach, DaemonStep, WaitingDaemonPod
from peloton.model.host import LaunchResult, Placement
from peloton.model.ids import JobId
from peloton.model.misfit import Misfit
from peloton.model.pod import PodShape
from peloton.model.reason import ClusterReason, NoHost, PlacementReason, merge_misfits
from peloton.model.resources import compute_needed
from peloton.ports import Lifecycles
from services.hostmgr.daemon_evictions import DaemonEvictions
from services.hostmgr.hosts.host_cache import HostCache
from services.storage.daemons.daemons import Daemons

PODS_PER_STEP_MAX = 1_000
PLANNED_HOSTS_MAX = 1_000
"""Limit of hosts without free resources for a planned daemon whose pods are examined."""
FOLLOW_AGAIN_S = 300.0
NEWS = "hosts of the daemon joined or left, or have free resources"
Place = Callable[[JobId, Sequence[WaitingDaemonPod]], PlacedPods]
Launch = Callable[[JobId, str, Sequence[Placement]], LaunchResult]


class DaemonReconciler:
    """Controller of daemons. Any thread may call."""

    def __init__(
        self,
        cluster: str,
        records: Daemons,
        cache: HostCache,
        lifecycles: Lifecycles,
        place: Place,
        launch: Launch,
        evictions: DaemonEvictions | None = None,
    ) -> None:
        """``lifecycles`` wakes daemons. Without ``evictions`` daemons wait until other pods release resources."""
        self._cluster = cluster
        self._records = records
        self._cache = cache
        self._lifecycles = lifecycles
        self._place, self._launch = place, launch
        self._evictions = evictions
        self._followed: dict[JobId, tuple[tuple[int, int], float]] = {}  # -> versions at the last full pass, time

    def start(self) -> None:
        """Reserve resources for daemons; called before the first offer."""
        self._cache.daemons.want(self._records.list_wanted())
        self._cache.daemons.record_launched(self._records.on_hosts(self._cluster))

    def refresh(self) -> None:
        """Rereads daemons, which may have been created, changed or ended, and hosts, whose labels may have changed."""
        self._poll()
        self.signal_jobs()

    def _poll(self) -> None:
        self._cache.daemons.hosts_changed()
        self._cache.daemons.want(self._records.list_wanted())
        wanted = set(self._cache.daemons.list_wanted())
        self._followed = {job: followed for job, followed in self._followed.items() if job in wanted}
        if self._evictions is not None:
            self._evictions.keep(wanted)

    def hosts_changed(self) -> None:
        """Handle hosts that have joined, changed or left."""
        self._cache.daemons.hosts_changed()
        self.signal_jobs()

    def signal_jobs(self) -> None:
        """Wake each daemon with due work once, until its next step."""
        news = self._cache.daemons.take_news()
        if self._evictions is not None:
            news |= self._evictions.take_due(time.monotonic())
        if news:
            self._lifecycles.jobs_changed(sorted(news), NEWS)

    @property
    def signal_in_s(self) -> float:
        return self._evictions.due_at_s - time.monotonic() if self._evictions is not None else math.inf

    def step(self, job_id: JobId, after: int) -> DaemonStep:
        """Make the instances of the daemon match the hosts, and launches instances above ``after`` that fit on their
        hosts. Raises Unavailable while the hosts are not known."""
        self._poll()
        if not self._cache.are_hosts_known:
            raise Unavailable(HOSTS_UNKNOWN)
        followed = self._follow(job_id)
        if followed.more:
            return DaemonStep(followed.count, more=True, after=after)
        pods = self._records.waiting(job_id, self._cluster, after, PODS_PER_STEP_MAX)
        launched, refused = self._launch_some(job_id, pods)
        return DaemonStep(
            changed_count=followed.count,
            launched_count=launched,
            waiting_count=len(pods) - launched,
            more=len(pods) == PODS_PER_STEP_MAX,
            after=pods[-1].instance_id if pods else after,
            why=_why(refused),
        )

    def reach(self, shape: PodShape) -> DaemonReach:
        """Return on which hosts a daemon with such pods would run. Raises Unavailable while the hosts are not
        known."""
        if not self._cache.are_hosts_known:
            raise Unavailable(HOSTS_UNKNOWN)
        return self._cache.finder.reach_daemon(shape)

    def plan(self, shape: PodShape) -> DaemonPlan:
        """Return the free resources that a daemon with such pods would find on the hosts now, without reserving any.
        Raises Unavailable while the hosts are not known."""
        reach, hosts = self.reach(shape), self._cache.finder.for_daemon(shape)
        short = [host.hostname for host in hosts if not host.has_capacity and not host.is_unavailable][
            :PLANNED_HOSTS_MAX
        ]
        neighbours = self._records.neighbours(self._cluster, short)
        return count_daemon_hosts(compute_needed(shape.resources), reach, hosts, neighbours, self._cache.capacity()[0])

    def _follow(self, job_id: JobId) -> FollowPlan:
        """Update the instances of the daemon. A full pass, whose cost is proportional to the hosts, runs when the
        hosts or the daemon have changed, and periodically."""
        seen, now_s = self._cache.daemons.read_versions(), time.monotonic()
        followed, at_s = self._followed.get(job_id, ((-1, -1), 0.0))
        if followed == seen and now_s - at_s < FOLLOW_AGAIN_S:
            return FollowPlan()
        hosts = self._cache.daemons.hosts_of(job_id)
        plan = self._records.follow(job_id, self._cluster, hosts, time.time_ns())
        if not plan.more:
            self._followed[job_id] = (seen, now_s)
        return plan

    def _launch_some(self, job_id: JobId, pods: Sequence[WaitingDaemonPod]) -> tuple[int, Sequence[Misfit]]:
        """Return how many pods were launched, and why others were not."""
        lease, placed = self._place(job_id, pods)
        if self._evictions is not None:
            short = {pod.hostname: pod.shape for pod in pods if lacks_resources(placed.refused.get(pod.hostname))}
            self._evictions.note(job_id, [pod.hostname for pod in pods], short, time.monotonic())
        refused = list(placed.refused.values())
        if not placed.placements:
            return 0, refused
        instances = sorted(pod.instance_id for placement in placed.placements for pod in placement.pods)
        self._records.skip_queue(job_id, instances, time.time_ns())
        return self._launch(job_id, lease.lease_id, placed.placements).launched_count, refused


def _why(refused: Sequence[Misfit]) -> PlacementReason:
    if not refused:
        return ()
    return (ClusterReason(pods=(NoHost(len(refused), hosts=merge_misfits((misfit, 1) for misfit in refused)),)),)
