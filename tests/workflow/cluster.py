"""A small cluster in memory: jobs, pods, hosts, and how they act on their own.

Decisions are made by ``peloton.lifecycle``; the caller provides the clock. ``fakes.py`` has the ports on it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from peloton.model.ids import Hostname, JobId, PodId, RespoolId
from peloton.model.job import JobEnd, JobRecord, JobState, JobType, SlaSpec
from peloton.model.pod import ALLOCATED, ON_HOST, TERMINAL, HealthState, PodRecord, PodShape, PodState, PodStatus
from peloton.model.reason import PlacementReason
from peloton.model.resources import Resources
from services.storage.codec import InstanceFacts
from tests.doubles.storage.storage import MemoryStorage

if TYPE_CHECKING:
    from tests.workflow.rolled import RolledService


class Clock(Protocol):
    """A clock, and events at later times. ``act`` may run on any thread."""

    def now_ns(self) -> int: ...

    def after(self, delay_s: float, act: Callable[[], object]) -> None: ...


@dataclass
class HostSlots:
    free: int
    lease_id: str = ""


SHAPE = PodShape(Resources(cpu_milli=1_000))
UNFIT = PodShape(Resources(cpu_milli=7_000))


def succeed(_: PodId) -> PodState:
    return PodState.SUCCEEDED


class Cluster:
    """Jobs, pods and hosts. One slot of a host runs one pod."""

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
        settles_ends: bool = False,
        ending: Callable[[PodId], PodState] = succeed,
    ) -> None:
        self.clock = clock
        self.slots, self.admitted_max, self.admission_s = slots, admitted_max, admission_s
        self.start_s, self.run_s, self.kill_s, self.ending = start_s, run_s, kill_s, ending
        self.settles_ends = settles_ends  # as host managers do with small jobs
        self.lock = threading.RLock()
        self.lifecycles: Any = None  # ports.Lifecycles, with the method ``jobs_ended``
        self.storage = MemoryStorage(clock.now_ns)
        self.jobs = self.storage.by_id
        self.rolled: dict[JobId, RolledService] = {}  # jobs that are services as well
        self.hosts = {Hostname(f"host{i}"): HostSlots(slots) for i in range(hosts)}
        self.waiting_for_hosts: set[JobId] = set()
        self.launched: dict[PodId, Hostname] = {}
        self.unplaced: dict[JobId, tuple[int, PlacementReason]] = {}
        self.calls: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()  # port method -> calls to come that no other attempt helps
        self.outages: Counter[str] = Counter()  # port method -> calls to come that fail before they act
        self.lost_replies: Counter[str] = Counter()  # port method -> calls to come whose answer is lost
        self.on_chunk: Callable[[int], None] = lambda count: None  # called during the creation of pods
        self.ignored_kills = 0  # future calls of kill_running that have no effect
        self.lost_leases = 0  # future launches whose lease is lost
        self.leases_made = 0
        self.refused: set[PodId] = set()  # pods that fit no host
        self.unfit: set[int] = set()  # instances that are larger than any host
        self.locked = ""  # reason for which writes are rejected
        self.stop_refusal = ""
        self.can_prefetch = True
        self.prefetched: list[tuple[str, Hostname]] = []  # image, host
        self.peak_scheduled = 0

    # Actions and reads of a test.

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
        facts = InstanceFacts("", SHAPE, max_failures, HealthState.DISABLED, grace_s=30)
        self.storage.jobs.add(record, facts, {i: replace(facts, shape=UNFIT) for i in self.unfit})
        return record

    def kill(self, job_id: JobId) -> None:
        """Stop the whole job as the API does."""
        with self.lock:
            self.storage.jobs.set_goal(job_id, JobState.KILLED, self.clock.now_ns())
            self.notify(job_id)

    def delete(self, job_id: JobId) -> None:
        """Mark a job as the API does so that it is deleted once it has ended."""
        with self.lock:
            self.jobs[job_id].write(goal=JobState.DELETED)

    def forget(self, job_id: JobId) -> None:
        with self.lock:
            del self.jobs[job_id]
            self.launched = {pod: host for pod, host in self.launched.items() if pod.job_id != job_id}

    def grow(self, job_id: JobId, pods: int) -> None:
        """Add instances to a job as the API does."""
        with self.lock:
            self.jobs[job_id].write(instance_count=pods, state=JobState.INITIALIZED)
            self.notify(job_id)

    def add_hosts(self, count: int, *, notify: bool = True) -> None:
        with self.lock:
            have = len(self.hosts)
            self.hosts.update({Hostname(f"host{i}"): HostSlots(self.slots) for i in range(have, have + count)})
            if notify:
                waiting, self.waiting_for_hosts = self.waiting_for_hosts, set()
                self.notify(*sorted(waiting))

    def counts(self, job_id: JobId) -> dict[str, int]:
        return {state.value: count for state, count in self.jobs[job_id].pods.counts().items()}

    def notify(self, *job_ids: JobId) -> None:
        if self.lifecycles is not None and job_ids:
            self.lifecycles.jobs_changed(job_ids)

    def validate(self) -> None:
        """Slots are used by exactly the pods that are on hosts."""
        with self.lock:
            used = Counter(Hostname(p.host) for j in self.jobs.values() for p in j.pods if p.state in ON_HOST)
            taken = {name: self.slots - host.free for name, host in self.hosts.items()}
        assert taken == {name: used[name] for name in taken}

    # Actions that the parts of the cluster take on their own.

    def admit(self, heard: JobId | None = None) -> int:
        """Admit pods and notify their jobs, except for the job that reads in the answer how many of its pods outside
        of gangs were admitted.
        """
        with self.lock:
            pods = [p for j in self.jobs.values() for p in j.pods]
            room = self.admitted_max - sum(p.state in ALLOCATED for p in pods)
            now_ns = self.clock.now_ns()
            held = {job.record.job_id for job in self.jobs.values() if job.record.gang_due_ns > now_ns}
            waiting = [p for p in pods if p.state is PodState.PENDING]
            members = [p for p in waiting if self._is_member(p)]
            chosen = [p for p in members if p.job_id not in held] if len(members) <= room else []
            may = [p for p in waiting if not self._is_member(p) and p.held_until_ns <= now_ns]
            chosen += may[: max(room - len(chosen), 0)]
            self.storage.admission.mark_ready([(p.job_id, p.instance_id, 1) for p in chosen])
            alone = [p for p in chosen if not self._is_member(p)]
            self.notify(*sorted({p.job_id for p in chosen if p.job_id != heard or p not in alone}))
            return sum(p.job_id == heard for p in alone)

    def _is_member(self, pod: PodRecord) -> bool:
        return pod.instance_id < self.jobs[pod.job_id].first_single

    def report(self, pod_ids: Iterable[PodId], state: Callable[[PodId], PodState], reason: str = "TEST") -> None:
        """Statuses from hosts are applied, their jobs notified in one batch, and the freed slots given to
        other pods.
        """
        with self.lock:
            now_ns, ids = self.clock.now_ns(), list(pod_ids)
            hosts = {pod_id: self.jobs[pod_id.job_id].pods.records[pod_id.instance_id].host for pod_id in ids}
            statuses = [PodStatus(pod_id, state(pod_id), now_ns, reason=reason) for pod_id in ids]
            outcome = self.storage.host_pods.apply_status(statuses)
            for pod_id in outcome.ended:
                self.hosts[Hostname(hosts[pod_id])].free += 1
            if outcome.changed_jobs:
                ended = self._settle_ends(outcome.changed_jobs)
                self.notify(*sorted({*outcome.changed_jobs, *self.waiting_for_hosts} - ended))
                self.waiting_for_hosts.clear()
                self.admit()

    def _settle_ends(self, job_ids: Iterable[JobId]) -> set[JobId]:
        """Settle the ends of jobs, and send them to their workflows; returns these jobs."""
        ends: dict[JobId, JobEnd] = {}
        for job_id in job_ids if self.settles_ends else ():
            if self.jobs[job_id].pods.records and all(pod.state in TERMINAL for pod in self.jobs[job_id].pods):
                progress = self.storage.jobs.settle(job_id, self.clock.now_ns())
                if progress.is_finished and not progress.is_unwanted:
                    ends[job_id] = JobEnd(progress.state, progress.counts, progress.revision)
        if ends and self.lifecycles is not None:
            self.lifecycles.jobs_ended(ends)
        return {*ends}

    def start(self, pod_ids: list[PodId]) -> None:
        """A launch of pods runs its course, unless a kill comes in between."""
        self.clock.after(self.start_s, lambda: self.report(pod_ids, lambda _: PodState.RUNNING))
        self.clock.after(self.start_s + self.run_s, lambda: self.report(pod_ids, self.ending))
