"""Storage of a simulated day in memory, with separate counts of each pool's demand and usage.

Each written pod updates these books, which the invariants read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random

from peloton.lifecycle.host_pools import workload_of
from peloton.model.host import ReadyGang
from peloton.model.host_pool import Workload
from peloton.model.ids import JobId, PodId, RespoolId
from peloton.model.job import JOB_TERMINAL, JobProgress, JobRecord, JobState
from peloton.model.pod import ALLOCATED, QUEUED, HealthState, PodRecord, PodShape, PodState, PodStatus
from peloton.model.respool import PoolSpec
from services.storage.codec import InstanceFacts
from services.storage.pods.status_writes import StatusOutcome
from tests.doubles.storage.jobs import MemoryJob
from tests.doubles.storage.storage import MemoryStorage
from tests.simulation.description import JobPlan

COLUMNS = ("demand", "slack_demand", "non_slack", "slack", "non_preemptible", "controller")
GRACE_S = 30
WORKLOADS = (Workload.BATCH, Workload.SHARED, Workload.GPU)
Account = dict[Workload, list[list[int]]]
Entry = tuple[int, int, int]
"""Entry of the books: column, kind, amount."""


class Job:
    """Job that has not ended. ``members[state]`` are the instances in that state."""

    def __init__(self, plan: JobPlan, stored: MemoryJob) -> None:
        self.plan, self._stored = plan, stored
        self.random = Random(plan.record.job_id)
        self.pods: Mapping[int, PodRecord] = stored.pods.records
        self.members: Mapping[PodState, set[int]] = stored.pods.in_state
        self.queued_s: dict[int, int] = {}
        self.timeout_s = 0  # until it is placed again
        self._starts = [shapes.start for shapes in plan.shapes]
        self._workloads = [workload_of(plan.record.type, shapes.shape) for shapes in plan.shapes]
        self._entries = [
            (_entries(shapes.shape, is_queued=False), _entries(shapes.shape, True)) for shapes in plan.shapes
        ]

    @property
    def record(self) -> JobRecord:
        return self._stored.record

    def shape(self, instance_id: int) -> PodShape:
        return self._stored.shape(instance_id)

    def workload(self, instance_id: int) -> Workload:
        return self._workloads[bisect_right(self._starts, instance_id) - 1]

    def counts(self) -> dict[PodState, int]:
        return self._stored.pods.counts()

    def entries(self, instance_id: int, state: PodState) -> Sequence[Entry]:
        """Return the entries of a pod in this state."""
        if state is not PodState.PENDING and state not in ALLOCATED:
            return ()
        return self._entries[bisect_right(self._starts, instance_id) - 1][state in QUEUED]


class Records:
    def __init__(self, pools: Iterable[PoolSpec]) -> None:
        self.clock_ns = 0
        self.storage = MemoryStorage(lambda: self.clock_ns, on_write=self._note)
        self.jobs: dict[JobId, Job] = {}  # that have not ended
        self.ledgers: dict[RespoolId, Account] = {}
        self.ended_count: dict[JobState, int] = {}
        for pool in pools:
            self.ledgers[pool.respool_id] = _blank()
            self.storage.set_pool(pool)

    # -- books ------------------------------------------------------------------------------------------------------

    def _note(self, before: PodRecord | None, after: PodRecord | None) -> None:
        """Update the books for a written pod."""
        if before is None or after is None or before.state is after.state:
            return  # a new pod has no entries
        job = self.jobs[after.job_id]
        self._book(job, after.instance_id, before.state, -1)
        self._book(job, after.instance_id, after.state, 1)
        if before.state is PodState.INITIALIZED and after.state is PodState.PENDING:
            job.queued_s[after.instance_id] = self.clock_ns // 10**9

    def _book(self, job: Job, instance_id: int, state: PodState, sign: int) -> None:
        account = self.ledgers[job.record.respool_id][job.workload(instance_id)]
        for column, kind, amount in job.entries(instance_id, state):
            account[column][kind] += sign * amount

    def recount(self) -> dict[RespoolId, Account]:
        """Return the books computed from the rows alone."""
        kept, self.ledgers = self.ledgers, {pool: _blank() for pool in self.ledgers}
        for job in self.jobs.values():
            for pod in job.pods.values():
                self._book(job, pod.instance_id, pod.state, 1)
        kept, self.ledgers = self.ledgers, kept
        return kept

    # -- what the workflow of a job does, and the host manager ------------------------------------------------------

    def create(self, plan: JobPlan) -> None:
        *special, usual = plan.shapes
        own = {i: _facts(plan, some.shape) for some in special for i in range(some.start, some.start + some.count)}
        stored = self.storage.jobs.add(plan.record, _facts(plan, usual.shape), own)
        self.jobs[plan.record.job_id] = Job(plan, stored)
        self.storage.pods.create(plan.record.job_id, lambda _: None)

    def settle(self, job: Job) -> JobProgress:
        """Settle until no immediate work remains; an ended job is forgotten."""
        job_id = job.record.job_id
        while (progress := self.storage.jobs.settle(job_id, self.clock_ns)).settle_again:
            pass
        if progress.state in JOB_TERMINAL:
            killed = [pod for pod in job.pods.values() if pod.state is PodState.KILLED]
            lost = [pod for pod in killed if pod.goal is PodState.SUCCEEDED]
            assert not lost, f"{len(lost)} pods of {job.record.name} were evicted and did not come back"
            del self.jobs[job_id]
            self.storage.jobs.delete(job_id)
            self.ended_count[progress.state] = self.ended_count.get(progress.state, 0) + 1
        return progress

    def kill_running(self, job: Job) -> list[PodId]:
        """Ask running pods to end now."""
        rows = self.storage.host_pods.mark_killing(job.record.job_id, limit=job.record.instance_count)
        return [pod_id for pod_id, *_ in rows]

    def report(self, status: PodStatus) -> StatusOutcome:
        """Apply a host's report of a pod."""
        return self.storage.host_pods.apply_status([status])

    def ready_gangs(self, job: Job) -> list[ReadyGang]:
        """Return the gang when all of it is ready, and pods that are not in a gang."""
        job_id = job.record.job_id
        gang = self.storage.pods.ready_gang(job_id)
        return [
            *([gang] if gang is not None else []),
            *self.storage.pods.ready_gangs(job_id, job.record.instance_count),
        ]


def _facts(plan: JobPlan, shape: PodShape) -> InstanceFacts:
    return InstanceFacts("", shape, plan.attempts, HealthState.DISABLED, GRACE_S, plan.kills_on_preempt)


def _blank() -> Account:
    return {work: [[0, 0, 0, 0] for _ in COLUMNS] for work in WORKLOADS}


def _entries(shape: PodShape, is_queued: bool) -> list[Entry]:
    kinds = [(kind, amount) for kind, amount in enumerate(shape.resources) if amount]
    return [(column, *kind) for column in _columns(shape, is_queued) for kind in kinds]


def _columns(shape: PodShape, is_queued: bool) -> Iterator[int]:
    """Yield the columns of the books for a pod that waits or holds resources."""
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
