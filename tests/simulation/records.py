"""Storage of a simulated day, in memory: jobs and pods as rows, read and written the way the storage does it.

Implements what the resource manager asks of ``AdmissionRecords``. What becomes of a pod is decided by
``peloton.lifecycle``. Beside the rows it keeps count of what each pool wants and holds, for the invariants.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import groupby
from operator import attrgetter
from random import Random

from peloton.lifecycle.gang import Member
from peloton.lifecycle.gang_fate import Fate, fate, is_affected
from peloton.lifecycle.job import admit_count, roll_up, scheduled_count
from peloton.lifecycle.pod import Applied, apply_status
from peloton.lifecycle.retry import after_end
from peloton.model.admission import AdmissionSnapshot, AllocatedRange, JobSnapshot, PendingRange
from peloton.model.host import ReadyGang
from peloton.model.ids import JobId, PodId, RespoolId
from peloton.model.job import JOB_TERMINAL, JobRecord, JobState, JobType
from peloton.model.pod import (
    ALLOCATED,
    ON_HOST,
    QUEUED,
    TERMINAL,
    NextRun,
    PodRecord,
    PodShape,
    PodState,
    PodStatus,
    ShapeRange,
    TerminationReason,
)
from peloton.model.respool import PoolSpec
from services.resmgr.state import LogRow
from tests.simulation.description import JobPlan

COLUMNS = ("demand", "slack_demand", "non_slack", "slack", "non_preemptible", "controller")
Range = tuple[int, int]
Entry = tuple[int, int, int]
"""Column, kind, amount."""
_NAMES = [spec.name for spec in fields(PodRecord)]
_VALUES, _STATE = attrgetter(*_NAMES), _NAMES.index("state")


class Job:
    """One job and its pods. ``members[state]`` are the instances in that state."""

    def __init__(self, plan: JobPlan) -> None:
        self.plan, self.record = plan, plan.record
        self.random = Random(plan.record.job_id)
        self.pods: list[PodRecord] = []
        self.members: dict[PodState, set[int]] = {state: set() for state in PodState}
        self.due: set[int] = set()  # ended instances that get another run
        self.queue_seq: dict[int, int] = {}
        self.queued_s: dict[int, int] = {}
        self.admitted_ns: dict[int, int] = {}
        self.held_until_ns: dict[int, int] = {}  # PENDING instances -> not admitted before
        self.vain_count: dict[int, int] = {}  # times in a row that no host was found
        self.patience_s = 0  # until it looks for hosts again
        self._starts = [shapes.start for shapes in plan.shapes]
        self._entries = [
            (_entries(shapes.shape, is_queued=False), _entries(shapes.shape, True)) for shapes in plan.shapes
        ]

    def shape(self, instance_id: int) -> PodShape:
        return self.plan.shapes[bisect_right(self._starts, instance_id) - 1].shape

    def entries(self, instance_id: int, state: PodState) -> Sequence[Entry]:
        """Where a pod in this state counts in the books."""
        if state is not PodState.PENDING and state not in ALLOCATED:
            return ()
        return self._entries[bisect_right(self._starts, instance_id) - 1][state in QUEUED]

    def counts(self) -> dict[PodState, int]:
        return {state: len(found) for state, found in self.members.items() if found}

    def resting(self) -> dict[PodState, int]:
        """Ended pods that run again count as INITIALIZED."""
        counts = self.counts()
        for instance_id in self.due:
            state = self.pods[instance_id].state
            counts[state] -= 1
            counts[PodState.INITIALIZED] = counts.get(PodState.INITIALIZED, 0) + 1
        return {state: count for state, count in counts.items() if count}

    def waits_in_gang(self) -> int:
        waiting = self.members[PodState.INITIALIZED]
        return sum(instance_id in waiting for instance_id in range(self.record.gang_size))


class Records:
    def __init__(self, pools: Iterable[PoolSpec]) -> None:
        self._pools = {pool.respool_id: pool for pool in pools}
        self.jobs: dict[JobId, Job] = {}  # that have not ended
        self.books: dict[RespoolId, list[list[int]]] = {pool: _blank() for pool in self._pools}
        self.ended_count: dict[JobState, int] = {}
        self.clock_ns = 0
        self._log: list[LogRow] = []
        self._log_first = 1  # seq of the first row that is kept

    # -- pods -------------------------------------------------------------------------------------------------------

    def create(self, plan: JobPlan) -> Job:
        job = self.jobs[plan.record.job_id] = Job(plan)
        for instance_id in range(plan.record.instance_count):
            pod = PodRecord(
                plan.record.job_id,
                instance_id,
                1,
                PodState.INITIALIZED,
                PodState.SUCCEEDED,
                config_version=1,
                desired_config_version=1,
                desired_run_id=1,
                max_failures=plan.attempts,
            )
            job.pods.append(pod)
            job.members[PodState.INITIALIZED].add(instance_id)
        return job

    def put(self, job: Job, pod: PodRecord) -> None:
        """Replace an instance's row, and keep the books."""
        instance_id, old = pod.instance_id, job.pods[pod.instance_id].state
        job.pods[instance_id] = pod
        if pod.state is not old:
            job.members[old].remove(instance_id)
            job.members[pod.state].add(instance_id)
            self._book(job, instance_id, old, -1)
            self._book(job, instance_id, pod.state, 1)

    def _book(self, job: Job, instance_id: int, state: PodState, sign: int) -> None:
        book = self.books[job.record.respool_id]
        for column, kind, amount in job.entries(instance_id, state):
            book[column][kind] += sign * amount

    def recount(self) -> dict[RespoolId, list[list[int]]]:
        """The books from nothing but the rows."""
        kept, self.books = self.books, {pool: _blank() for pool in self._pools}
        for job in self.jobs.values():
            for pod in job.pods:
                self._book(job, pod.instance_id, pod.state, 1)
        kept, self.books = self.books, kept
        return kept

    def report(self, status: PodStatus) -> Applied | None:
        """What a host says of a pod: the row before it counts, and a row of the log when the run ended."""
        job = self.jobs.get(status.pod_id.job_id)
        pod = job.pods[status.pod_id.instance_id] if job else None
        outcome = apply_status(pod, status, JobType.BATCH)
        if job is None or not isinstance(outcome, Applied):
            return None
        self.put(job, outcome.pod)
        if outcome.ended:
            if not after_end(outcome.pod, JobType.BATCH, launch_lost=outcome.launch_lost).is_rest:
                job.due.add(outcome.pod.instance_id)
            seq = self._log_first + len(self._log)
            self._log.append((seq, job.record.job_id, outcome.pod.instance_id, outcome.pod.run_id, outcome.pod.state))
        return outcome

    def settle(self, job: Job) -> int:
        """Ended pods get their next run, the job its state; returns how many pods may be queued now."""
        for instance_id in sorted(job.due):
            old = job.pods[instance_id]
            run_id = old.run_id + 1
            fresh = replace(old, state=PodState.INITIALIZED, run_id=run_id, desired_run_id=run_id, host="", reason="")
            self.put(job, replace(fresh, started_ns=0, completed_ns=0, termination=None))
        job.due.clear()
        state = roll_up(job.record, job.resting(), job.pods[0].state)
        if state is not job.record.state:
            job.record = replace(job.record, state=state)
        if state in JOB_TERMINAL:
            lost = [pod for pod in job.pods if pod.state is PodState.KILLED and pod.goal is not PodState.KILLED]
            assert not lost, f"{len(lost)} pods of {job.record.name} were evicted and did not come back"
            del self.jobs[job.record.job_id]
            self.ended_count[state] = self.ended_count.get(state, 0) + 1
            return 0
        waiting = len(job.members[PodState.INITIALIZED])
        return admit_count(job.record, job.counts(), waiting, job.waits_in_gang()) if waiting else 0

    def share_fate(self, job: Job) -> list[PodId]:
        """Members of the gang run anew, or end, when one does; returns those on hosts, which are KILLING now."""
        size = job.record.gang_size
        members = {i: _member(job, i) for i in range(size)} if size > 1 else {}
        shared = fate(Counter(members.values()))
        along = [i for i, member in members.items() if is_affected(member, shared)]
        if shared is Fate.END:
            return self.want_killed(job, along)
        killing = []
        for instance_id in along:
            pod = job.pods[instance_id]
            if pod.state in TERMINAL:
                job.due.add(instance_id)
            else:
                self.put(job, replace(pod, state=PodState.KILLING, desired_run_id=pod.run_id + 1))
                killing.append(pod.pod_id)
        return killing

    def want_killed(self, job: Job, instances: Iterable[int]) -> list[PodId]:
        """Goals become KILLED; what is not yet queued ends. Returns those on hosts, which are KILLING now."""
        killing = []
        for instance_id in instances:
            pod = replace(job.pods[instance_id], goal=PodState.KILLED)
            job.due.discard(instance_id)
            if pod.state is PodState.INITIALIZED:
                pod = replace(pod, state=PodState.KILLED)
            elif pod.state in (PodState.LAUNCHED, PodState.STARTING, PodState.RUNNING, PodState.PREEMPTING):
                pod = replace(pod, state=PodState.KILLING)
                killing.append(pod.pod_id)
            self.put(job, pod)
        return killing

    def ready_gangs(self, job: Job) -> list[ReadyGang]:
        """As the storage does: the gang when all of it is ready, then pods that stand alone."""
        ready = sorted(job.members[PodState.READY])
        size = job.record.gang_size if job.record.gang_size > 1 else 0
        gang = [i for i in ready if i < size]
        found = [ReadyGang(job.shape(0), tuple((i, job.pods[i].run_id) for i in gang))] if len(gang) == size else []
        found += [ReadyGang(job.shape(i), ((i, job.pods[i].run_id),)) for i in ready if i >= size]
        return [one for one in found if one.pods]

    # -- AdmissionRecords -------------------------------------------------------------------------------------------

    def job(self, job_id: JobId) -> JobRecord | None:
        job = self.jobs.get(job_id)
        return job.record if job else None

    @property
    def admission(self) -> Records:
        return self

    @property
    def configs(self) -> Records:
        return self

    def shapes_of(self, spans: Sequence[tuple[JobId, int, int, int]]) -> list[list[ShapeRange]]:
        return [list(self.jobs[job_id].plan.shapes) for job_id, *_ in spans]

    def queueable(self, job_id: JobId, limit: int) -> list[Range]:
        job = self.jobs[job_id]
        maximum, size = job.record.sla.maximum_running_instances, job.record.gang_size
        room = max(maximum - scheduled_count(job.counts()), 0) if maximum else limit
        waiting = sorted(job.members[PodState.INITIALIZED])
        gang: list[Range] = []
        if size > 1 and job.waits_in_gang() == size:
            if room < size:
                return []
            gang, room, limit = [(0, size)], room - size, limit - size
        waiting = [i for i in waiting if size == 1 or i >= size]
        return gang + ranges_of(waiting[: max(min(limit, room), 0)])

    def mark_pending(self, job_id: JobId, ranges: Sequence[Range], queue_seq: int) -> int:
        job = self.jobs[job_id]
        for start, count in ranges:
            for instance_id in range(start, start + count):
                assert job.pods[instance_id].goal is not PodState.KILLED, f"{job.pods[instance_id].pod_id} is to end"
                self.put(job, in_state(job.pods[instance_id], PodState.PENDING))
                job.queue_seq[instance_id] = queue_seq
                job.queued_s[instance_id] = self.clock_ns // 10**9
                job.vain_count.pop(instance_id, None)
        return sum(count for _, count in ranges)

    def mark_ready(self, items: Sequence[tuple[JobId, int, int]]) -> int:
        marked = 0
        for job_id, start, count in items:
            job = self.jobs[job_id]
            for instance_id in range(start, start + count):
                pod = job.pods[instance_id]
                if pod.state is PodState.PENDING:
                    self.put(job, in_state(pod, PodState.READY))
                    job.admitted_ns[instance_id] = self.clock_ns
                    job.held_until_ns.pop(instance_id, None)
                    marked += 1
        return marked

    def kill_queued(self, job_id: JobId, now_ns: int) -> list[tuple[int, int, PodState]]:
        job, killed = self.jobs[job_id], []
        for state in (PodState.PENDING, PodState.READY):
            ends = [i for i in sorted(job.members[state]) if job.pods[i].goal is PodState.KILLED]
            for instance_id in ends:
                self.put(job, replace(job.pods[instance_id], state=PodState.KILLED, completed_ns=now_ns))
            killed += [(start, count, state) for start, count in ranges_of(ends)]
        return killed

    def status_log(self, after_seq: int, limit: int) -> list[LogRow]:
        begin = max(after_seq + 1 - self._log_first, 0)
        return self._log[begin : begin + limit]

    def prune_status_log(self, upto: int) -> None:
        gone = upto + 1 - self._log_first
        if gone > 0:
            del self._log[:gone]
            self._log_first += gone

    def snapshot(self) -> AdmissionSnapshot:
        jobs = tuple(_job_snapshot(self.jobs[job_id]) for job_id in sorted(self.jobs))
        return AdmissionSnapshot(tuple(self._pools.values()), jobs, self._log_first + len(self._log) - 1)

    def set_pool(self, pool: PoolSpec) -> None:
        self._pools[pool.respool_id] = pool


def _member(job: Job, instance_id: int) -> Member:
    pod = job.pods[instance_id]
    next_run = NextRun.RETRY if instance_id in job.due else NextRun.NONE
    return Member(pod.state, pod.goal is PodState.KILLED, pod.desired_run_id > pod.run_id, next_run)


def _blank() -> list[list[int]]:
    return [[0, 0, 0, 0] for _ in COLUMNS]


def _entries(shape: PodShape, is_queued: bool) -> list[Entry]:
    kinds = [(kind, amount) for kind, amount in enumerate(shape.resources) if amount]
    return [(column, *kind) for column in _columns(shape, is_queued) for kind in kinds]


def _columns(shape: PodShape, is_queued: bool) -> Iterator[int]:
    """Which columns of the books a pod counts in, waiting or holding resources."""
    if is_queued:
        yield 1 if shape.revocable else 0
    elif shape.revocable:
        yield 3
    else:
        yield 2
        if not shape.preemptible:
            yield 4
        if shape.controller:
            yield 5


def in_state(pod: PodRecord, state: PodState) -> PodRecord:
    """As ``replace``, but quick."""
    values = list(_VALUES(pod))
    values[_STATE] = state
    return PodRecord(*values)


def _job_snapshot(job: Job) -> JobSnapshot:
    by_place: dict[tuple[int, int], list[int]] = {}
    for instance_id in sorted(job.members[PodState.PENDING]):
        place = job.queue_seq[instance_id], job.held_until_ns.get(instance_id, 0)
        by_place.setdefault(place, []).append(instance_id)
    pending = [
        PendingRange(seq, *span, 1, until_ns)
        for (seq, until_ns), own in sorted(by_place.items())
        for span in ranges_of(own)
    ]
    held = sorted(i for state in ALLOCATED for i in job.members[state])
    gone = {i for i in held if _is_evicted(job.pods[i])}
    stays = [AllocatedRange(*span, 1, True) for span in ranges_of([i for i in held if i not in gone])]
    goes = [AllocatedRange(*span, 1, True, True) for span in ranges_of(sorted(gone))]
    return JobSnapshot(job.record, tuple(pending), tuple(stays + goes))


def _is_evicted(pod: PodRecord) -> bool:
    """Of a pod on a host: it was told to leave for somebody else."""
    why = pod.termination.reason if pod.termination else None
    is_leaving = pod.goal is PodState.KILLED or pod.desired_run_id > pod.run_id
    return pod.state in ON_HOST and why is TerminationReason.PREEMPTED_RESOURCES and is_leaving


def ranges_of(instances: Sequence[int]) -> list[Range]:
    """Sorted instances as maximal ``(start, count)``."""
    found = []
    for _, run in groupby(enumerate(instances), key=lambda pair: pair[1] - pair[0]):
        members = [instance_id for _, instance_id in run]
        found.append((members[0], len(members)))
    return found
