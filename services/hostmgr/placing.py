"""Placement where the hosts are: each way to place pods claims hosts by one event of their state, and launches pods on
them by one call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from peloton.errors import Unavailable
from peloton.hosts.announced import Holder
from peloton.hosts.domain_counts import NO_COUNTS, Counts, join_counts
from peloton.hosts.state import HOSTS_UNKNOWN, PlacedPods
from peloton.lifecycle.reservation import waiting_pods
from peloton.model.daemon import WaitingDaemonPod
from peloton.model.host import (
    Desired,
    HostLease,
    LaunchedBatch,
    LaunchResult,
    Placement,
    PlacementBatch,
    ReadyGang,
    find_desired,
)
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape
from peloton.model.reservation import WaitingPod
from peloton.scheduling.placement import PackedPods, assemble_batch
from services.hostmgr.driver import CapacityRequest, ClusterDriver
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.metrics import PLACEMENTS, count_placed
from services.hostmgr.reserver import Reserver
from services.telemetry.metrics import timing

NOTHING_PACKED = PackedPods()


class ReadyPods(Protocol):
    def ready_gangs(self, job_id: JobId, limit: int) -> Sequence[ReadyGang]: ...

    def ready_gang(self, job_id: JobId) -> ReadyGang | None: ...


PreferredHosts = Callable[[JobId, str, Collection[int]], Mapping[Hostname, int]]
"""Returns the hosts of a job's pods in a cluster, without these instances, with the number of pods."""


class LaunchingHosts(Protocol):
    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult: ...

    def release(self, lease_id: str) -> None: ...


class PlacingHosts(LaunchingHosts, Protocol):
    def place_pods(self, job_id: JobId, gangs: Sequence[ReadyGang], for_gang: bool) -> PlacementBatch: ...


class PlacementController:
    """Placement on the hosts of one cluster. Any thread may call."""

    def __init__(
        self, cluster: str, cache: HostCache, driver: ClusterDriver, reserver: Reserver, preferred: PreferredHosts
    ) -> None:
        self._cluster, self._cache, self._driver, self._reserver = cluster, cache, driver, reserver
        self._preferred_hosts = preferred
        self._counting = threading.Lock()  # from the count of pods under a hard bound to the lease

    def place_pods(self, job_id: JobId, gangs: Sequence[ReadyGang], for_gang: bool) -> PlacementBatch:
        """Place pods, or one gang whole, on hosts that are leased until the launch."""
        shapes, desired = [*dict.fromkeys(gang.shape for gang in gangs)], find_desired(gangs)
        waiting = () if for_gang else waiting_pods(gangs)

        def place(counts: Counts) -> PlacedPods:
            return self._cache.place(job_id, gangs, time.monotonic(), for_gang, counts, waiting)

        lease, packed = self._find_hosts((job_id, for_gang), shapes, desired, NO_COUNTS, waiting, place)
        return assemble_batch(job_id, lease, packed)

    def place_daemon(self, job_id: JobId, pods: Sequence[WaitingDaemonPod]) -> PlacedPods:
        """Place pods of a daemon on their hosts, which are leased until the launch."""
        shapes = list(dict.fromkeys(pod.shape for pod in pods))

        def place() -> PlacedPods:
            return self._cache.place_daemon(job_id, pods, time.monotonic())

        return obtain(self._cache, self._driver, (job_id, False), shapes, place)

    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        elsewhere: Counts = NO_COUNTS,
        waiting: Sequence[WaitingPod] = (),
    ) -> HostLease:
        """Lease hosts on which a worker places pods. ``elsewhere`` counts the pods of the job in the other clusters,
        for shapes with spread constraints."""
        shapes = [shape for shape, _ in gangs]

        def acquire(counts: Counts) -> PlacedPods:
            now_s = time.monotonic()
            lease = self._cache.acquire(job_id, gangs, now_s, for_gang, desired=desired, counts=counts, waiting=waiting)
            return lease, NOTHING_PACKED

        return self._find_hosts((job_id, for_gang), shapes, desired, elsewhere, waiting, acquire)[0]

    def _find_hosts(
        self,
        holder: Holder,
        shapes: Sequence[PodShape],
        desired: Sequence[Desired],
        elsewhere: Counts,
        waiting: Sequence[WaitingPod],
        claim: Callable[[Counts], PlacedPods],
    ) -> PlacedPods:
        """Claim hosts by the spread of the job. A placement under a hard bound has its turn; a host is reserved for a
        pod that has waited for long."""
        job_id, _ = holder

        def count_and_claim() -> PlacedPods:
            counts = self._count_domains(job_id, shapes, [pod.instance_id for pod in desired])
            return obtain(self._cache, self._driver, holder, shapes, lambda: claim(join_counts(counts, elsewhere)))

        if _has_hard_bound(shapes):
            with self._counting:
                began_s = time.monotonic()
                self._cache.spread_turns.check(holder, began_s)
                lease, packed = count_and_claim()
                has_hosts = bool(lease.hosts or packed.placements)
                self._cache.spread_turns.record_lease(holder, lease.lease_id if has_hosts else "", began_s)
        else:
            lease, packed = count_and_claim()
        return self._reserver.reserve(job_id, lease, waiting, time.monotonic()) if waiting else lease, packed

    def count_domains(
        self,
        job_id: JobId,
        shapes: Sequence[PodShape],
        without: Collection[int] = (),
        for_gang: bool = False,
        drained: Collection[Hostname] = (),
    ) -> Counts:
        """Count domains for a placement in another cluster. Raises Unavailable before hosts are known, and while pods
        of the job that count for a hard spread constraint are being placed here. With ``drained`` the counts are for a
        plan in which these hosts are drained, and ongoing placements are ignored."""
        if _has_hard_bound(shapes) and not drained:
            self._cache.spread_turns.check((job_id, for_gang), time.monotonic())
        return self._count_domains(job_id, shapes, without, drained)

    def _count_domains(
        self, job_id: JobId, shapes: Sequence[PodShape], without: Collection[int], drained: Collection[Hostname] = ()
    ) -> Counts:
        """Count the pods of the job by domain in this cluster, except the instances ``without``, and the open domains
        for pods of these shapes."""
        spread = [shape for shape in shapes if shape.layout and shape.layout.spread]
        if not spread:
            return NO_COUNTS
        if not self._cache.are_hosts_known:
            raise Unavailable(HOSTS_UNKNOWN)
        return self._cache.domains.count(spread, self._preferred_hosts(job_id, self._cluster, without), drained)


def place_and_launch(
    pods: ReadyPods, hosts: PlacingHosts, job_id: JobId, limit: int, for_gang: bool, others: Collection[str] = ()
) -> LaunchedBatch:
    """Place at most ``limit`` READY pods that are not in a gang, or the gang whole, and launch them. Pods that return
    to a host in one of the ``others``, clusters that are tried as well, are left to them. Raises Unavailable and
    NotFound; the lease has ended then."""
    gangs = [gang for gang in _read_ready(pods, job_id, limit, for_gang) if gang.desired_cluster not in others]
    if not gangs:
        return LaunchedBatch(LaunchResult(0), PlacementBatch(job_id, ""))
    with timing(PLACEMENTS):
        batch = hosts.place_pods(job_id, gangs, for_gang)
    count_placed(batch)
    launch = launch_placed(hosts, job_id, batch.lease_id, batch.placements)
    return LaunchedBatch(launch, replace(batch, lease_id="", placements=()))


def launch_placed(hosts: LaunchingHosts, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
    """Launch placed pods; the lease ends, also when an error is raised. A lease without placements has no hosts."""
    if not placements:
        return LaunchResult(0)
    try:
        return hosts.launch(job_id, lease_id, placements)  # releases the lease after its claim
    except Exception:
        hosts.release(lease_id)  # the claim may have failed
        raise


def obtain(
    cache: HostCache,
    driver: ClusterDriver,
    holder: Holder,
    shapes: Sequence[PodShape],
    claim: Callable[[], PlacedPods],
) -> PlacedPods:
    """Claim hosts by their offers, and once more when the driver obtains further offers on request."""
    placed = claim()
    lease, _ = placed
    asked = CapacityRequest(holder, shapes, lease.short, lease.has_deprioritized_hosts, cache.may_fit)
    if driver.request_capacity(asked):
        placed = claim()  # the first lease ends
    short = placed[0].short
    driver.demand_met(holder, [shape for shape in shapes if shape not in short])
    return placed


def _read_ready(pods: ReadyPods, job_id: JobId, limit: int, for_gang: bool) -> Sequence[ReadyGang]:
    if not for_gang:
        return pods.ready_gangs(job_id, limit)
    gang = pods.ready_gang(job_id)
    return [gang] if gang else []


def _has_hard_bound(shapes: Iterable[PodShape]) -> bool:
    """Return whether a shape has a hard bound on skew."""
    return any(shape.layout and shape.layout.is_hard for shape in shapes)
