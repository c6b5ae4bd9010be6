"""A cluster for tests of the resource manager: a real storage on SQLite, pools, jobs, and hosts that comply at once."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import PelotonError, Unavailable
from peloton.model.advice import Marked
from peloton.model.daemon import DaemonPlan, DaemonReach
from peloton.model.host import Capacity
from peloton.model.ids import ROOT_POOL_ID, Hostname, JobId, PodId, RespoolId
from peloton.model.job import JobState
from peloton.model.planned_capacity import CapacityAnswer, PlannedPods
from peloton.model.pod import PodShape, PodState, PodStatus
from peloton.model.reason import Infeasibility, PlacementReason
from peloton.model.resources import Resources
from peloton.model.update import UpdateSpec
from services.resmgr.accounts import COLUMNS
from services.resmgr.ledger import IS_ALLOCATED, LEAVING, PENDING, JobLedger
from services.resmgr.loop import AdmissionLoop
from services.resmgr.pool_rules import with_defaults
from services.resmgr.settings import LoopSettings
from services.resmgr.state import ResmgrState
from services.storage import migrate
from services.storage.pods.host_pods import LaunchRow
from services.storage.storage import Storage

LICENSE = "license/solver"
FAST = LoopSettings(cycle_period_s=0.01, entitlement_period_s=0.05, capacity_period_s=0.05, retry_period_s=0.02)


def open_storage(folder: Path) -> Storage:
    url = f"sqlite:///{folder / 'store.db'}"
    migrate.upgrade(url)
    return Storage(url)


@dataclass
class RecordedLifecycles:
    """A ``ports.Lifecycles`` that records the jobs it woke."""

    woken: list[JobId] = field(default_factory=list)

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        self.woken += job_ids


@dataclass
class FixedCapacity:
    """A ``CapacitySource`` with an answer that tests may change; None: it is Unavailable."""

    answer: Sequence[Any] | None = (Resources.of(100, 100_000, 100_000), Resources())
    """The fields of a ``Capacity``; without the third one all registered hosts are up."""
    unfit: dict[int, Infeasibility] = field(default_factory=dict)  # cpu_milli of a pod -> why no host could take it
    room: int | None = None  # pods that find a host; None: all
    why: PlacementReason = ()
    asked_for: list[PlannedPods] = field(default_factory=list)  # set by the last question about free resources
    reached: Sequence[DaemonReach] = ()
    daemon: Mapping[str, DaemonPlan | PelotonError] = field(default_factory=dict)
    marked: dict[Hostname, Marked] = field(default_factory=dict)
    slow: dict[JobId, Marked] = field(default_factory=dict)

    def capacity(self) -> Capacity:
        if self.answer is None:
            raise Unavailable("no host manager leads at present")
        up, revocable, *rest = self.answer
        return Capacity(up, revocable, *(rest or [up]))

    def evaluate(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasibility]:
        if self.answer is None:
            raise Unavailable("no host manager leads at present")
        return {shape: why for shape in shapes if (why := self.unfit.get(shape.resources.cpu_milli))}

    def find_capacity(self, pods: Sequence[PlannedPods]) -> CapacityAnswer:
        if self.answer is None:
            raise Unavailable("no host manager leads at present")
        self.asked_for, left, counts = [*pods], sys.maxsize if self.room is None else self.room, []
        for each in sorted(pods, key=lambda each: each.turn):
            counts.append(min(each.count, left))
            left -= counts[-1]
        return CapacityAnswer(tuple(counts), self.why)

    def plan_daemon(self, shape: PodShape) -> Mapping[str, DaemonPlan | PelotonError]:
        if self.answer is None:
            raise Unavailable("no host manager leads at present")
        return self.daemon

    def reach(self, shape: PodShape) -> Sequence[DaemonReach]:
        if self.answer is None:
            raise Unavailable("no host manager leads at present")
        return self.reached

    def advice(self) -> tuple[dict[Hostname, Marked], dict[JobId, Marked]]:
        if self.answer is None:
            raise Unavailable("no host manager leads at present")
        return self.marked, self.slow


def pool_config(
    name: str, reservation: float, limit: float, parent: str = ROOT_POOL_ID, **more: Any
) -> respool_pb2.ResourcePoolConfig:
    config = respool_pb2.ResourcePoolConfig(name=name, **more)
    config.parent.value = parent
    config.resources.add(kind="cpu", reservation=reservation, limit=limit, share=1)
    return config


@dataclass
class World:
    storage: Storage
    lifecycles: RecordedLifecycles = field(default_factory=RecordedLifecycles)
    hosts: FixedCapacity = field(default_factory=FixedCapacity)
    now_ns: int = 1

    def loop(self, settings: LoopSettings = FAST) -> AdmissionLoop:
        return AdmissionLoop(self.storage, self.lifecycles, self.hosts, settings)

    def pool(
        self,
        name: str,
        reservation: float,
        limit: float,
        parent: str = ROOT_POOL_ID,
        licenses: tuple[int, int] = (0, 0),
    ) -> RespoolId:
        """Store a pool. ``licenses``: reservation and limit of LICENSE."""
        config = with_defaults(pool_config(name, reservation, limit, parent))
        if any(licenses):
            config.resources.add(kind=LICENSE, reservation=licenses[0], limit=licenses[1], share=1)
        pool_id = RespoolId(str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{parent}/{name}")))
        self.storage.pools.put(pool_id, config)
        return pool_id

    def job(
        self,
        pool_id: RespoolId,
        count: int,
        cpu: float = 1,
        gang: int = 0,
        priority: int = 0,
        cpus: Sequence[float] = (),
        preemptible: bool = True,
        revocable: bool = False,
        max_failures: int = 0,
        owner: str = "",
        licenses: int = 0,
    ) -> JobId:
        """Store a job whose pods are INITIALIZED. ``cpus`` sets the amounts of the first pods."""
        config = job_pb2.JobConfig(name="job", type=job_pb2.BATCH, instanceCount=count)
        config.respoolID.value, config.owningTeam = pool_id, owner
        config.sla.priority, config.sla.preemptible, config.sla.revocable = priority, preemptible, revocable
        config.sla.minimumRunningInstances = gang
        config.defaultConfig.resource.cpuLimit = cpu
        if licenses:
            config.defaultConfig.resource.extended[LICENSE] = licenses
        config.defaultConfig.restartPolicy.maxFailures = max_failures
        for instance, own in enumerate(cpus):
            config.instanceConfig[instance].CopyFrom(
                task_pb2.TaskConfig(resource=task_pb2.ResourceConfig(cpuLimit=own))
            )
        job_id = JobId(str(uuid.uuid4()))
        self.storage.jobs.create(new_job_record(job_id, config, self.now_ns), config, self.now_ns)
        self.storage.pods.create(job_id, lambda _: None)
        return job_id

    def service(
        self,
        pool_id: RespoolId,
        count: int,
        update: UpdateSpec,
        maximum_unavailable: int = 0,
        opaque: str = "",
        owner: str = "",
    ) -> JobId:
        """Store a service whose first update has not begun."""
        config = job_pb2.JobConfig(name="service", type=job_pb2.SERVICE, instanceCount=count, owningTeam=owner)
        config.respoolID.value = pool_id
        config.sla.preemptible = True
        config.sla.maximumUnavailableInstances = maximum_unavailable
        config.defaultConfig.resource.cpuLimit = 1
        job_id = JobId(str(uuid.uuid4()))
        record = new_job_record(job_id, config, self.now_ns)
        self.storage.updates.create_service(record, config, b"", update, opaque, self.now_ns)
        return job_id

    def daemon(self, pool_id: RespoolId) -> JobId:
        """Store a daemon without hosts."""
        config = job_pb2.JobConfig(name="daemon", type=job_pb2.DAEMON)
        config.respoolID.value = pool_id
        config.defaultConfig.resource.cpuLimit = 1
        job_id = JobId(str(uuid.uuid4()))
        self.storage.jobs.create(new_job_record(job_id, config, self.now_ns), config, self.now_ns)
        return job_id

    def states(self, job_id: JobId) -> dict[PodState, list[int]]:
        found: dict[PodState, list[int]] = {}
        for pod in self.storage.pods.page(job_id, 0, 10_000):
            found.setdefault(pod.state, []).append(pod.instance_id)
        return found

    def launch(self, job_id: JobId, limit: int) -> None:
        """Launch the job's gang if it is whole, and at most ``limit`` pods outside gangs."""
        gang = self.storage.pods.ready_gang(job_id)
        gangs = [*([gang] if gang else []), *self.storage.pods.ready_gangs(job_id, limit)]
        rows: list[LaunchRow] = [(instance, run, "h1", "a1", {}) for one in gangs for instance, run in one.pods]
        self.storage.host_pods.mark_launched(job_id, rows, self.now_ns)

    def finish(
        self,
        job_id: JobId,
        instances: Iterable[int],
        state: PodState = PodState.SUCCEEDED,
        no_other_host: bool = False,
    ) -> None:
        """Run READY pods on hosts and end them; the gang is launched whole, whichever members end."""
        self.launch(job_id, 0)
        pods = {pod.instance_id: pod for pod in self.storage.pods.page(job_id, 0, 10_000)}
        chosen = [pods[i] for i in instances if i in pods and pods[i].state in (PodState.READY, PodState.LAUNCHED)]
        rows: list[LaunchRow] = [(pod.instance_id, pod.desired_run_id, "h1", "a1", {}) for pod in chosen]
        self.storage.host_pods.mark_launched(job_id, rows, self.now_ns)
        ended = [PodId(job_id, pod.instance_id, pod.desired_run_id) for pod in chosen]
        statuses = [PodStatus(pod, state, self.now_ns, "h1", "a1") for pod in ended]
        self.storage.host_pods.apply_status(statuses, no_other_host=ended if no_other_host else ())

    def want_killed(self, job_id: JobId, start: int, count: int) -> None:
        self.storage.pods.set_goals(job_id, [(start, count)], PodState.KILLED, self.now_ns, "stop")

    def kill_job(self, job_id: JobId) -> None:
        self.storage.jobs.set_goal(job_id, JobState.KILLED, self.now_ns)

    def settle(self, job_id: JobId) -> None:
        self.now_ns += 10**12
        while self.storage.jobs.settle(job_id, self.now_ns).settle_again:
            pass


def _read_held_until_ns(ledger: JobLedger) -> np.ndarray:
    return np.zeros(len(ledger.states), np.int64) if ledger.held_until_ns is None else ledger.held_until_ns


def facts(state: ResmgrState) -> dict[str, object]:
    """Return every part of a state that must survive a rebuild, in comparable form."""
    jobs = {}
    for job_id, ledger in state.jobs.items():
        jobs[job_id] = (
            np.flatnonzero(ledger.states == PENDING).tolist(),
            np.flatnonzero(IS_ALLOCATED[ledger.states]).tolist(),
            np.flatnonzero(ledger.states == LEAVING).tolist(),
            ledger.pool_id,
            ledger.priority,
            ledger.gang_size,
            (ledger.requeue_count, ledger.gang_due_ns),
            [int(due) for due in _read_held_until_ns(ledger)[ledger.states == PENDING]],
        )
    return {
        "pools": state.pools,
        "queues": state.waiting.pools,
        "jobs": jobs,
        "accounts": {name: getattr(state.accounts, name).tolist() for name in COLUMNS},
        "log_cursor": state.log_cursor,
    }


def fast(**changes: Any) -> LoopSettings:
    return replace(FAST, **changes)
