"""Storage in memory for simulations and tests: batch jobs of one configuration.

Its repositories have a part of the methods of ``services.storage.storage.Storage``, whose docstrings describe them; the
conformance suite runs the same tests on both. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from peloton.api.merge import effective_task_config
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, AlreadyExists, NotFound
from peloton.lifecycle.backoff import NO_BACKOFF, Backoff
from peloton.lifecycle.gang import enough_for_both
from peloton.lifecycle.goal import default_pod_goal
from peloton.lifecycle.host_pools import route
from peloton.lifecycle.job_machine import JobEvent, next_job
from peloton.lifecycle.pod import is_eviction
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import GOAL_ALIVE, KILLING, LAUNCHABLE, ON_REQUEST, REVIVABLE, RUN_SUPERSEDED, UNWANTED
from peloton.lifecycle.reason_text import NO_NAMES, Names
from peloton.lifecycle.settle import STOP_MESSAGE, UpdateView, end_progress
from peloton.lifecycle.wake import Wake, next_due_ns
from peloton.model.admission import AdmissionSnapshot, EvictionOrder, EvictionResult, HeldRange
from peloton.model.by_hand import name_person
from peloton.model.host import ReadyGang
from peloton.model.ids import JobId, PodId
from peloton.model.job import GangProgress, JobProgress, JobRecord, JobState
from peloton.model.pod import ON_HOST, PodRecord, PodState, PodStatus, ShapeRange, Termination, TerminationReason
from peloton.model.reason import EvictionReason, Grounds, RequeueReason
from peloton.model.respool import PoolSpec
from peloton.model.times import NS_PER_S
from peloton.model.volume import RetainedVolume
from peloton.ports import PERSON
from services.storage.codec import InstanceFacts
from services.storage.jobs.configs import instance_facts
from services.storage.jobs.steering import START_MESSAGE
from services.storage.pods.host_pods import KillRow, LaunchRow
from services.storage.pods.status_writes import StatusOutcome, decide
from services.storage.ranges import chunks, with_gang
from tests.doubles.storage import queueing
from tests.doubles.storage.jobs import MemoryJob
from tests.doubles.storage.pods import MemoryPods, OnWrite, ignore

Range = tuple[int, int]
LogRow = tuple[int, JobId, int, int, PodState]


@dataclass
class _Rows:
    """State shared by the repositories."""

    clock_ns: Callable[[], int]
    on_write: OnWrite
    jobs: dict[JobId, MemoryJob] = field(default_factory=dict)
    pools: dict[str, PoolSpec] = field(default_factory=dict)
    log: list[LogRow] = field(default_factory=list)
    log_first: int = 1  # number of the oldest row kept
    wakes: dict[JobId, Wake] = field(default_factory=dict)

    def known(self, job_id: JobId) -> MemoryJob:
        if job_id not in self.jobs:
            raise NotFound(f"job {job_id} not found")
        return self.jobs[job_id]

    def note_wakes(self, job_ids: Iterable[JobId], now_ns: int) -> None:
        for job_id in job_ids:
            known = self.wakes.get(job_id)
            self.wakes[job_id] = Wake(max(now_ns, known.noted_ns + 1) if known else now_ns, now_ns)

    def take_back(self, job_id: JobId, progress: JobProgress, now_ns: int) -> None:
        wake = self.wakes.get(job_id)
        due_ns = next_due_ns(wake, progress, now_ns)
        if wake is None or due_ns is None:
            return
        if due_ns:
            self.wakes[job_id] = replace(wake, due_ns=due_ns)
        else:
            del self.wakes[job_id]


class _Repository:
    def __init__(self, rows: _Rows) -> None:
        self._rows = rows


class MemoryJobs(_Repository):
    def create(self, job: JobRecord, config: job_pb2.JobConfig, now_ns: int) -> None:
        facts = instance_facts(config, config.defaultConfig)
        own = {i: instance_facts(config, effective_task_config(config, i)) for i in sorted(config.instanceConfig)}
        self.add(replace(job, created_ns=job.created_ns or now_ns, updated_ns=job.updated_ns or now_ns), facts, own)

    def add(self, job: JobRecord, facts: InstanceFacts, own: Mapping[int, InstanceFacts]) -> MemoryJob:
        if job.job_id in self._rows.jobs:
            raise AlreadyExists(f"job {job.job_id} already exists")
        found = MemoryJob(job, facts, MemoryPods(job.job_id, job.gang_size, self._rows.on_write), own)
        self._rows.jobs[job.job_id] = found
        self._rows.note_wakes([job.job_id], job.created_ns)
        return found

    def get(self, job_id: JobId) -> JobRecord | None:
        found = self._rows.jobs.get(job_id)
        return found.record if found is not None else None

    def settle(self, job_id: JobId, now_ns: int, created_max: int = 0, batch_max: int = 0) -> JobProgress:
        job = self._rows.known(job_id)
        if job.has_ended:
            self._rows.wakes.pop(job_id, None)
            return end_progress(job.record, UpdateView())
        job.record, progress = job.pods.settle(job.record, now_ns)
        if not progress.settle_again:
            self._rows.take_back(job_id, progress, now_ns)
        return progress

    def set_goal(self, job_id: JobId, goal: JobState, now_ns: int) -> JobRecord | None:
        job = self._rows.jobs.get(job_id)
        if job is None:
            return None
        before, event = job.record, JobEvent.STOP if goal is JobState.KILLED else JobEvent.START
        job.record = steered = next_job(before, event, now_ns)
        if steered is not before:
            self._rows.note_wakes([job_id], now_ns)
        if steered.goal is goal and not job.has_ended:
            pod_goal = PodState.KILLED if goal is JobState.KILLED else default_pod_goal(steered.type)
            message = STOP_MESSAGE if goal is JobState.KILLED else START_MESSAGE
            if _steer_pods(job, job.pods.records, pod_goal, now_ns, message):
                self._rows.note_wakes([job_id], now_ns)
        return steered

    def delete(self, job_id: JobId, on_chunk: Callable[[int], None] = lambda instances: None) -> None:
        job = self._rows.jobs.get(job_id)
        if job is not None and not job.has_ended:
            raise Aborted(f"Job is not in a terminal state: {job.record.state}")
        self._rows.jobs.pop(job_id, None)
        self._rows.wakes.pop(job_id, None)


class MemoryWakes(_Repository):
    def due(self, until_ns: int, limit: int, after: tuple[int, str] = (0, "")) -> list[tuple[int, JobId]]:
        found = sorted((wake.due_ns, job_id) for job_id, wake in self._rows.wakes.items() if wake.due_ns <= until_ns)
        return [one for one in found if one > after][:limit]

    def forget_ended(self, until_ns: int, limit: int) -> int:
        wakes, jobs = self._rows.wakes, self._rows.jobs
        old = [job_id for job_id, wake in wakes.items() if max(wake.due_ns, wake.noted_ns) <= until_ns]
        ended = [job_id for job_id in old if job_id not in jobs or jobs[job_id].has_ended][:limit]
        for job_id in ended:
            del wakes[job_id]
        return len(ended)

    def count_settled(self) -> int:
        wakes = self._rows.wakes
        unseen = {job_id for job_id, wake in wakes.items() if wake.is_unseen}
        return sum(not job.has_ended and job_id not in unseen for job_id, job in self._rows.jobs.items())


class MemoryConfigs(_Repository):
    def shapes_of(self, spans: Sequence[tuple[JobId, int, int, int]]) -> list[list[ShapeRange]]:
        return [self._rows.known(job_id).shapes(start, count) for job_id, _, start, count in spans]


class MemoryPodRecords(_Repository):
    def get(self, job_id: JobId, instance_id: int) -> PodRecord | None:
        job = self._rows.jobs.get(job_id)
        return job.pods.records.get(instance_id) if job is not None else None

    def page(self, job_id: JobId, start: int = 0, stop: int | None = None, limit: int = 1_000) -> list[PodRecord]:
        job = self._rows.jobs.get(job_id)
        found = [pod for pod in job.pods if start <= pod.instance_id] if job is not None else []
        return [pod for pod in found if stop is None or pod.instance_id < stop][:limit]

    def create(self, job_id: JobId, on_chunk: Callable[[int], None]) -> int:
        job = self._rows.known(job_id)
        for start, count in chunks([(len(job.pods.records), job.record.instance_count - len(job.pods.records))]):
            job.create_pods(start, count, self._rows.clock_ns())
            on_chunk(len(job.pods.records))
        return len(job.pods.records)

    def gang(self, job_id: JobId) -> GangProgress:
        job = self._rows.jobs.get(job_id)
        return job.launch_progress() if job is not None else GangProgress(0)

    def ready_gangs(self, job_id: JobId, limit: int) -> list[ReadyGang]:
        job, now_ns = self._rows.known(job_id), self._rows.clock_ns()
        pods = list(job.singles(LAUNCHABLE, job.pods.in_state[PodState.READY]))[:limit]
        own = {pod.instance_id: job.shape(pod.instance_id) for pod in pods}
        shapes = {shape: route(shape, job.record.type) for shape in dict.fromkeys(own.values())}
        return [
            ReadyGang(
                shapes[own[pod.instance_id]],
                ((pod.instance_id, pod.desired_run_id),),
                desired_host=pod.desired_host,
                waited_s=(now_ns - pod.updated_ns) / NS_PER_S,
                vain_count=pod.vain_count,
            )
            for pod in pods
        ]

    def ready_gang(self, job_id: JobId) -> ReadyGang | None:
        job = self._rows.known(job_id)
        members = job.pods.those(LAUNCHABLE, range(job.gang_size))
        if job.gang_size == 1 or len(members) < job.gang_size:
            return None
        shape = reduce(enough_for_both, (job.shape(pod.instance_id) for pod in members))
        shape = route(shape, job.record.type)
        return ReadyGang(shape, tuple((pod.instance_id, pod.desired_run_id) for pod in members))

    def set_goals(self, job_id: JobId, ranges: Sequence[Range], goal: PodState, now_ns: int, message: str) -> list[int]:
        job = self._rows.jobs.get(job_id)
        if job is None or job.has_ended:
            return []
        changed: list[int] = []
        for start, count in with_gang(job.gang_size, ranges):
            if goal is not PodState.KILLED:
                job.record = next_job(job.record, JobEvent.START_POD, now_ns)
            job.write()
            self._rows.note_wakes([job_id], now_ns)
            changed += _steer_pods(job, range(start, start + count), goal, now_ns, message)
        return changed

    def want_new_runs(
        self,
        job_id: JobId,
        ranges: Sequence[Range],
        *,
        message: str = "",
        reason: str = "",
        termination: TerminationReason | None = None,
    ) -> list[int]:
        job = self._rows.jobs.get(job_id)
        if job is None or job.has_ended:
            return []
        words = {"message": message or None, "reason": reason or None}
        why = None if termination is None else Termination(termination)
        waiting: list[int] = []
        for start, count in with_gang(job.gang_size, ranges):
            instances = range(start, start + count)
            job.write()
            self._rows.note_wakes([job_id], self._rows.clock_ns())
            job.pods.fire(instances, Event.RESTART, self._rows.clock_ns(), why=why, **words)
            waiting += [pod.instance_id for pod in job.pods.those(GOAL_ALIVE & RUN_SUPERSEDED, instances)]
        return waiting


class MemoryHostPods(_Repository):
    def __init__(self, rows: _Rows, batch_backoff: Backoff) -> None:
        super().__init__(rows)
        self.batch_backoff = batch_backoff

    def mark_launched(self, job_id: JobId, rows: Sequence[LaunchRow], now_ns: int, cluster: str = "") -> set[int]:
        job = self._rows.known(job_id)
        asked = {row[0]: row for row in rows}
        found = job.pods.those(LAUNCHABLE, asked)
        taken = {pod.instance_id for pod in found if asked[pod.instance_id][1] == pod.desired_run_id}
        members = {instance for instance in taken if instance < job.gang_size}
        if len(members) < job.gang_size:
            taken -= members
        for instance in sorted(taken):
            _, _, host, agent, ports = asked[instance]
            given = {"host": host, "agent_id": agent, "cluster": cluster, "ports": ports}
            job.pods.fire([instance], Event.LAUNCH, now_ns, **given)
        return taken

    def apply_status(
        self, statuses: Sequence[PodStatus], cluster: str = "", no_other_host: Collection[PodId] = ()
    ) -> StatusOutcome:
        outcome = StatusOutcome()
        changed: set[JobId] = set()
        for status in statuses:
            job = self._rows.jobs.get(status.pod_id.job_id)
            pod = job.pods.records.get(status.pod_id.instance_id) if job is not None else None
            is_final = job is not None and pod is not None and is_eviction(status) and _ends_by_eviction(job, pod)
            record = job.record if job is not None else None
            other = status.pod_id not in no_other_host
            after = decide(record, pod, status, cluster, outcome, self.batch_backoff, is_final, other)
            if after is not None and job is not None:
                job.pods.put(after)
                changed.add(after.job_id)
                if outcome.ended and outcome.ended[-1] == status.pod_id:
                    seq = self._rows.log_first + len(self._rows.log)
                    self._rows.log.append((seq, after.job_id, after.instance_id, after.run_id, after.state))
        outcome.changed_jobs.extend(sorted(changed))
        self._rows.note_wakes(outcome.changed_jobs, self._rows.clock_ns())
        return outcome

    def mark_killing(self, job_id: JobId, limit: int, again: bool = False, cluster: str = "") -> list[KillRow]:
        job = self._rows.jobs.get(job_id)
        if job is None:
            return []
        there = set().union(*(job.pods.in_state[state] for state in ON_HOST))
        found = job.pods.those(UNWANTED | KILLING if again else UNWANTED, there)
        chosen = [pod for pod in found if pod.cluster == cluster][:limit]
        leaving = [pod.instance_id for pod in chosen if pod.state is not PodState.KILLING]
        job.pods.fire(leaving, Event.KILL, self._rows.clock_ns())
        return [(pod.pod_id, pod.host, pod.agent_id, job.facts_of(pod.instance_id).grace_s) for pod in chosen]


class MemoryAdmission(_Repository):
    def queueable(self, job_id: JobId, limit: int) -> list[Range]:
        job = self._rows.jobs.get(job_id)
        return queueing.queueable(job, limit) if job is not None else []

    def waiting_shapes(self, job_id: JobId, start: int, count: int) -> list[ShapeRange]:
        return self._rows.known(job_id).shapes(start, count)

    def mark_pending(self, job_id: JobId, ranges: Sequence[Range], queue_seq: int) -> list[tuple[int, int, int]]:
        job = self._rows.jobs.get(job_id)
        return queueing.mark_pending(job, ranges, queue_seq, self._rows.clock_ns()) if job is not None else []

    def mark_ready(self, items: Sequence[tuple[JobId, int, int]]) -> int:
        now_ns, known = self._rows.clock_ns(), [item for item in items if item[0] in self._rows.jobs]
        self._rows.note_wakes({job_id for job_id, _, _ in known}, now_ns)
        return sum(
            len(self._rows.jobs[job_id].pods.fire(range(start, start + count), Event.ADMIT, now_ns))
            for job_id, start, count in known
        )

    def kill_queued(self, job_id: JobId, now_ns: int) -> list[tuple[int, int, PodState]]:
        job = self._rows.jobs.get(job_id)
        return queueing.kill_queued(job, now_ns) if job is not None else []

    def list_held(self, job_ids: Iterable[JobId]) -> dict[JobId, list[HeldRange]]:
        return {
            job_id: queueing.list_held_ranges(self._rows.jobs[job_id]) if job_id in self._rows.jobs else []
            for job_id in job_ids
        }

    def evict(self, orders: Sequence[EvictionOrder]) -> list[EvictionResult]:
        results: dict[JobId, EvictionResult] = {}
        for order in sorted(orders, key=lambda order: (order.job_id, order.start)):
            result = results.setdefault(order.job_id, EvictionResult(order.job_id))
            job = self._rows.jobs.get(order.job_id)
            if job is not None and not job.has_ended:
                queueing.evict(job, order, self._rows.clock_ns(), result, self._name_of(order.why))
        gone = [job_id for job_id, one in results.items() if one.leaving or one.queued or one.unqueued]
        self._rows.note_wakes(gone, self._rows.clock_ns())
        return list(results.values())

    def _name_of(self, why: EvictionReason) -> Names:
        """Return the name of the job for which the pods are evicted."""
        other = self._rows.jobs.get(JobId(why.for_job)) if isinstance(why, Grounds) else None
        return {other.record.job_id: other.record.name} if other else NO_NAMES

    def requeue_gang(self, job_id: JobId, reason: RequeueReason, backoff_min_s: int = 0) -> EvictionResult:
        job = self._rows.jobs.get(job_id)
        if job is None:
            return EvictionResult(job_id)
        now_ns, before = self._rows.clock_ns(), job.record
        result = queueing.requeue_gang(job, reason, backoff_min_s, now_ns)
        if job.record is not before:
            self._rows.note_wakes([job_id], now_ns)
        return result

    def requeue_pods(
        self,
        job_id: JobId,
        instances: Sequence[Range],
        reason: RequeueReason,
        backoff_min_s: int = 0,
        but: Sequence[int] = (),
    ) -> EvictionResult:
        job = self._rows.jobs.get(job_id)
        if job is None:
            return EvictionResult(job_id)
        return queueing.requeue_pods(job, instances, reason, backoff_min_s, self._rows.clock_ns(), but)

    def status_log(self, after_seq: int, limit: int) -> list[LogRow]:
        begin = max(after_seq + 1 - self._rows.log_first, 0)
        return self._rows.log[begin : begin + limit]

    def prune_status_log(self, upto: int, limit: int) -> int:
        gone = min(max(upto + 1 - self._rows.log_first, 0), len(self._rows.log), limit)
        del self._rows.log[:gone]
        self._rows.log_first += gone
        return gone

    def snapshot(self) -> AdmissionSnapshot:
        jobs = [job for _, job in sorted(self._rows.jobs.items()) if not job.has_ended]
        places = (pod.queue_seq for job in jobs for pod in job.pods.records.values())
        pools = tuple(pool for _, pool in sorted(self._rows.pools.items()))
        cursor = self._rows.log_first + len(self._rows.log) - 1
        return AdmissionSnapshot(pools, tuple(map(queueing.snapshot, jobs)), cursor, max(places, default=0))


class NoVolumes:
    """Volume repository without volumes: pods in memory have none."""

    def list_retained(self) -> list[RetainedVolume]:
        return []


class MemoryStorage:
    """Storage in memory; ``on_write`` is called for each pod that is written."""

    def __init__(
        self, clock_ns: Callable[[], int], batch_backoff: Backoff = NO_BACKOFF, on_write: OnWrite = ignore
    ) -> None:
        self._rows = rows = _Rows(clock_ns, on_write)
        self.by_id = rows.jobs
        self.jobs = MemoryJobs(rows)
        self.wakes = MemoryWakes(rows)
        self.configs = MemoryConfigs(rows)
        self.pods = MemoryPodRecords(rows)
        self.host_pods = MemoryHostPods(rows, batch_backoff)
        self.admission = MemoryAdmission(rows)
        self.volumes = NoVolumes()

    def set_pool(self, pool: PoolSpec) -> None:
        self._rows.pools[pool.respool_id] = pool


def _steer_pods(job: MemoryJob, instances: Iterable[int], goal: PodState, now_ns: int, message: str) -> list[int]:
    is_stop = goal is PodState.KILLED
    changed = [pod.instance_id for pod in job.pods.those(GOAL_ALIVE if is_stop else REVIVABLE, instances)]
    if changed:
        job.write()
    if is_stop:
        by = name_person("", PERSON.get())
        job.pods.fire(changed, Event.STOP, now_ns, message=message, reason="", why=ON_REQUEST, by=by)
    else:
        job.pods.fire(changed, Event.START, now_ns, message=message, goal=goal)
    return changed


def _ends_by_eviction(job: MemoryJob, pod: PodRecord) -> bool:
    """Return whether an eviction ends the pod, by its own killOnPreempt or that of a gang member."""
    gang = range(job.gang_size)
    alike = {pod.instance_id, *gang} if pod.instance_id in gang else {pod.instance_id}
    return any(job.facts_of(instance).kill_on_preempt for instance in alike)
