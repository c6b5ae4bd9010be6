"""A small cluster in memory: jobs, pods, hosts, and what they do by themselves.

Decisions are those of ``peloton.lifecycle``; time is the caller's. ``fakes.py`` has the ports on it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from peloton.lifecycle.pod import Applied, apply_status
from peloton.lifecycle.pod_machine import Event, next_pod
from peloton.lifecycle.pod_terms import ON_REQUEST
from peloton.lifecycle.retry import after_end
from peloton.lifecycle.settle import STOP_MESSAGE
from peloton.model.ids import Hostname, JobId, PodId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.pod import ALLOCATED, ON_HOST, PodRecord, PodState, PodStatus
from peloton.model.reason import PlacementReason
from peloton.ports import Lifecycles

if TYPE_CHECKING:
    from tests.workflow.rolled import RolledService


class Clock(Protocol):
    """Time, and things that happen later. ``act`` may run on any thread."""

    def now_ns(self) -> int: ...

    def after(self, delay_s: float, act: Callable[[], None]) -> None: ...


@dataclass
class Job:
    record: JobRecord
    max_failures: int = 0
    pods: dict[int, PodRecord] = field(default_factory=dict)
    held_until_ns: int = 0  # the gang is not admitted before
    requeue_count: int = 0
    admitted_ns: dict[int, int] = field(default_factory=dict)  # pods that stand alone -> when
    pods_held_until_ns: dict[int, int] = field(default_factory=dict)  # the same -> not admitted before
    vain_counts: Counter[int] = field(default_factory=Counter)  # the same -> times in a row that no host was found

    @property
    def gang(self) -> list[PodRecord]:
        size = self.record.gang_size
        return [pod for i, pod in self.pods.items() if i < size] if size > 1 else []

    def is_member(self, pod: PodRecord) -> bool:
        return pod.instance_id < self.record.gang_size > 1


@dataclass
class HostSlots:
    free: int
    lease_id: str = ""


def succeed(_: PodId) -> PodState:
    return PodState.SUCCEEDED


class Cluster:
    """Jobs, pods and hosts. One slot of a host takes one pod."""

    def __init__(
        self,
        clock: Clock,
        *,
        hosts: int = 4,
        slots: int = 10,
        admitted_max: int = 1_000_000,
        admission_s: float = 0.1,
        start_s: float = 0.5,
        run_s: float = 60.0,
        kill_s: float = 0.5,
        ending: Callable[[PodId], PodState] = succeed,
    ) -> None:
        self.clock = clock
        self.slots, self.admitted_max, self.admission_s = slots, admitted_max, admission_s
        self.start_s, self.run_s, self.kill_s, self.ending = start_s, run_s, kill_s, ending
        self.lock = threading.RLock()
        self.lifecycles: Lifecycles | None = None
        self.jobs: dict[JobId, Job] = {}
        self.rolled: dict[JobId, RolledService] = {}  # jobs that are services beside
        self.hosts = {Hostname(f"host{i}"): HostSlots(slots) for i in range(hosts)}
        self.waiting_for_hosts: set[JobId] = set()
        self.launched: dict[PodId, Hostname] = {}
        self.unplaced: dict[JobId, tuple[int, PlacementReason]] = {}
        self.calls: Counter[str] = Counter()
        self.outages: Counter[str] = Counter()  # port method -> calls to come that fail before they act
        self.lost_replies: Counter[str] = Counter()  # port method -> calls to come whose answer is lost
        self.on_chunk: Callable[[int], None] = lambda count: None  # called during the creation of pods
        self.ignored_kills = 0  # calls to come of kill_running that do nothing
        self.lost_leases = 0  # launches to come that find their lease gone
        self.leases_made = 0
        self.refused: set[PodId] = set()  # pods that no host takes
        self.unfit: set[int] = set()  # instances that are larger than any host
        self.can_prefetch = True
        self.prefetched: list[tuple[str, Hostname]] = []  # image, host
        self.peak_scheduled = 0

    # What a test does and looks at.

    def submit(self, job_id: str, pods: int, *, sla: SlaSpec | None = None, max_failures: int = 0) -> JobRecord:
        record = JobRecord(
            JobId(job_id),
            "train",
            JobType.BATCH,
            "team",
            RespoolId("pool"),
            pods,
            sla or SlaSpec(),
            JobState.INITIALIZED,
            JobState.SUCCEEDED,
            created_ns=self.clock.now_ns(),
        )
        self.jobs[record.job_id] = Job(record, max_failures)
        return record

    def kill(self, job_id: JobId) -> None:
        """What the API does for a stop of the whole job."""
        with self.lock:
            job = self.jobs[job_id]
            job.record = replace(job.record, goal=JobState.KILLED)
            words = {"message": STOP_MESSAGE, "reason": "", "why": ON_REQUEST}
            for i, pod in job.pods.items():
                job.pods[i] = next_pod(pod, Event.STOP, self.clock.now_ns(), **words) or pod
            self.tell(job_id)

    def delete(self, job_id: JobId) -> None:
        """What the API does when nothing of the job is to be left once it has ended."""
        with self.lock:
            job = self.jobs[job_id]
            job.record = replace(job.record, goal=JobState.DELETED)

    def forget(self, job_id: JobId) -> None:
        with self.lock:
            del self.jobs[job_id]
            self.launched = {pod: host for pod, host in self.launched.items() if pod.job_id != job_id}

    def grow(self, job_id: JobId, pods: int) -> None:
        """What the API does when a job gets more instances."""
        with self.lock:
            job = self.jobs[job_id]
            job.record = replace(job.record, instance_count=pods, state=JobState.INITIALIZED)
            self.tell(job_id)

    def add_hosts(self, count: int, *, tell: bool = True) -> None:
        with self.lock:
            have = len(self.hosts)
            self.hosts.update({Hostname(f"host{i}"): HostSlots(self.slots) for i in range(have, have + count)})
            if tell:
                waiting, self.waiting_for_hosts = self.waiting_for_hosts, set()
                self.tell(*sorted(waiting))

    def counts(self, job_id: JobId) -> dict[str, int]:
        return dict(Counter(p.state.value for p in self.jobs[job_id].pods.values()))

    def tell(self, *job_ids: JobId) -> None:
        if self.lifecycles is not None and job_ids:
            self.lifecycles.jobs_changed(job_ids)

    def validate(self) -> None:
        """Slots are used by exactly the pods that are on hosts."""
        with self.lock:
            used = Counter(Hostname(p.host) for j in self.jobs.values() for p in j.pods.values() if p.state in ON_HOST)
            taken = {name: self.slots - host.free for name, host in self.hosts.items()}
        assert taken == {name: used[name] for name in taken}

    # What the parts of the cluster do by themselves.

    def admit(self, heard: JobId | None = None) -> int:
        """Tells the jobs, but for one that hears how many of its pods that stand alone were admitted."""
        with self.lock:
            pods = [p for j in self.jobs.values() for p in j.pods.values()]
            room = self.admitted_max - sum(p.state in ALLOCATED for p in pods)
            held = {job.record.job_id for job in self.jobs.values() if job.held_until_ns > self.clock.now_ns()}
            waiting = [p for p in pods if p.state is PodState.PENDING]
            members = [p for p in waiting if self.jobs[p.job_id].is_member(p)]
            chosen = [p for p in members if p.job_id not in held] if len(members) <= room else []
            may = [p for p in waiting if not self.jobs[p.job_id].is_member(p) and not self._is_held_back(p)]
            chosen += may[: max(room - len(chosen), 0)]
            for pod in chosen:
                job = self.jobs[pod.job_id]
                job.pods[pod.instance_id] = replace(pod, state=PodState.READY)
                job.admitted_ns[pod.instance_id] = self.clock.now_ns()
            alone = [p for p in chosen if not self.jobs[p.job_id].is_member(p)]
            self.tell(*sorted({p.job_id for p in chosen if p.job_id != heard or p not in alone}))
            return sum(p.job_id == heard for p in alone)

    def _is_held_back(self, pod: PodRecord) -> bool:
        return self.jobs[pod.job_id].pods_held_until_ns.get(pod.instance_id, 0) > self.clock.now_ns()

    def report(self, pod_ids: Iterable[PodId], state: Callable[[PodId], PodState], reason: str = "TEST") -> None:
        """Statuses from hosts: applied, told in one batch, and followed by what they make room for."""
        with self.lock:
            now_ns, changed = self.clock.now_ns(), set()
            for pod_id in pod_ids:
                job = self.jobs[pod_id.job_id]
                before = job.pods[pod_id.instance_id]
                reached = state(pod_id)
                outcome = apply_status(before, PodStatus(pod_id, reached, now_ns, reason=reason), JobType.BATCH)
                if not isinstance(outcome, Applied):
                    continue
                self.put(job, outcome.pod)
                if outcome.ended:
                    self.hosts[Hostname(before.host)].free += 1
                    ending = after_end(outcome.pod, JobType.BATCH, launch_lost=outcome.launch_lost)
                    again = {"next_run": ending.next_run, "due_ns": ending.due_ns}
                    self.put(job, next_pod(outcome.pod, Event.RUN_AGAIN, now_ns, **again) or outcome.pod)
                changed.add(pod_id.job_id)
            if changed:
                self.tell(*sorted(changed | self.waiting_for_hosts))
                self.waiting_for_hosts.clear()
                self.admit()

    def put(self, job: Job, pod: PodRecord) -> None:
        job.pods[pod.instance_id] = pod

    def start(self, pod_ids: list[PodId]) -> None:
        """A launch of pods takes its course, unless a kill comes in between."""
        self.clock.after(self.start_s, lambda: self.report(pod_ids, lambda _: PodState.RUNNING))
        self.clock.after(self.start_s + self.run_s, lambda: self.report(pod_ids, self.ending))
