"""The ports of a job's life on a ``Cluster``.

These are little implementations with checks, not mocks: a pod id that starts twice, or a host that is filled beyond its
slots, raises at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from peloton.errors import NotFound
from peloton.lifecycle.reason_text import infeasible_text
from peloton.lifecycle.retry import REASON_LAUNCH_REFUSED
from peloton.model.host import (
    ClusterChoice,
    Desired,
    HostLease,
    LaunchedBatch,
    LaunchResult,
    LeasedHost,
    PlacedPod,
    Placement,
    PlacementBatch,
    Prefetched,
    ReadyGang,
    Unplaced,
    count_shapes,
    find_desired,
)
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import GangProgress, JobProgress, JobRecord, Queued
from peloton.model.pod import PodShape, PodState
from peloton.model.reason import ClusterReason, Infeasibility, Infeasible, NoHost, PlacementReason, RequeueReason
from peloton.model.reservation import WaitingPod
from peloton.model.resources import Resources
from peloton.ports import REQUEUED_PODS_MAX
from peloton.scheduling.placement import place
from services.hostmgr.placing import place_and_launch
from services.storage.pods.host_pods import LaunchRow
from tests.doubles.storage.jobs import MemoryJob
from tests.workflow.cluster import UNFIT
from tests.workflow.intent import FakeIntent
from tests.workflow.port import Port, call

INFEASIBLE = Infeasible("", 4, 4, 4, wanted=UNFIT.resources, largest=Resources(cpu_milli=4_000))
WHY_UNFIT = infeasible_text((INFEASIBLE,))


def is_unfit(shape: PodShape) -> bool:
    """Return whether the shape fits no host, compared as it is placed: with its workload."""
    return shape.resources == UNFIT.resources


CREATE_CHUNK = 1_000
KILLED_MAX = 1_000_000
LEASE_S = 30.0


class FakeRecords(FakeIntent):
    def get(self, job_id: JobId) -> JobRecord | None:
        with self.cluster.lock:
            job = self.cluster.jobs.get(job_id)
            return job.record if job else None

    @call
    def create(self, job_id: JobId, on_chunk: Callable[[int], None]) -> int:
        job = self._get_known(job_id)
        for start in range(len(job.pods.records), job.record.instance_count, CREATE_CHUNK):
            job.create_pods(start, min(CREATE_CHUNK, job.record.instance_count - start), self.cluster.clock.now_ns())
            on_chunk(len(job.pods.records))
            self.cluster.on_chunk(len(job.pods.records))
        return len(job.pods.records)

    @call
    def settle(self, job_id: JobId, now_ns: int, created_max: int = 0, batch_max: int = 0) -> JobProgress:
        progress = self.cluster.storage.jobs.settle(job_id, self.cluster.clock.now_ns())
        rolled = self.cluster.rolled.get(job_id)
        if rolled is None or progress.is_finished:
            return progress
        return replace(progress, kill_count=progress.kill_count + len(rolled.ending), **rolled.read_shown())

    @call
    def delete(self, job_id: JobId, on_chunk: Callable[[int], None] = lambda instances: None) -> None:
        self.cluster.forget(job_id)

    @call
    def gang(self, job_id: JobId) -> GangProgress:
        return self.cluster.storage.pods.gang(self._get_known(job_id).record.job_id)

    @call
    def ready_gangs(self, job_id: JobId, limit: int) -> list[ReadyGang]:
        return self.cluster.storage.pods.ready_gangs(job_id, limit)

    @call
    def ready_gang(self, job_id: JobId) -> ReadyGang | None:
        return self.cluster.storage.pods.ready_gang(job_id)

    def _get_known(self, job_id: JobId) -> MemoryJob:
        if job_id not in self.cluster.jobs:
            raise NotFound(f"job {job_id} not found")
        return self.cluster.jobs[job_id]


class FakeResourceManager(Port):
    @call
    def enqueue(self, job_id: JobId, limit: int) -> Queued:
        """Queue pods; without a delay of admission the answer has the number of admitted ones."""
        admission = self.cluster.storage.admission
        ranges = admission.queueable(job_id, limit)
        count = sum(count for _, _, count in admission.mark_pending(job_id, ranges, queue_seq=1))
        if self.cluster.admission_s:
            self.cluster.clock.after(self.cluster.admission_s, self.cluster.admit)
            return Queued(count)
        return Queued(count, self.cluster.admit(heard=job_id))

    @call
    def kill_queued(self, job_id: JobId) -> int:
        killed = self.cluster.storage.admission.kill_queued(job_id, self.cluster.clock.now_ns())
        return sum(count for _, count, _ in killed)

    @call
    def requeue_gang(self, job_id: JobId, reason: RequeueReason) -> None:
        gone = self.cluster.storage.admission.requeue_gang(job_id, reason)
        if gone.held_until_ns:
            self._admit_at(gone.held_until_ns)
            self.cluster.notify(job_id)

    @call
    def requeue_pods(
        self, job_id: JobId, instances: Sequence[tuple[int, int]], reason: RequeueReason, but: Sequence[int] = ()
    ) -> int:
        assert sum(count for _, count in instances) <= REQUEUED_PODS_MAX
        gone = self.cluster.storage.admission.requeue_pods(job_id, instances, reason, but=but)
        for until_ns in {until_ns for *_, until_ns in gone.in_backoff}:
            self._admit_at(until_ns)
        if gone.queued:
            self.cluster.admit()  # other pods use their slots
        return sum(count for _, _, count in gone.queued)

    def _admit_at(self, time_ns: int) -> None:
        self.cluster.clock.after((time_ns - self.cluster.clock.now_ns()) / 1e9, self.cluster.admit)

    @call
    def note_unplaced(self, job_id: JobId, count: int, why: PlacementReason) -> int:
        self.cluster.unplaced[job_id] = (count, why)
        return 0


class FakeHostManager(Port):
    def choose_clusters(self, wanted: Sequence[tuple[PodShape, int]], preferred: Mapping[str, int]) -> ClusterChoice:
        return ClusterChoice(("",))

    @call
    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        cluster: str = "",
        waiting: Sequence[WaitingPod] = (),
    ) -> HostLease:
        missing = sum(count for shape, count in gangs if not is_unfit(shape))
        infeasible = {shape: INFEASIBLE for shape, _ in gangs if is_unfit(shape)}
        self.cluster.leases_made += 1
        lease_id, hosts = f"lease{self.cluster.leases_made}", []
        for name, host in self.cluster.hosts.items():
            if missing <= 0:
                break
            if host.lease_id or not host.free:
                continue
            host.lease_id = lease_id
            missing -= host.free
            hosts.append(LeasedHost(name, Resources(cpu_milli=host.free * 1_000), Resources()))
        if missing > 0:
            self.cluster.waiting_for_hosts.add(job_id)
        self.cluster.clock.after(LEASE_S, lambda: self._free(lease_id))
        return HostLease(lease_id, tuple(hosts), infeasible=infeasible)

    @call
    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        if self.cluster.lost_leases:
            self.cluster.lost_leases -= 1
            self._free(lease_id)
        asked = sum(len(placement.pods) for placement in placements)
        placed = {
            PodId(job_id, pod.instance_id, pod.run_id): placement.hostname
            for placement in placements
            if self.cluster.hosts[placement.hostname].lease_id == lease_id
            for pod in placement.pods
        }
        rows: list[LaunchRow] = [
            (pod_id.instance_id, pod_id.run_id, host, "agent", {}) for pod_id, host in placed.items()
        ]
        taken = self.cluster.storage.host_pods.mark_launched(job_id, rows, self.cluster.clock.now_ns())
        committed = [pod_id for pod_id in placed if pod_id.instance_id in taken]
        for pod_id in committed:
            self._launch_one(pod_id, placed[pod_id])
        self._free(lease_id)
        failed = [pod_id for pod_id in committed if pod_id in self.cluster.refused]
        launched = [pod_id for pod_id in committed if pod_id not in self.cluster.refused]
        if launched:
            self.cluster.start(launched)
        self.cluster.report(failed, lambda _: PodState.LOST, REASON_LAUNCH_REFUSED)
        return LaunchResult(len(launched), asked - len(committed), len(failed))

    def place_pods(self, job_id: JobId, gangs: Sequence[ReadyGang], for_gang: bool) -> PlacementBatch:
        batch = place(job_id, gangs, self.acquire_hosts(job_id, count_shapes(gangs), for_gang, find_desired(gangs)))
        if not batch.placements:
            self.release(batch.lease_id)
        return batch

    def place_and_launch(
        self,
        job_id: JobId,
        limit: int,
        for_gang: bool = False,
        cluster: str = "",
        *,
        others: Collection[str] = (),
        wanted: Sequence[tuple[PodShape, int]] = (),
    ) -> LaunchedBatch:
        return place_and_launch(self.cluster.storage.pods, self, job_id, limit, for_gang)

    def _launch_one(self, pod_id: PodId, hostname: Hostname) -> None:
        assert pod_id not in self.cluster.launched, f"{pod_id} launched twice"
        host = self.cluster.hosts[hostname]
        assert host.free > 0, f"{hostname} has no slot for {pod_id}"
        host.free -= 1
        self.cluster.launched[pod_id] = hostname

    @call
    def release(self, lease_id: str) -> None:
        self._free(lease_id)

    def _free(self, lease_id: str) -> None:
        for host in self.cluster.hosts.values():
            if host.lease_id == lease_id:
                host.lease_id = ""

    @call
    def kill_running(self, job_id: JobId) -> int:
        if self.cluster.ignored_kills:
            self.cluster.ignored_kills -= 1
            return 0
        rolled_count = self.cluster.rolled[job_id].kill() if job_id in self.cluster.rolled else 0
        rows = self.cluster.storage.host_pods.mark_killing(job_id, KILLED_MAX)
        ids = [pod_id for pod_id, *_ in rows]
        self.cluster.clock.after(self.cluster.kill_s, lambda: self.cluster.report(ids, lambda _: PodState.KILLED))
        return len(ids) + rolled_count


class FakePrefetcher(Port):
    @call
    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        if not self.cluster.can_prefetch:
            return Prefetched(is_possible=False)
        self.cluster.prefetched += [(image, host) for image, hosts in images.items() for host in hosts]
        return Prefetched(sum(map(len, images.values())))


def no_slot(pod_count: int) -> PlacementReason:
    return (ClusterReason(pods=(NoHost(pod_count),)),) if pod_count else ()


class FakePlacer(Port):
    """First fit, gangs whole."""

    @call
    def place(self, job_id: JobId, gangs: Sequence[ReadyGang], lease: HostLease) -> PlacementBatch:
        free = [host.hostname for host in lease.hosts for _ in range(host.free.cpu_milli // 1_000)]
        placed: dict[Hostname, list[PlacedPod]] = {}
        unplaced = 0
        left: dict[Infeasibility, list[int]] = {}
        for gang in gangs:
            if is_unfit(gang.shape) or len(gang.pods) > len(free):
                unplaced += len(gang.pods)
                left.setdefault((why,) if (why := lease.infeasible.get(gang.shape)) else (), []).append(gang.pods[0][0])
                continue
            for instance_id, run_id in gang.pods:
                placed.setdefault(free.pop(), []).append(PlacedPod(instance_id, run_id))
        placements = tuple(Placement(host, tuple(pods)) for host, pods in placed.items())
        told = tuple(Unplaced(tuple(instances), infeasible) for infeasible, instances in left.items())
        return PlacementBatch(job_id, lease.lease_id, placements, unplaced, no_slot(unplaced), told)
