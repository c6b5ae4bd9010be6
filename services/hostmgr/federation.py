"""The host managers of all clusters behind one interface. Each call goes to the clusters that it concerns; a silent
cluster delays only calls that need it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from peloton.errors import InvalidArgument, Unavailable
from peloton.model.host import Capacity, ClusterChoice, Desired, HostLease, LaunchResult, Placement, Prefetched
from peloton.model.ids import Hostname, JobId
from peloton.model.migration import MigrationTarget
from peloton.model.pod import PodShape
from peloton.model.reason import Infeasibility, Infeasible
from peloton.model.resources import Resources
from peloton.ports import ClusterOfHosts, HeldResources
from peloton.scheduling.clusters import ClusterView, Known, counts_as_known, order_clusters
from services.hostmgr.client import HostManagerClient

log = logging.getLogger(__name__)
T = TypeVar("T")

FREE_AGE_MAX_S = 5.0
"""How old the known free amounts per cluster may be, when there are several clusters."""
HELD_AGE_MAX_S = 60.0
SHAPES_PER_CALL = 100
"""That a host manager judges at a time."""
NO_LEADER = "no hostmgr leads at present"


class HostManagers:
    """Implements ``ports.HostManager``, ``ports.HostKeepers`` and ``ports.ImagePrefetcher``, and sums up the capacity.

    Leases are named ``<cluster>/<id in the cluster>``.
    """

    def __init__(
        self,
        clusters: Callable[[], Mapping[str, str]],
        client: Callable[[str], HostManagerClient],
        hosts: ClusterOfHosts,
        pods: HeldResources,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clusters``: all clusters -> address of the host manager, empty while none leads."""
        self._clusters = clusters
        self._client = client
        self._hosts, self._pods = hosts, pods
        self._clock = clock
        self._lock = threading.Lock()
        self._free: dict[str, Resources] = {}
        self._kinds: dict[str, str] = {}  # of clusters that have answered; it never changes
        self._free_asked_s = -FREE_AGE_MAX_S
        self._known: dict[str, Known] = {}
        self._held: dict[str, Known] = {}

    # Placement.

    def choose_clusters(self, wanted: Sequence[tuple[PodShape, int]], homes: Mapping[str, int]) -> ClusterChoice:
        """Raises Unavailable while no host manager is there."""
        clusters = self._led()
        if len(clusters) == 1:
            return ClusterChoice(tuple(clusters))
        free, kinds = self._free_of(clusters), self._kinds
        views = [
            ClusterView(name, free.get(name, Resources()), not address, kinds.get(name, ""))
            for name, address in clusters.items()
        ]
        return order_clusters(views, wanted, homes)

    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        cluster: str = "",
    ) -> HostLease:
        lease = self._client(cluster).acquire_hosts(job_id, gangs, for_gang, desired)
        if lease.hosts:
            self._take_free(cluster, gangs)
        return replace(lease, lease_id=f"{cluster}/{lease.lease_id}")

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        """Refuses all pods when the cluster has no leader and another cluster has one: the lease is lost, and pods that
        an earlier call launched are no longer READY."""
        cluster, own_id = self._of_lease(lease_id)
        clusters = self._clusters()
        if any(clusters.values()) and not clusters.get(cluster):
            return LaunchResult(0, refused_count=sum(len(placement.pods) for placement in placements))
        return self._client(cluster).launch(job_id, own_id, placements)

    def release(self, lease_id: str) -> None:
        cluster, own_id = self._of_lease(lease_id)
        self._client(cluster).release(own_id)

    def _of_lease(self, lease_id: str) -> tuple[str, str]:
        """A lease without a cluster is of a time when there was only one."""
        cluster, is_ours, own_id = lease_id.partition("/")
        return (cluster, own_id) if is_ours else (next(iter(self._led())), lease_id)

    def kill_running(self, job_id: JobId) -> int:
        """Kills in every cluster that answers; the job repeats the call for the others. Raises Unavailable when none
        answers."""
        return sum(self._each(self._led(), lambda cluster: self._client(cluster).kill_running(job_id)))

    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        clusters = self._led()
        if len(clusters) == 1:
            return self._client(next(iter(clusters))).prefetch(images)
        homes = self._hosts.clusters_of([host for hosts in images.values() for host in hosts])

        def ask(cluster: str) -> Prefetched:
            mine = {image: [h for h in hosts if homes.get(h) == cluster] for image, hosts in images.items()}
            return self._client(cluster).prefetch({image: hosts for image, hosts in mine.items() if hosts})

        answers = self._each(sorted(set(homes.values())), ask)
        return Prefetched(sum(one.asked_count for one in answers), any(one.is_possible for one in answers))

    def keeper(self, cluster: str) -> HostManagerClient:
        return self._client(cluster)

    def _each(self, clusters: Collection[str], ask: Callable[[str], T]) -> list[T]:
        """Answers of the clusters that give one; raises Unavailable when clusters were asked and none answered."""
        answers: list[T] = []
        faults: list[Unavailable] = []
        for cluster in clusters:
            try:
                answers.append(ask(cluster))
            except Unavailable as error:
                faults.append(error)
        if faults and not answers:
            raise faults[0]
        return answers

    def _led(self) -> Mapping[str, str]:
        """All clusters, at least one of them with a host manager."""
        clusters = self._clusters()
        if not any(clusters.values()):
            raise Unavailable(NO_LEADER)
        return clusters

    def _free_of(self, clusters: Mapping[str, str]) -> Mapping[str, Resources]:
        """Free amounts of a moment ago, less what was leased through us since."""
        with self._lock:
            now_s = self._clock()
            if now_s - self._free_asked_s < FREE_AGE_MAX_S:
                return dict(self._free)
            self._free_asked_s = now_s  # before the calls: others use the old numbers meanwhile
        found: dict[str, Resources] = {}
        for cluster, address in clusters.items():
            if address:
                try:
                    found[cluster], self._kinds[cluster] = self._client(cluster).free()
                except Unavailable as error:
                    log.info("what is free in cluster %s is not known: %s", cluster, error)
        with self._lock:
            self._free = found
            return dict(found)

    def _take_free(self, cluster: str, gangs: Sequence[tuple[PodShape, int]]) -> None:
        taken = sum((shape.resources * count for shape, count in gangs), Resources())
        with self._lock:
            if cluster in self._free:
                left = self._free[cluster] - taken
                self._free[cluster] = Resources(*(max(amount, 0) for amount in left))

    def judge(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasibility]:
        """Pods that no host of any cluster could take even if it were empty, and why. Raises Unavailable when a cluster
        does not answer: one of its hosts might take them."""
        answers = {cluster: self._client(cluster).judge(shapes) for cluster in sorted(self._led())}
        is_one = len(answers) == 1
        return {
            shape: tuple(found[shape].within("" if is_one else cluster) for cluster, found in answers.items())
            for shape in dict.fromkeys(shapes)
            if all(shape in found for found in answers.values())
        }

    def target(self, cluster: str, shapes: Sequence[PodShape]) -> MigrationTarget:
        """What a cluster has, and which of these pods none of its hosts could take. Raises InvalidArgument for a
        cluster that is not known, Unavailable."""
        clusters = self._clusters()
        if cluster not in clusters:
            raise InvalidArgument(f"there is no cluster {cluster}, but {', '.join(sorted(clusters)) or 'none at all'}")
        if not clusters[cluster]:
            raise Unavailable(f"cluster {cluster} has no host manager at present")
        client = self._client(cluster)
        infeasible: dict[PodShape, Infeasible] = {}
        for start in range(0, len(shapes), SHAPES_PER_CALL):
            infeasible |= client.judge(shapes[start : start + SHAPES_PER_CALL])
        return MigrationTarget(client.capacity().up, client.free()[0], infeasible)

    # Capacity, for one thread.

    def capacity(self) -> Capacity:
        """Of all clusters. Raises Unavailable when none answers."""
        now_s, clusters = self._clock(), self._led()

        def ask(cluster: str) -> None:
            self._known[cluster] = Known(self._client(cluster).capacity(), now_s)
            self._held.pop(cluster, None)

        self._each(clusters, ask)
        parts = [self._counted(cluster, now_s) for cluster in clusters]
        return Capacity(*(sum(amounts, Resources()) for amounts in zip(*parts, strict=True)))

    def _counted(self, cluster: str, now_s: float) -> Capacity:
        known = self._known.get(cluster)
        if known is not None and counts_as_known(known, now_s):
            return known.capacity
        held = self._held.get(cluster)
        if held is None or now_s - held.said_s > HELD_AGE_MAX_S:
            if held is None:
                log.warning("cluster %s is silent: it counts with what its pods hold", cluster)
            amounts, revocable = self._pods.held(cluster)
            held = self._held[cluster] = Known(Capacity(amounts, revocable, amounts), now_s)
        return held.capacity._replace(registered=known.capacity.registered) if known else held.capacity
