"""The host managers of all clusters behind one interface. Each call goes to the clusters that it concerns; a cluster
that does not respond delays only calls that require it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from peloton.errors import InvalidArgument, PelotonError, Unavailable, Unimplemented
from peloton.lifecycle.constraints import may_hold_in
from peloton.lifecycle.daemon import join_steps
from peloton.model.advice import Mark, Marked
from peloton.model.daemon import DaemonPlan, DaemonReach, DaemonStep
from peloton.model.host import (
    Capacity,
    ClusterChoice,
    ClusterSums,
    Desired,
    HostLease,
    LaunchedBatch,
    LaunchResult,
    Placement,
    Prefetched,
)
from peloton.model.host_pool import HostPoolTotals, sum_totals
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import DomainCount
from peloton.model.migration import MigrationTarget
from peloton.model.planned_capacity import CapacityAnswer, PlannedPods, lacking_capacity
from peloton.model.pod import PodShape
from peloton.model.reason import ClusterReason, ClusterRule, Infeasibility, Infeasible
from peloton.model.reservation import WaitingPod
from peloton.model.resources import Resources
from peloton.model.text import shorten
from peloton.ports import ClusterOfHosts, HeldResources
from peloton.scheduling.clusters import ClusterView, Known, counts_as_known, order_clusters, total_of
from services.hostmgr.client import HostManagerClient

log = logging.getLogger(__name__)
T = TypeVar("T")
_Counts = Mapping[PodShape, Sequence[DomainCount]]

FREE_AGE_MAX_S = 5.0
"""Maximum age of the cached free resources per cluster, when there are several clusters."""
HELD_AGE_MAX_S = 60.0
SHAPES_PER_CALL = 100
"""Limit of shapes that a host manager evaluates in one call."""
NO_LEADER = "no hostmgr leads at present"


class HostManagers:
    """Implements ``ports.HostManager``, ``ports.MaintenanceControllers``, ``ports.DaemonController`` and
    ``ports.ImagePrefetcher``, and sums up the capacity.

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
        """``clusters`` maps all clusters to the address of the host manager, empty while none leads."""
        self._clusters = clusters
        self._client = client
        self._hosts, self._pods = hosts, pods
        self._clock = clock
        self._lock = threading.Lock()
        self._free: dict[str, Resources] = {}
        self._kinds: dict[str, str] = {}  # of clusters that have answered; the kind never changes
        self._free_asked_s = -FREE_AGE_MAX_S
        self._known: dict[str, Known] = {}
        self._held: dict[str, Known] = {}

    # Placement.

    def choose_clusters(self, wanted: Sequence[tuple[PodShape, int]], preferred: Mapping[str, int]) -> ClusterChoice:
        """Order the clusters for a placement. Raises Unavailable while no host manager leads."""
        clusters = self._clusters_with_leader()
        if len(clusters) == 1:
            return ClusterChoice(tuple(clusters))
        free, kinds = self._free_of(clusters), self._kinds
        views = [
            ClusterView(name, free.get(name, Resources()), not address, kinds.get(name, ""))
            for name, address in clusters.items()
        ]
        return order_clusters(views, wanted, preferred)

    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        cluster: str = "",
        waiting: Sequence[WaitingPod] = (),
    ) -> HostLease:
        shapes = [shape for shape, _ in gangs if shape.layout and shape.layout.spread]
        count = partial(self._elsewhere, job_id, shapes, cluster, desired, for_gang)
        elsewhere = count() if shapes else {}
        client = self._client(cluster)
        lease = client.acquire_hosts(job_id, gangs, for_gang, desired, elsewhere, waiting)
        if lease.hosts and any(shape.layout and shape.layout.is_hard for shape in elsewhere):
            try:
                self._check_still(job_id, elsewhere, count())
            except PelotonError:
                client.release(lease.lease_id)
                raise
        if lease.hosts:
            self._take_free(cluster, gangs)
        return replace(lease, lease_id=f"{cluster}/{lease.lease_id}")

    def _elsewhere(
        self,
        job_id: JobId,
        shapes: Sequence[PodShape],
        cluster: str,
        desired: Sequence[Desired],
        for_gang: bool,
    ) -> _Counts:
        """Count the job's pods and its open domains in the other clusters. Raises Unavailable when one of them does
        not answer and a bound on skew is hard."""
        found: dict[PodShape, Sequence[DomainCount]] = {}
        for other in sorted(self._clusters().keys() - {cluster}):
            mine = [shape for shape in shapes if may_hold_in(shape.constraint, other, self._kinds.get(other, ""))]
            try:
                without = [pod.instance_id for pod in desired]
                counts = self._client(other).count_domains(job_id, mine, without, for_gang) if mine else {}
            except Unavailable as error:
                if any(shape.layout and shape.layout.is_hard for shape in mine):
                    raise Unavailable(f"how pods spread in cluster {other} is not known: {error.message}") from error
                continue
            for shape, own in counts.items():
                before = found.get(shape)
                found[shape] = [a.plus(b) for a, b in zip(before, own, strict=True)] if before else own
        return found

    @staticmethod
    def _check_still(job_id: JobId, before: _Counts, now: _Counts) -> None:
        """Raise Unavailable if other pods of the job were placed between the count and the lease."""
        if any([c.pods for c in now.get(shape, ())] != [c.pods for c in counts] for shape, counts in before.items()):
            raise Unavailable(f"other pods of job {job_id} were placed meanwhile, which count for its spread")

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        """Launch in the cluster of the lease. Refuses all pods when that cluster has no leader and another cluster
        has one: the lease is lost, and pods that an earlier call launched are no longer READY."""
        cluster, own_id = self._of_lease(lease_id)
        clusters = self._clusters()
        if any(clusters.values()) and not clusters.get(cluster):
            return LaunchResult(0, refused_count=sum(len(placement.pods) for placement in placements))
        return self._client(cluster).launch(job_id, own_id, placements)

    def place_and_launch(
        self,
        job_id: JobId,
        limit: int,
        for_gang: bool = False,
        cluster: str = "",
        *,
        others: Collection[str] = (),
        wanted: Sequence[tuple[PodShape, int]] = (),
    ) -> LaunchedBatch | None:
        clusters = self._clusters_with_leader()
        if not cluster and len(clusters) > 1:
            return None
        try:
            client = self._client(cluster or next(iter(clusters)))
            found = client.place_and_launch(job_id, limit, for_gang, sorted(others))
        except Unimplemented:  # a host manager of the last release lacks the method
            return None
        if cluster and found.launch.launched_count:
            self._take_free(cluster, wanted)
        return found

    def release(self, lease_id: str) -> None:
        cluster, own_id = self._of_lease(lease_id)
        self._client(cluster).release(own_id)

    def _of_lease(self, lease_id: str) -> tuple[str, str]:
        """Return the cluster and the id of a lease. A lease without a cluster was made when there was only one."""
        cluster, separator, own_id = lease_id.partition("/")
        return (cluster, own_id) if separator else (next(iter(self._clusters_with_leader())), lease_id)

    def kill_running(self, job_id: JobId) -> int:
        """Kill in every cluster that answers; the job repeats the call for the others. Raises Unavailable when none
        answers."""
        return sum(self._each(self._clusters_with_leader(), lambda cluster: self._client(cluster).kill_running(job_id)))

    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        clusters = self._clusters_with_leader()
        if len(clusters) == 1:
            return self._client(next(iter(clusters))).prefetch(images)
        cluster_by_host = self._hosts.clusters_of([host for hosts in images.values() for host in hosts])

        def ask(cluster: str) -> Prefetched:
            mine = {image: [h for h in hosts if cluster_by_host.get(h) == cluster] for image, hosts in images.items()}
            return self._client(cluster).prefetch({image: hosts for image, hosts in mine.items() if hosts})

        answers = self._each(sorted(set(cluster_by_host.values())), ask)
        return Prefetched(sum(one.asked_count for one in answers), any(one.is_possible for one in answers))

    def step_daemon(self, job_id: JobId, after: int) -> DaemonStep:
        """Run the step in every cluster that answers. Raises Unavailable when none does."""
        clusters = self._clusters_with_leader()
        is_one = len(clusters) == 1

        def ask(cluster: str) -> DaemonStep:
            step = self._client(cluster).step_daemon(job_id, after)
            return step if is_one else replace(step, why=tuple(reason.within(cluster) for reason in step.why))

        return join_steps(self._each(clusters, ask))

    def controller(self, cluster: str) -> HostManagerClient:
        return self._client(cluster)

    def _each(self, clusters: Collection[str], ask: Callable[[str], T]) -> list[T]:
        """Return the answers of the clusters that respond. Raises Unavailable when clusters were asked and none
        answered."""
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

    def _clusters_with_leader(self) -> Mapping[str, str]:
        """Return all clusters, at least one of which has a leading host manager."""
        clusters = self._clusters()
        if not any(clusters.values()):
            raise Unavailable(NO_LEADER)
        return clusters

    def _free_of(self, clusters: Mapping[str, str]) -> Mapping[str, Resources]:
        """Return recently read free resources, less the amounts leased through this object since."""
        with self._lock:
            now_s = self._clock()
            if now_s - self._free_asked_s < FREE_AGE_MAX_S:
                return dict(self._free)
            self._free_asked_s = now_s  # before the calls: other threads use the old amounts meanwhile
        found: dict[str, Resources] = {}
        for cluster, address in clusters.items():
            if address:
                try:
                    found[cluster], self._kinds[cluster] = self._client(cluster).free()
                except Unavailable as error:
                    log.info("free resources of cluster %s are unknown: %s", cluster, error)
        with self._lock:
            self._free = found
            return dict(found)

    def _take_free(self, cluster: str, gangs: Sequence[tuple[PodShape, int]]) -> None:
        taken = sum((shape.resources * count for shape, count in gangs), Resources())
        with self._lock:
            if cluster in self._free:
                self._free[cluster] = self._free[cluster].without(taken)

    def evaluate(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasibility]:
        """Return the pods that no host of any cluster could take even if it were empty, with the reason. Raises
        Unavailable when a cluster does not answer: one of its hosts might take them."""
        answers = {cluster: self._client(cluster).evaluate(shapes) for cluster in sorted(self._clusters_with_leader())}
        is_one = len(answers) == 1
        return {
            shape: tuple(found[shape].within("" if is_one else cluster) for cluster, found in answers.items())
            for shape in dict.fromkeys(shapes)
            if all(shape in found for found in answers.values())
        }

    def reach(self, shape: PodShape) -> list[DaemonReach]:
        """Return on which hosts a daemon with such pods runs, by cluster. Raises Unavailable when a cluster does not
        answer."""
        answers = {cluster: self._client(cluster).reach(shape) for cluster in sorted(self._clusters_with_leader())}
        is_one = len(answers) == 1
        return [replace(one, cluster="" if is_one else cluster) for cluster, one in answers.items()]

    def plan_daemon(self, shape: PodShape) -> dict[str, DaemonPlan | PelotonError]:
        """Return by cluster the free resources that a daemon with such pods would find on the hosts now, or the error.
        The cluster's name is empty where there is only one. Raises Unavailable while no host manager leads."""
        found: dict[str, DaemonPlan | PelotonError] = {}
        clusters = sorted(self._clusters_with_leader())
        for cluster in clusters:
            name = cluster if len(clusters) > 1 else ""
            try:
                answer = self._client(cluster).plan_daemon(shape)
                found[name] = replace(answer, reach=replace(answer.reach, cluster=name))
            except (Unavailable, Unimplemented) as error:  # a host manager of the last release lacks the method
                found[name] = error
        return found

    def find_capacity(self, pods: Sequence[PlannedPods]) -> CapacityAnswer:
        """Return for how many of these planned pods the clusters have free resources now. Each cluster is asked about
        the pods that the previous ones could not take. Raises Unavailable when none answers."""
        choice = self.choose_clusters([(each.shape, each.count) for each in pods], {})
        why, counts, faults = list(choice.passed_over), [0] * len(pods), list[PelotonError]()
        for cluster in choice.order:
            left = [at for at, each in enumerate(pods) if counts[at] < each.count]
            mine = [replace(pods[at], count=pods[at].count - counts[at]) for at in left]
            if not mine:
                break
            try:
                capacities = self._client(cluster).find_capacity(mine)
            except (Unavailable, Unimplemented) as error:  # a host manager of the last release lacks the method
                faults.append(error)
                why.append(ClusterReason(cluster, ClusterRule.FAILED, detail=error.message))
                continue
            for at, answer in zip(left, capacities, strict=True):
                counts[at] += answer.count
            why += lacking_capacity(cluster, mine, capacities)
        if faults and len(faults) == len(choice.order):
            raise Unavailable(faults[0].message)
        is_one = len(self._clusters()) == 1
        named = (reason.within("" if is_one else reason.cluster) for reason in why)
        return CapacityAnswer(tuple(counts), tuple(sorted(named, key=lambda reason: reason.cluster)))

    def host_pool_totals(self, hosts_of: str = "") -> tuple[dict[str, HostPoolTotals], list[Hostname]]:
        """Sum up the free resources of host pools over all clusters. Raises Unavailable when a cluster does not
        answer, as its part is unknown, and Unimplemented while host pools are disabled in one of them."""
        capacities: dict[str, HostPoolTotals] = {}
        hosts: list[Hostname] = []
        for cluster in sorted(self._clusters_with_leader()):
            mine, named = self._client(cluster).host_pool_totals(hosts_of)
            hosts += named
            capacities |= {
                name: sum_totals((capacities.get(name, HostPoolTotals()), answer)) for name, answer in mine.items()
            }
        return capacities, sorted(hosts)

    def advice(self) -> tuple[dict[Hostname, Marked], dict[JobId, Marked]]:
        """Return hosts and services marked orange or red, in the clusters that answer."""
        answers = self._each(self._clusters_with_leader(), lambda cluster: self._client(cluster).advice())
        hosts: dict[Hostname, Marked] = {}
        services: dict[JobId, Marked] = {}
        for of_hosts, of_services in answers:
            hosts |= of_hosts
            for job, marked in of_services.items():
                if job not in services or marked.mark is Mark.RED:
                    services[job] = marked
        return hosts, services

    def sums(self) -> dict[str, ClusterSums]:
        """Return sums by cluster for the clusters that answer; a host manager of the last release lacks the method."""
        found: dict[str, ClusterSums] = {}
        for cluster, address in sorted(self._clusters().items()):
            if address:
                with suppress(Unavailable, Unimplemented):
                    found[cluster] = self._client(cluster).sums()
        return found

    def target(self, cluster: str, shapes: Sequence[PodShape]) -> MigrationTarget:
        """Return the capacity of a cluster, and which of these pods none of its hosts could take. Raises
        InvalidArgument for an unknown cluster, Unavailable."""
        clusters = self._clusters()
        if cluster not in clusters:
            raise InvalidArgument(
                f"unknown cluster {shorten(cluster)}; known clusters: {', '.join(sorted(clusters)) or 'none'}"
            )
        if not clusters[cluster]:
            raise Unavailable(f"cluster {cluster} has no host manager at present")
        client = self._client(cluster)
        infeasible: dict[PodShape, Infeasible] = {}
        for start in range(0, len(shapes), SHAPES_PER_CALL):
            infeasible |= client.evaluate(shapes[start : start + SHAPES_PER_CALL])
        return MigrationTarget(client.capacity().up, client.free()[0], infeasible)

    # Capacity; called by one thread.

    def capacity(self) -> Capacity:
        """Sum up the capacity of all clusters. Raises Unavailable when none answers."""
        now_s, clusters = self._clock(), self._clusters_with_leader()

        def ask(cluster: str) -> None:
            self._known[cluster] = Known(self._client(cluster).capacity(), now_s)
            self._held.pop(cluster, None)

        self._each(clusters, ask)
        parts = [self._read_capacity(cluster, now_s) for cluster in clusters]
        return total_of(parts)

    def _read_capacity(self, cluster: str, now_s: float) -> Capacity:
        known = self._known.get(cluster)
        if known is not None and counts_as_known(known, now_s):
            return known.capacity
        held = self._held.get(cluster)
        if held is None or now_s - held.said_s > HELD_AGE_MAX_S:
            if held is None:
                log.warning("cluster %s does not answer: its capacity is counted as what its pods hold", cluster)
            amounts, revocable = self._pods.sum_held(cluster)
            held = self._held[cluster] = Known(Capacity(amounts, revocable, amounts), now_s)
        return held.capacity._replace(registered=known.capacity.registered) if known else held.capacity
