"""One cluster through the day: the scheduler is Peloton's, its hosts and their clock are simulated."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from day import BATCH, BEST_EFFORT, DATABASES, KINDS, SERVICES, STEP_S, STEPS, Work, core_hours

from peloton.lifecycle.reservation import Candidate, limit_reserved, soonest
from peloton.model.daemon import Neighbour
from peloton.model.host import HostLease, LeasedHost, ReadyGang
from peloton.model.ids import ROOT_POOL_ID, Hostname, JobId, PodId, RespoolId
from peloton.model.pod import PodShape
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED, Resources, ordinary
from peloton.model.respool import PoolResource, PoolSpec
from peloton.scheduling.cycle import Evictable, Snapshot, plan_cycle
from peloton.scheduling.eviction import HeldRun
from peloton.scheduling.gangs import Footprint, GangRun, QueueKind, Usage
from peloton.scheduling.placement import place
from peloton.scheduling.preemption import over_entitled
from peloton.scheduling.qos import HostLoad, HostWatch, QosPolicy, RevocablePod, Use, corrections, observe
from peloton.scheduling.slack import estimate, smooth
from peloton.scheduling.tree import CPU, KIND_COUNT, Ints, build_tree

HOST = Resources.of(cpu=32, memory_mb=128 * 1024)
PODS_MAX = 100_000  # in one cycle
WAIT_STEPS_MAX = 3
"""Steps after which a service or database pod without a host makes the cluster too small."""


@dataclass(slots=True)
class Pod:
    host: int
    since: int


@dataclass(slots=True, eq=False)
class Job:
    job_id: JobId
    work: Work
    row: int
    shape: PodShape
    footprint: Footprint
    number: int
    waiting: set[int] = field(default_factory=set)  # in the queue
    ready: set[int] = field(default_factory=set)  # admitted, without a host
    running: dict[int, Pod] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)  # the step since which an instance is wanted and does not run

    def used_milli(self, step: int) -> int:
        """Return the cpu that one pod uses."""
        return self.shape.resources.cpu_milli * self.work.used_percent[step] // 100

    def runs(self, instances: Iterable[int]) -> Iterator[GangRun]:
        """Yield runs of consecutive instances, of which there is one at least."""
        ordered = sorted(instances)
        starts = [at for at, one in enumerate(ordered) if not at or ordered[at - 1] != one - 1]
        for begin, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
            shape = self.shape
            yield GangRun(
                self.job_id, ordered[begin], end - begin, 1, tuple(shape.resources), 0, self.number,
                preemptible=shape.preemptible, revocable=shape.revocable,
            )  # fmt: skip


@dataclass(slots=True)
class Figures:
    """The results of a day; amounts are thousandths of a core, one per step."""

    hosts: int
    held: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # by kind
    used: list[int] = field(default_factory=list)
    waits_s: list[int] = field(default_factory=list)  # of batch pods, for each of their starts
    evicted: int = 0
    lost_core_h: float = 0.0  # of evicted pods, which begin again
    done_core_h: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # of pods that ended, by kind
    too_small: str = ""


class Cluster:
    """H like hosts, three pools below the root; all reservations together are the capacity."""

    def __init__(self, works: Sequence[Work], host_count: int) -> None:
        self._total = np.array([tuple(HOST)] * host_count, np.int64)
        self._free, self._slack, self._last_use = self._total.copy(), np.zeros(host_count, np.int64), [0] * host_count
        self._slack_free = self._slack.copy()
        self._capacity: Ints = self._total.sum(axis=0)
        self._tree = build_tree(_pools(works, self._capacity))
        empty = np.zeros((len(self._tree.ids), KIND_COUNT), np.int64)
        self._usage = Usage(empty, empty.copy(), empty.copy(), empty.copy())
        self._oversubscribes = any(work.kind == BEST_EFFORT for work in works)
        self._by_id = {job.job_id: job for job in (self._job(number, work) for number, work in enumerate(works))}
        self._active: list[Job] = []  # that have arrived and not ended
        self._pods_on: list[dict[tuple[JobId, int], Job]] = [{} for _ in range(host_count)]
        self._reserved: dict[tuple[JobId, int], int] = {}  # the host that is reserved for a pod
        self.figures = Figures(host_count)

    def _job(self, number: int, work: Work) -> Job:
        is_batch = work.kind in (BATCH, BEST_EFFORT)
        shape = PodShape(work.need, preemptible=is_batch, revocable=work.kind == BEST_EFFORT)
        row = self._tree.row[RespoolId(BATCH if is_batch else work.kind)]
        footprint = Footprint(tuple(work.need), shape.preemptible, shape.revocable, False)
        return Job(JobId(str(uuid.UUID(int=number + 1))), work, row, shape, footprint, number)

    def run(self) -> Figures:
        """Play the day, up to the step at which the cluster turns out too small."""
        for step in range(STEPS):
            self._change_demand(step)
            if self._oversubscribes:
                self._measure(step)
            over = self._cycle()
            self._place(step)
            self._sample(step)
            if self.figures.too_small:
                return self.figures
            if over:
                self._preempt(step, over)
        late = sum(len(job.asked) + len(job.running) for job in self._active if job.work.kind == BATCH)
        if late:
            self.figures.too_small = f"{late} batch pods have not ended at midnight"
        return self.figures

    # What wants to run.

    def _change_demand(self, step: int) -> None:
        arrived = [job for job in self._by_id.values() if job.work.arrives == step]
        for job in arrived:
            self._ask(job, range(len(job.work.run_steps)), step)
        self._active += arrived
        for job in self._active:
            work = job.work
            if not work.counts:
                for instance in [one for one, pod in job.running.items() if step - pod.since >= work.run_steps[one]]:
                    self._stop(job, instance)
                    self.figures.done_core_h[work.kind] += work.core_hours(instance)
            else:
                have = len(job.waiting) + len(job.ready) + len(job.running)
                self._ask(job, range(have, work.counts[step]), step)
                for instance in range(work.counts[step], have):
                    self._stop(job, instance)
        self._active = [job for job in self._active if job.asked or job.running or job.work.counts]

    def _ask(self, job: Job, instances: Iterable[int], step: int) -> None:
        job.waiting.update(instances)
        job.asked.update(dict.fromkeys(instances, step))

    def _stop(self, job: Job, instance: int) -> None:
        """End a pod, wherever it is."""
        job.asked.pop(instance, None)
        self._reserved.pop((job.job_id, instance), None)
        if instance in job.waiting:
            job.waiting.discard(instance)
            return
        self._usage.charge(job.row, job.footprint, -1)
        job.ready.discard(instance)
        if (pod := job.running.pop(instance, None)) is not None:
            del self._pods_on[pod.host][job.job_id, instance]
            self._take(pod.host, job.shape, -1)

    def _take(self, host: int, shape: PodShape, pods: int) -> None:
        need = np.multiply(tuple(shape.resources), pods)
        if shape.revocable:
            self._slack_free[host] -= need[CPU]
            need[CPU] = 0
        self._free[host] -= need

    def _evict(self, job: Job, instance: int, step: int) -> None:
        """Queue a pod again; a batch pod begins from its start."""
        self.figures.evicted += 1
        if (pod := job.running.get(instance)) is not None:
            self.figures.lost_core_h += core_hours(job.work.need, step - pod.since)
        self._stop(job, instance)
        self._ask(job, [instance], step)

    # The resource manager.

    def _snapshot(self, evictable: Evictable | None = None) -> Snapshot:
        demand, slack_demand = np.zeros_like(self._tree.reservation), np.zeros_like(self._tree.reservation)
        waiting: dict[int, dict[QueueKind, list[GangRun]]] = {}
        for job in self._active:
            if job.waiting:
                (slack_demand if job.shape.revocable else demand)[job.row] += np.multiply(
                    tuple(job.shape.resources), len(job.waiting)
                )
                for run in job.runs(job.waiting):
                    waiting.setdefault(job.row, {}).setdefault(run.queue, []).append(run)
        for queues in waiting.values():
            for runs in queues.values():
                runs.sort(key=lambda run: run.order)
        return Snapshot(
            self._tree, self._capacity, int(self._slack.sum()), self._usage.copy(), demand, slack_demand, waiting,
            PODS_MAX, evictable=evictable,
        )  # fmt: skip

    def _cycle(self) -> set[int]:
        """Admit what fits; return the rows of pools above their entitlement."""
        plan = plan_cycle(self._snapshot())
        for admitted in plan.admission.admitted:
            job = self._by_id[admitted.run.job_id]
            instances = range(admitted.run.start, admitted.rest_start)
            job.waiting.difference_update(instances)
            job.ready.update(instances)
            self._usage.charge(job.row, job.footprint, len(instances))
        return set(over_entitled(self._tree, plan.entitlement, self._usage))

    def _preempt(self, step: int, over: set[int]) -> None:
        """Evict for waiting pods; the five rounds of preemption of a real cluster take one step."""
        held = [
            HeldRun(job.row, run, is_launched)
            for job in self._active
            if job.row in over
            for is_launched, instances in ((False, job.ready), (True, job.running))
            if instances
            for run in job.runs(instances)
        ]
        empty = np.zeros_like(self._tree.reservation)
        may = Evictable(held, Usage(empty, empty, empty, empty), over, PODS_MAX)
        for eviction in plan_cycle(self._snapshot(may)).evictions:
            job = self._by_id[eviction.run.job_id]
            for instance in range(eviction.run.start, eviction.run.start + eviction.run.gang_count):
                self._evict(job, instance, step + 1)

    # The host manager and placement.

    def _place(self, step: int) -> None:
        for job in (job for job in self._active if job.ready):
            gangs = [ReadyGang(job.shape, ((instance, 1),)) for instance in sorted(job.ready)]
            hosts = tuple(self._lease(job))
            for placement in place(job.job_id, gangs, HostLease("", hosts)).placements if hosts else ():
                host = int(placement.hostname)
                for pod in placement.pods:
                    job.ready.remove(pod.instance_id)
                    job.running[pod.instance_id] = Pod(host, step)
                    waited_s = (step - job.asked.pop(pod.instance_id)) * STEP_S
                    if job.work.kind == BATCH:
                        self.figures.waits_s.append(waited_s)
                    self._reserved.pop((job.job_id, pod.instance_id), None)
                    self._pods_on[host][job.job_id, pod.instance_id] = job
                    self._take(host, job.shape, 1)
            if not job.shape.revocable:
                self._reserve(job)

    def _reserve(self, job: Job) -> None:
        """Reserve a host for the first pod that fits on none now and has none reserved."""
        instance = next((one for one in sorted(job.ready) if (job.job_id, one) not in self._reserved), None)
        if instance is None or len(self._reserved) >= limit_reserved(len(self._free)):
            return
        candidates = [
            Candidate(Hostname(f"{host:04}"), Resources(*self._free[host].tolist()), [
                Neighbour(PodId(other.job_id, one, 1), 0, other.running[one].since, ordinary(
                    other.shape.resources, other.shape.revocable), other.shape.preemptible, False,
                    ends_itself=other.work.kind in (BATCH, BEST_EFFORT))
                for (_, one), other in pods.items()
            ])
            for host, pods in enumerate(self._pods_on)
            if host not in self._reserved.values()
        ]  # fmt: skip
        if (found := soonest(job.shape.resources, candidates)) is not None:
            self._reserved[job.job_id, instance] = int(found.hostname)

    def _lease(self, job: Job) -> Iterator[LeasedHost]:
        """Yield the hosts that take a pod of the job, without those that are reserved for other jobs."""
        free, shape = self._free.copy(), job.shape
        if shape.revocable:
            free[:, CPU] = self._slack_free
        for (job_id, _), host in self._reserved.items():
            if job_id != job.job_id:
                free[host] = 0
        for host in np.flatnonzero((free >= np.array(tuple(shape.resources))).all(axis=1)).tolist():
            revocable = Resources(cpu_milli=int(self._slack_free[host]))
            amounts = Resources(*self._free[host].tolist())
            yield LeasedHost(Hostname(f"{host:04}"), amounts, revocable, capacity=HOST)

    def _measure(self, step: int) -> None:
        """Estimate the slack of each host, and evict revocable pods from hosts that are hot or have less of it."""
        for host, pods in enumerate(self._pods_on):
            ordinary = sum(job.used_milli(step) for job in pods.values() if not job.shape.revocable)
            allocated = int(self._total[host, CPU] - self._free[host, CPU])
            self._last_use[host] = smooth(self._last_use[host], ordinary)
            held = int(self._slack[host] - self._slack_free[host])
            self._slack[host] = estimate(int(self._slack[host]), allocated, self._last_use[host])
            self._slack_free[host] = self._slack[host] - held
            revocable = [
                RevocablePod(PodId(job.job_id, instance, 1), 0, job.running[instance].since, cpu, Use(used))
                for (_, instance), job in pods.items()
                if job.shape.revocable
                for cpu, used in ((job.shape.resources.cpu_milli, job.used_milli(step)),)
            ]
            used = ordinary + sum(pod.used.cpu_milli for pod in revocable)
            load = HostLoad(Hostname(f"{host:04}"), Use(HOST.cpu_milli), Use(used), int(self._slack[host]), held)
            watch = observe(observe(HostWatch(), load, QosPolicy()), load, QosPolicy())
            for one in corrections(watch, load, revocable, QosPolicy()):
                self._evict(self._by_id[one.pod_id.job_id], one.pod_id.instance_id, step)

    # Figures.

    def _sample(self, step: int) -> None:
        held, used, figures = dict.fromkeys(KINDS, 0), 0, self.figures
        for job in self._active:
            held[job.work.kind] += job.shape.resources.cpu_milli * len(job.running)
            used += job.used_milli(step) * len(job.running)
            if job.work.counts and any(step - since >= WAIT_STEPS_MAX for since in job.asked.values()):
                figures.too_small = f"pods of {job.work.name} wait for {WAIT_STEPS_MAX * STEP_S // 60} minutes"
        for kind, amount in held.items():
            figures.held[kind].append(amount)
        figures.used.append(used)


def least_hosts(works: Sequence[Work], reserve_percent: int = 0) -> int:
    """Return the hosts for the highest sum of requests of instances that stay, and for a reserve of services."""
    kept = _reserved(work for work in works if work.kind == SERVICES)
    needs = [need + more * reserve_percent // 100 for need, more in zip(_reserved(works), kept, strict=True)]
    return max(1, *(-(-need // whole) for need, whole in zip(needs, HOST, strict=True) if whole))


def _reserved(works: Iterable[Work]) -> Resources:
    """Return the highest sum of requests over the day of all works with instances that stay."""
    needs = np.zeros((STEPS, KIND_COUNT), np.int64)
    for work in works:
        if work.counts:
            needs += np.outer(work.counts, tuple(work.need))
    return Resources(*needs.max(axis=0).tolist())


def _pools(works: Sequence[Work], capacity: Ints) -> list[PoolSpec]:
    """Services and databases have their peaks reserved, and batch all the rest; each pool may use the whole cluster."""
    reserved = {kind: _reserved(work for work in works if work.kind == kind) for kind in (SERVICES, DATABASES)}
    rest = np.maximum(capacity - sum(np.array(tuple(each)) for each in reserved.values()), 0)
    reserved[BATCH] = Resources(*rest.tolist())
    return [
        PoolSpec(
            RespoolId(name), ROOT_POOL_ID, name,
            tuple(PoolResource(kind, one, UNLIMITED, 1) for kind, one in zip(RESOURCE_KINDS, amounts, strict=True)),
            slack_limit_percent=100.0,
        )
        for name, amounts in reserved.items()
    ]  # fmt: skip
