"""A day of a whole cluster in virtual time, from one seed.

Real: entitlement, admission, the resource manager's state and its rebuild, the rules of pools, placement, and
lifecycles. Simulated: storage, hosts, time, which jumps from one event to the next. A step is one event; each checks
the invariants, and a failure names the seed and the step.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from peloton.api.convert_pool import pool_spec
from peloton.errors import InvalidArgument
from peloton.lifecycle.reason_text import placement_text, queue_text
from peloton.lifecycle.retry import REASON_LAUNCH_REFUSED
from peloton.model.host import PlacementBatch, ReadyGang
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobState
from peloton.model.pod import PodState, PodStatus
from peloton.scheduling.explain import list_waits
from peloton.scheduling.placement import place
from services.resmgr.explain.dry_run import plan_now
from services.resmgr.pool_rules import check_config
from services.storage.pods.host_pods import LaunchRow
from tests.simulation import invariants
from tests.simulation.description import HOUR_S, RUN_MAX_S, RUN_SIGMA, JobPlan, Size, draw_hosts, draw_jobs, draw_pools
from tests.simulation.figures import Figures
from tests.simulation.hosts import SimulatedHosts
from tests.simulation.pool_changes import change_pool, config_of
from tests.simulation.records import Job, Records
from tests.simulation.resmgr import SimulatedResmgr

START_S = 1_800_000_000
TIMEOUT_S = (10, 20, 30)
"""Seconds for which a job with unplaced pods waits before its next placement: growing, then the last."""
LAUNCH_STEPS_MAX = 3
VALIDATE_EVERY = 500
SAMPLE_S = 300
DRAIN_HOURS_MAX = 48
STUCK_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Chances:
    """Rates of failures, per day of 24 hours unless stated otherwise."""

    losses_per_host: float = 0.1
    racks: int = 2
    rack_hosts: float = 0.02  # of all hosts
    kills_per_job: float = 0.04
    pool_changes: int = 48
    restarts: int = 24
    fails_per_run: float = 0.02
    rejects_per_launch: float = 0.002


USUAL = Chances()
ROUGH = Chances(
    losses_per_host=2,
    racks=4,
    rack_hosts=0.5,
    kills_per_job=0.2,
    pool_changes=400,
    restarts=200,
    fails_per_run=0.1,
    rejects_per_launch=0.02,
)
"""Rates under which half of the cluster is lost, four times: guarantees then exceed the capacity."""


@dataclass(slots=True)
class Counts:
    steps: int = 0
    jobs: int = 0
    pods: int = 0
    launched: int = 0
    rejected: int = 0
    lost_hosts: int = 0
    lost_pods: int = 0
    failed_pods: int = 0
    kills: int = 0
    pool_changes: int = 0
    refused_changes: int = 0
    evicted_pods: int = 0
    requeued_pods: int = 0
    admitted_pods: int = 0
    ended_s: int = 0
    took_s: float = 0.0
    ended: dict[JobState, int] = field(default_factory=dict)


class Day:
    hosts_type: ClassVar[type[SimulatedHosts]] = SimulatedHosts

    def __init__(self, seed: int, size: Size | None = None, chances: Chances = USUAL) -> None:
        self.seed, self.size, self.chances = seed, size or Size(), chances
        self.random = Random(seed)
        self.hosts = self.hosts_type(draw_hosts(self.random, self.size))
        capacity, _ = self.hosts.capacity()
        self.first_pools = draw_pools(self.random, self.size, capacity)
        plans = draw_jobs(self.random, self.size, self.first_pools, capacity)
        self.records = Records(self.first_pools)
        self.resmgr = SimulatedResmgr(self.records, self.hosts)
        self.figures = Figures([plan.record.sla.priority for plan in plans])
        self.counts = Counts(jobs=len(plans), pods=sum(plan.record.instance_count for plan in plans))
        self.now_s = 0
        self.end_s = round(self.size.hours * HOUR_S) // self.size.step_s * self.size.step_s
        self._agenda: dict[int, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        self._times: list[int] = []
        self._turns: dict[JobId, None] = {}  # jobs that settle in this step
        self._searching: set[JobId] = set()  # jobs that are placed again later
        self._plan_day(plans)

    # -- time -------------------------------------------------------------------------------------------------------

    def after(self, delay_s: float, act: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call for a later step: at the earliest the next, at whole steps."""
        steps = max(-(-round(delay_s) // self.size.step_s), 1)
        self._at(self.now_s + steps * self.size.step_s, act, *arguments)

    def _at(self, at_s: int, act: Callable[..., None], *arguments: Any) -> None:
        if at_s not in self._agenda:
            self._agenda[at_s] = []
            heapq.heappush(self._times, at_s)
        self._agenda[at_s].append((act, arguments))

    def run(self, steps_max: int | None = None) -> Counts:
        """Run the day, and then until every job has ended. Raises with the seed and the step in its message."""
        began_s = time.process_time()
        try:
            while self._times and (steps_max is None or self.counts.steps < steps_max):
                self._step()
            if not self._times:
                self._check_end()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._repeat()}") from error
        self.counts.took_s = time.process_time() - began_s
        self.counts.ended = dict(self.records.ended_count)
        return self.counts

    def _repeat(self) -> str:
        size = self.size
        flags = f"HOSTS={size.hosts} POOLS={size.pools} PODS={size.pods} HOURS={size.hours:g} STEP_S={size.step_s}"
        flags += " ROUGH=1" if self.chances == ROUGH else ""
        at = f"{self.now_s // 3600:02}:{self.now_s // 60 % 60:02}:{self.now_s % 60:02}"
        return f"seed {self.seed}, step {self.counts.steps}, {at}; repeat with: make sim SEED={self.seed} {flags}"

    def _step(self) -> None:
        self.now_s = heapq.heappop(self._times)
        self.counts.steps += 1
        self.counts.ended_s = self.now_s
        self.records.clock_ns = self._now_ns()
        for act, arguments in self._agenda.pop(self.now_s):
            act(*arguments)
        self._take_turns()
        self.resmgr.read_log()
        if self.resmgr.is_dirty:
            self._cycle()
        self._take_turns()
        if self.resmgr.is_dirty:
            self.after(0, _nothing)
        if self.counts.steps % VALIDATE_EVERY == 0:
            self.resmgr.validate()
        if self.now_s > self.end_s + DRAIN_HOURS_MAX * HOUR_S:
            raise invariants.Broken(f"healed for {DRAIN_HOURS_MAX} hours: {self._describe_left()}")

    def _check_end(self) -> None:
        if self.records.jobs:
            raise invariants.Broken(f"nothing happens any more: {self._describe_left()}")
        self.resmgr.read_log()
        self.resmgr.validate()
        invariants.check_idle(self.resmgr.state)
        if self.hosts.used().any():
            raise invariants.Broken(f"hosts are not empty in the end: {self.hosts.used().tolist()}")

    def _describe_left(self) -> str:
        """Return the jobs that have not ended, and why a few of them wait."""
        state, lines = self.resmgr.state, [f"{len(self.records.jobs)} jobs have not ended"]
        now, plan = plan_now(state, self._now_ns())
        for job in list(self.records.jobs.values())[:STUCK_SHOWN_MAX]:
            row, unplaced = state.tree.row[job.record.respool_id], state.count_unplaced(job.record.job_id)[1]
            mine = (
                queue_text(wait.reason) for wait in list_waits(now, plan, row) if wait.run.job_id == job.record.job_id
            )
            reasons = dict.fromkeys([*mine, placement_text(unplaced)])
            counts = {state.value: count for state, count in job.counts().items()}
            lines.append(f"  {job.record.job_id} {job.record.name} {counts}: {'; '.join(filter(None, reasons))}")
        return "\n".join(lines)

    def _now_ns(self) -> int:
        return (START_S + self.now_s) * 10**9

    # -- what the day holds -----------------------------------------------------------------------------------------

    def _plan_day(self, plans: list[JobPlan]) -> None:
        random, chances, days = self.random, self.chances, self.size.hours / 24
        for plan in plans:
            self._at(plan.arrives_s, self._arrive, plan)
            if random.random() < chances.kills_per_job:
                lives_s = random.expovariate(1 / (2 * plan.median_s))
                self._at(plan.arrives_s + self._steps_s(lives_s), self._kill, plan.record.job_id, random.random())
        host_count = len(self.hosts.hosts)
        for _ in range(round(chances.losses_per_host * host_count * days)):
            self._at(self._moment(), self._lose_hosts, random.randrange(host_count), 1)
        rack = max(round(host_count * chances.rack_hosts), 2)
        for _ in range(chances.racks):
            self._at(self._moment(), self._lose_hosts, random.randrange(host_count - rack), rack)
        for _ in range(round(chances.pool_changes * days)):
            self._at(self._moment(), self._change_pool)
        for _ in range(round(chances.restarts * days)):
            self._at(self._moment(), self.resmgr.restart)
        for at_s in range(SAMPLE_S, self.end_s, SAMPLE_S):
            self._at(at_s, self._sample)
        self._at(self.end_s, self._restore)

    def _steps_s(self, seconds: float) -> int:
        return max(round(seconds) // self.size.step_s, 1) * self.size.step_s

    def _moment(self) -> int:
        return self._steps_s(self.random.uniform(0, 0.95) * self.end_s)

    def _arrive(self, plan: JobPlan) -> None:
        self.records.create(plan)
        self._turns[plan.record.job_id] = None

    def _kill(self, job_id: JobId, luck: float) -> None:
        """Stop the job, or a part of it, as a user does."""
        if (job := self.records.jobs.get(job_id)) is None:
            return
        self.counts.kills += 1
        storage, now_ns, count = self.records.storage, self._now_ns(), len(job.pods)
        if luck < 0.5:
            storage.jobs.set_goal(job_id, JobState.KILLED, now_ns)
        else:
            start = round(luck * (count - 1))
            storage.pods.set_goals(job_id, [(start // 2, start + 1 - start // 2)], PodState.KILLED, now_ns, "by a user")
        self._turns[job_id] = None

    def _lose_hosts(self, first: int, count: int) -> None:
        for row in range(first, first + count):
            if not self.hosts.is_up[row]:
                continue
            self.counts.lost_hosts += 1
            for pod_id in self.hosts.lose(row):
                self.counts.lost_pods += 1
                self.after(self.random.choice([5, 10, 75]), self._report, pod_id, PodState.LOST, "REASON_AGENT_REMOVED")
            self.after(self.random.lognormvariate(7, 1), self._return_host, row)
        self.resmgr.set_capacity()

    def _return_host(self, row: int) -> None:
        if not self.hosts.is_up[row]:
            self.hosts.bring_back(row)
            self.resmgr.set_capacity()

    def _change_pool(self) -> None:
        """Request other limits, reservations or shares; the real rules accept or reject them."""
        state = self.resmgr.state
        config = config_of(
            change_pool(self.random, self.random.choice(sorted(state.pools.values(), key=lambda p: p.name)))
        )
        pool_id = next(p for p, spec in state.pools.items() if (spec.name, spec.parent_id) == _key(config))
        try:
            check_config(state, pool_id, config, state.pools)
        except InvalidArgument:
            self.counts.refused_changes += 1
        else:
            self.counts.pool_changes += 1
            self.resmgr.set_pool(pool_spec(pool_id, config))

    def _restore(self) -> None:
        """Restore all hosts and pools, so that all waiting pods can run."""
        for row in range(len(self.hosts.hosts)):
            self._return_host(row)
        for pool in self.first_pools:
            self.resmgr.set_pool(pool)

    # -- the resource manager ---------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        plan, jobs = self.resmgr.cycle()
        self.counts.admitted_pods += sum(c.gang_count * c.run.gang_size for c in plan.admission.admitted)
        self._turns.update(dict.fromkeys(jobs))
        self.counts.evicted_pods, self.counts.requeued_pods = self.resmgr.evicted_pods, self.resmgr.requeued_pods

    # -- one turn of a job's workflow -------------------------------------------------------------------------------

    def _take_turns(self) -> None:
        while self._turns:
            turns, self._turns = self._turns, {}
            for job_id in turns:
                job = self.records.jobs.get(job_id)
                if job is not None:
                    self._take_turn(job)

    def _take_turn(self, job: Job) -> None:
        progress = self.records.settle(job)
        if progress.kill_count:
            self.resmgr.kill_queued(job.record.job_id)
            for pod_id in self.records.kill_running(job):
                self.after(self.random.choice([5, 5, 30]), self._report, pod_id, PodState.KILLED)
            progress = self.records.settle(job)
        if progress.admit_count:
            self.resmgr.enqueue(job)
        if job.members[PodState.READY] and job.record.job_id not in self._searching:
            self._place(job)

    def _place(self, job: Job) -> None:
        """Lease, place and launch; unplaced pods are retried later."""
        gangs = self.records.ready_gangs(job)
        wanted = sum(len(gang.pods) for gang in gangs)
        launched = 0
        for shape in dict.fromkeys(gang.shape for gang in gangs):
            alike = [gang for gang in gangs if gang.shape == shape]
            lease = self.hosts.lease(shape, sum(len(gang.pods) for gang in alike))
            batch = place(job.record.job_id, alike, lease)
            launched += self._launch(job, batch)
            if batch.unplaced_count:
                for delay_s in self.resmgr.requeue_without_host(job, alike, batch):
                    self.after(delay_s, self.resmgr.look_again)
        self._watch_gangs(job, gangs)
        if launched == wanted:
            job.timeout_s = 0
            return
        later = [s for s in TIMEOUT_S if s > job.timeout_s]
        job.timeout_s = later[0] if later else TIMEOUT_S[-1]
        self._searching.add(job.record.job_id)
        self.after(job.timeout_s, self._search, job.record.job_id)

    def _search(self, job_id: JobId) -> None:
        self._searching.discard(job_id)
        self._turns[job_id] = None

    def _launch(self, job: Job, batch: PlacementBatch) -> int:
        placed = [(pod, one.hostname) for one in batch.placements for pod in one.pods]
        rows: list[LaunchRow] = [(pod.instance_id, pod.run_id, host, host, {}) for pod, host in placed]
        launched = self.records.storage.host_pods.mark_launched(job.record.job_id, rows, self._now_ns())
        for pod, host in placed:
            if pod.instance_id in launched:
                self._run(job, PodId(job.record.job_id, pod.instance_id, pod.run_id), host)
        return len(launched)

    def _run(self, job: Job, pod_id: PodId, hostname: Hostname) -> None:
        """Simulate a launched pod."""
        self.hosts.put(hostname, pod_id, job.shape(pod_id.instance_id))
        self.counts.launched += 1
        self.figures.launched(job.plan, self.now_s - (job.queued_s[pod_id.instance_id] - START_S))
        if self.random.random() < self.chances.rejects_per_launch:
            self.counts.rejected += 1
            self.after(0, self._report, pod_id, PodState.LOST, REASON_LAUNCH_REFUSED)
            return
        start_s = self.size.step_s * job.random.randint(1, LAUNCH_STEPS_MAX)
        run_s = min(job.random.lognormvariate(0, RUN_SIGMA) * job.plan.median_s, RUN_MAX_S)
        ending = PodState.FAILED if job.random.random() < self.chances.fails_per_run else PodState.SUCCEEDED
        self.after(start_s, self._report, pod_id, PodState.RUNNING)
        self.after(start_s + run_s, self._report, pod_id, ending)

    def _watch_gangs(self, job: Job, gangs: list[ReadyGang]) -> None:
        """Check that gangs are launched whole, and run whole when their launch is over."""
        invariants.check_gang(job)
        for gang in gangs:
            if len(gang.pods) > 1:
                members = [PodId(job.record.job_id, *pod) for pod in gang.pods]
                if invariants.check_launch(job, members):
                    self.after(self.size.step_s * (LAUNCH_STEPS_MAX + 1), self._check_gang_runs, job, members)

    def _check_gang_runs(self, job: Job, members: list[PodId]) -> None:
        """Check the members except the ones on hosts lost in between."""
        there = [pod_id for pod_id in members if self._is_on_host(self._host_of(pod_id), pod_id)]
        invariants.check_gang_runs(job, there)

    def _report(self, pod_id: PodId, state: PodState, reason: str = "") -> None:
        """Report a pod's state, as a host or Mesos does."""
        host = self._host_of(pod_id)
        if state is not PodState.LOST and not self._is_on_host(host, pod_id):
            return  # its host is gone
        outcome = self.records.report(PodStatus(pod_id, state, self._now_ns(), reason=reason))
        if outcome.ended:
            self.counts.failed_pods += state is PodState.FAILED
            assert host is not None
            self.hosts.drop(host, pod_id)
            self._turns[pod_id.job_id] = None

    def _is_on_host(self, host: Hostname | None, pod_id: PodId) -> bool:
        return host is not None and pod_id in self.hosts.pods[self.hosts.row[host]]

    def _host_of(self, pod_id: PodId) -> Hostname | None:
        job = self.records.jobs.get(pod_id.job_id)
        pod = job.pods[pod_id.instance_id] if job else None
        return Hostname(pod.host) if pod is not None and pod.run_id == pod_id.run_id and pod.host else None

    def _sample(self) -> None:
        self.figures.sample(self.resmgr.state, self.hosts)


def _key(config: Any) -> tuple[str, str]:
    return config.name, config.parent.value


def _nothing() -> None:
    """Do nothing: time for another cycle."""
