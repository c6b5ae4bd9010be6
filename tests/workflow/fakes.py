"""The ports of a job's life on a ``Cluster``.

These are little implementations with checks, not mocks: a pod id that starts twice, or a host that takes more than it
has, raises at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from peloton.errors import NotFound
from peloton.lifecycle.gang import HOLD, Stage, Step, judge, member_of, progress_of, stage
from peloton.lifecycle.reason_text import infeasible_text, requeue_text
from peloton.lifecycle.retry import REASON_LAUNCH_REFUSED
from peloton.model.host import (
    ClusterChoice,
    Desired,
    HostLease,
    LaunchResult,
    LeasedHost,
    PlacedPod,
    Placement,
    PlacementBatch,
    Prefetched,
    ReadyGang,
    Unplaced,
)
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JOB_TERMINAL, GangProgress, JobProgress, JobRecord, JobState, Queued
from peloton.model.pod import ON_HOST, PodRecord, PodShape, PodState
from peloton.model.reason import ClusterReason, Infeasibility, Infeasible, NoHost, PlacementReason, RequeueReason
from peloton.model.resources import Resources
from peloton.model.update import UpdateProgress
from peloton.ports import REQUEUED_PODS_MAX
from services.storage.memory.pods import MemoryPods
from tests.workflow.cluster import Job
from tests.workflow.intent import FakeIntent
from tests.workflow.port import Port, call

SHAPE = PodShape(Resources(cpu_milli=1_000))
UNFIT = PodShape(Resources(cpu_milli=7_000))
INFEASIBLE = Infeasible("", 4, 4, 4, wanted=UNFIT.resources, largest=Resources(cpu_milli=4_000))
WHY_UNFIT = infeasible_text((INFEASIBLE,))
CREATE_CHUNK = 1_000
QUEUED = (PodState.PENDING, PodState.READY)
LEASE_S = 30.0


class FakeRecords(FakeIntent):
    def get(self, job_id: JobId) -> JobRecord | None:
        with self.cluster.lock:
            job = self.cluster.jobs.get(job_id)
            return job.record if job else None

    @call
    def create(self, job_id: JobId, on_chunk: Callable[[int], None]) -> int:
        job = self._known(job_id)
        for start in range(0, job.record.instance_count, CREATE_CHUNK):
            for i in range(start, min(start + CREATE_CHUNK, job.record.instance_count)):
                goal = PodState.KILLED if job.record.goal is JobState.KILLED else PodState.SUCCEEDED
                new = PodRecord(
                    job_id, i, 1, PodState.INITIALIZED, goal, 1, 1, desired_run_id=1, max_failures=job.max_failures
                )
                job.pods.setdefault(i, new)
            on_chunk(len(job.pods))
            self.cluster.on_chunk(len(job.pods))
        return len(job.pods)

    @call
    def settle(self, job_id: JobId, now_ns: int) -> JobProgress:
        job = self._known(job_id)
        if job.record.state in JOB_TERMINAL:
            return JobProgress(job.record.state, self.cluster.counts(job_id))
        pods = MemoryPods(job_id, job.record.gang_size)
        for pod in job.pods.values():
            pods.put(pod)
        job.record, progress = pods.settle(job.record, self.cluster.clock.now_ns())
        job.pods = pods.records
        rolled = self.cluster.rolled.get(job_id)
        if rolled is None or progress.is_finished:
            return progress
        return replace(progress, kill_count=progress.kill_count + len(rolled.ending), **rolled.looked_at())

    @call
    def delete(self, job_id: JobId) -> None:
        self.cluster.forget(job_id)

    @call
    def advance(self, job_id: JobId, now_ns: int) -> UpdateProgress:
        return self.cluster.rolled[job_id].advance(now_ns)

    @call
    def images_to_prefetch(self, job_id: JobId) -> dict[str, list[Hostname]]:
        return self.cluster.rolled[job_id].coming_images()

    @call
    def gang(self, job_id: JobId) -> GangProgress:
        job = self._known(job_id)
        if job.record.state in JOB_TERMINAL or not job.gang:
            return GangProgress(0)
        return progress_of(job.record.gang_size, Counter(map(member_of, job.gang)))

    @call
    def ready_gangs(self, job_id: JobId, limit: int) -> list[ReadyGang]:
        job = self._known(job_id)
        ready = [p for p in _ready(job) if not job.is_member(p)]
        now_ns = self.cluster.clock.now_ns()
        return [
            ReadyGang(
                UNFIT if p.instance_id in self.cluster.unfit else SHAPE,
                ((p.instance_id, p.run_id),),
                waited_s=(now_ns - job.admitted_ns[p.instance_id]) / 1e9,
            )
            for p in ready[:limit]
        ]

    @call
    def ready_gang(self, job_id: JobId) -> ReadyGang | None:
        job = self._known(job_id)
        gang = [p for p in _ready(job) if job.is_member(p)]
        is_whole = bool(gang) and len(gang) == job.record.gang_size
        shape = UNFIT if any(p.instance_id in self.cluster.unfit for p in gang) else SHAPE
        return ReadyGang(shape, tuple((p.instance_id, p.run_id) for p in gang)) if is_whole else None

    def _known(self, job_id: JobId) -> Job:
        if job_id not in self.cluster.jobs:
            raise NotFound(f"job {job_id} not found")
        return self.cluster.jobs[job_id]


def _ready(job: Job) -> list[PodRecord]:
    return [p for p in job.pods.values() if p.state is PodState.READY and p.goal is not PodState.KILLED]


def _must_end(pod: PodRecord) -> bool:
    is_wanted = pod.goal is not PodState.KILLED and (pod.desired_run_id == pod.run_id or pod.state not in ON_HOST)
    return not is_wanted and pod.state is not PodState.KILLING


class FakeResourceManager(Port):
    @call
    def enqueue(self, job_id: JobId, limit: int) -> Queued:
        """Without a delay of admission the answer tells of it."""
        job = self.cluster.jobs[job_id]
        waiting = [p for p in job.pods.values() if p.state is PodState.INITIALIZED and p.goal is not PodState.KILLED]
        gang = [p for p in waiting if job.is_member(p)]
        alone = [p for p in waiting if not job.is_member(p)]
        chosen = [*(gang if len(gang) == job.record.gang_size else []), *alone][:limit]
        for pod in chosen:
            job.pods[pod.instance_id] = replace(pod, state=PodState.PENDING)
        if self.cluster.admission_s:
            self.cluster.clock.after(self.cluster.admission_s, self.cluster.admit)
            return Queued(len(chosen))
        return Queued(len(chosen), self.cluster.admit(heard=job_id))

    @call
    def kill_queued(self, job_id: JobId) -> int:
        job = self.cluster.jobs[job_id]
        chosen = [
            p for p in job.pods.values() if p.goal is PodState.KILLED and p.state in (PodState.PENDING, PodState.READY)
        ]
        for pod in chosen:
            job.pods[pod.instance_id] = replace(pod, state=PodState.KILLED)
        return len(chosen)

    @call
    def requeue_gang(self, job_id: JobId, reason: RequeueReason) -> None:
        job, now_ns = self.cluster.jobs[job_id], self.cluster.clock.now_ns()
        members = {pod.instance_id: member_of(pod) for pod in job.gang}
        verdict = judge(progress_of(job.record.gang_size, Counter(members.values())))
        if verdict.step in (Step.RUNNING, Step.SUPERSEDED):
            return
        if job.held_until_ns <= now_ns:
            job.requeue_count += 1
            job.held_until_ns = now_ns + HOLD.delay_ns(job.requeue_count)
            self.cluster.clock.after(HOLD.delay_ns(job.requeue_count) / 1e9, self.cluster.admit)
        is_whole = all(stage(member) is Stage.READY for member in members.values())
        for i, member in members.items():
            if stage(member) is Stage.READY:
                back = PodState.PENDING if is_whole else PodState.INITIALIZED
                job.pods[i] = replace(job.pods[i], state=back, message=requeue_text(reason))
            elif stage(member) in (Stage.STARTING, Stage.RUNNING):
                job.pods[i] = replace(job.pods[i], desired_run_id=job.pods[i].run_id + 1, message=requeue_text(reason))
        self.cluster.tell(job_id)

    @call
    def requeue_pods(self, job_id: JobId, instances: Sequence[tuple[int, int]], reason: RequeueReason) -> int:
        job, now_ns = self.cluster.jobs[job_id], self.cluster.clock.now_ns()
        assert sum(count for _, count in instances) <= REQUEUED_PODS_MAX
        chosen = [p for p in _ready(job) if any(start <= p.instance_id < start + count for start, count in instances)]
        for pod in chosen:
            assert not job.is_member(pod), f"{pod.pod_id} does not stand alone"
            job.vain_counts[pod.instance_id] += 1
            delay_ns = HOLD.delay_ns(job.vain_counts[pod.instance_id])
            job.pods_held_until_ns[pod.instance_id] = now_ns + delay_ns
            self.cluster.clock.after(delay_ns / 1e9, self.cluster.admit)
            job.pods[pod.instance_id] = replace(pod, state=PodState.PENDING, message=requeue_text(reason))
        if chosen:
            self.cluster.admit()  # others have their room
        return len(chosen)

    @call
    def note_unplaced(self, job_id: JobId, count: int, why: PlacementReason) -> int:
        self.cluster.unplaced[job_id] = (count, why)
        return 0


class FakeHostManager(Port):
    def choose_clusters(self, wanted: Sequence[tuple[PodShape, int]], homes: Mapping[str, int]) -> ClusterChoice:
        return ClusterChoice(("",))

    @call
    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        cluster: str = "",
    ) -> HostLease:
        missing = sum(count for shape, count in gangs if shape != UNFIT)
        infeasible = {shape: INFEASIBLE for shape, _ in gangs if shape == UNFIT}
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
        job, launched, asked = self.cluster.jobs[job_id], [], 0
        if self.cluster.lost_leases:
            self.cluster.lost_leases -= 1
            self._free(lease_id)
        failed: list[PodId] = []
        for placement in placements:
            host = self.cluster.hosts[placement.hostname]
            asked += len(placement.pods)
            if host.lease_id != lease_id:
                continue
            for placed in placement.pods:
                pod = job.pods[placed.instance_id]
                if pod.state is PodState.READY and pod.run_id == placed.run_id and pod.goal is not PodState.KILLED:
                    self._launch_one(job, pod, placement.hostname)
                    (failed if pod.pod_id in self.cluster.refused else launched).append(pod.pod_id)
        self._free(lease_id)
        if launched:
            self.cluster.start(launched)
        self.cluster.report(failed, lambda _: PodState.LOST, REASON_LAUNCH_REFUSED)
        return LaunchResult(len(launched), asked - len(launched) - len(failed), len(failed))

    def _launch_one(self, job: Job, pod: PodRecord, hostname: Hostname) -> None:
        assert pod.pod_id not in self.cluster.launched, f"{pod.pod_id} launched twice"
        host = self.cluster.hosts[hostname]
        assert host.free > 0, f"{hostname} has no slot for {pod.pod_id}"
        host.free -= 1
        self.cluster.launched[pod.pod_id] = hostname
        job.pods[pod.instance_id] = replace(pod, state=PodState.LAUNCHED, host=hostname)

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
        job = self.cluster.jobs.get(job_id)
        if job is None:
            return rolled_count
        chosen = [p for p in job.pods.values() if p.state in ON_HOST and _must_end(p)]
        for pod in chosen:
            job.pods[pod.instance_id] = replace(pod, state=PodState.KILLING)
        ids = [p.pod_id for p in chosen]
        self.cluster.clock.after(self.cluster.kill_s, lambda: self.cluster.report(ids, lambda _: PodState.KILLED))
        return len(chosen) + rolled_count


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
            if gang.shape == UNFIT or len(gang.pods) > len(free):
                unplaced += len(gang.pods)
                left.setdefault((why,) if (why := lease.infeasible.get(gang.shape)) else (), []).append(gang.pods[0][0])
                continue
            for instance_id, run_id in gang.pods:
                placed.setdefault(free.pop(), []).append(PlacedPod(instance_id, run_id))
        placements = tuple(Placement(host, tuple(pods)) for host, pods in placed.items())
        told = tuple(Unplaced(tuple(instances), infeasible) for infeasible, instances in left.items())
        return PlacementBatch(job_id, lease.lease_id, placements, unplaced, no_slot(unplaced), told)
