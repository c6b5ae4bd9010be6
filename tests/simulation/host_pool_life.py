"""Host pools through a random life in virtual time, from one seed: hosts move between them, drained or at once, factors
and what host pools serve change, hosts are lost, host managers are replaced, launches get lost on their way.

Real: storage, the host manager with leases and what pods have asked for, moves and maintenance, placement. Simulated:
the cluster, time, admission.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from activities.placement import PlacementActivities
from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import PelotonError
from peloton.lifecycle.constraints import EXCLUSIVE_LABEL
from peloton.lifecycle.host_pools import announced, serving
from peloton.model.host import HostState, LaunchResult, Placement
from peloton.model.host_pool import DEFAULT_HOST_POOL, HostPools, Workload
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobState, JobType
from peloton.model.maintenance import MaintenanceAct, MaintenanceRequest
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from peloton.model.update import UpdateSpec
from peloton.scheduling.placement import FirstFitPlacer
from services.hostmgr import host_pool_keeper, launcher, maintenance, manager, volumes
from services.hostmgr.driver import NOTHING
from services.hostmgr.host_pool_keeper import HostPoolKeeper
from services.hostmgr.memory.cluster import MemoryCluster, MemoryHost
from services.storage.storage import Storage
from tests.conformance.storage.builders import a_config
from tests.simulation.clock import Clock
from tests.simulation.hostmgr import QueueOfAll, SimulatedHostManager, SimulatedMaintainer, Through

EXCLUSIVE_HOSTS = ("h0", "h1")
HOSTS = (*EXCLUSIVE_HOSTS, *(f"h{n}" for n in range(2, 8)))
CAPACITY = Resources.of(4, 8_192, 20_000)
SERVES = {
    "services": {Workload.STATELESS},
    "batch": {Workload.BATCH, Workload.SHARED},
    "shared": {Workload.SHARED},
    "empty": set[Workload](),
}
PERCENTS = (100, 150, 200)
LOST_MAX = 2
RETRIES = 90
ROUNDS_TO_END_MAX = 300


class HostPoolLife:
    """``with HostPoolLife(...) as life: life.live(steps); life.end()``."""

    def __init__(self, seed: int, template: Path, folder: Path) -> None:
        path = folder / "storage.db"
        path.write_bytes(template.read_bytes())
        self.seed, self.random, self.clock = seed, Random(seed), Clock()
        self.storage = Storage(f"sqlite:///{path}", self.clock)
        labels = {True: {EXCLUSIVE_LABEL: "ours"}, False: dict[str, str]()}
        hosts = [MemoryHost(Hostname(h), CAPACITY, labels=labels[h in EXCLUSIVE_HOSTS]) for h in HOSTS]
        self.cluster = MemoryCluster(hosts, self.clock, False)
        self.jobs: dict[JobId, Workload] = {}
        self.counts: dict[JobId, int] = {}
        self.story: list[str] = []
        self.done: dict[str, int] = {}  # how often each act did something
        self.queue_seq = 0
        self.seen: set[PodId] = set()  # on hosts
        self.left: set[PodId] = set()  # that were there when a host pool changed at once: they may stay
        self.places: dict[Hostname, tuple[str, frozenset[Workload]]] = {}  # host pool, and what it serves

    def __enter__(self) -> HostPoolLife:
        self._modules: list[Any] = [host_pool_keeper, launcher, maintenance, manager, volumes]
        self._times = [module.time for module in self._modules]
        for module in self._modules:
            module.time = self.clock
        self._lead()
        self.core.do_chores()
        for name, serves in SERVES.items():
            self.keeper.create(name, frozenset(serves), {})
        self._create(6, 0.5, JobType.SERVICE, Workload.STATELESS)
        self._create(4, 2, JobType.SERVICE, Workload.STATELESS)
        self.exclusive = self._create(3, 1, JobType.SERVICE, Workload.STATELESS, is_exclusive=True)
        self.busy = self._create(16, 1, JobType.BATCH, Workload.SHARED, preemptible=True)
        self._create(3, 1, JobType.BATCH, Workload.BATCH)
        self._note_places()
        return self

    def __exit__(self, *exc: object) -> None:
        for module, time in zip(self._modules, self._times, strict=True):
            module.time = time
        self.storage.close()

    def _create(
        self, count: int, cpu: float, kind: JobType, workload: Workload, is_exclusive: bool = False, **sla: Any
    ) -> JobId:
        config = a_config(count, type_=kind, retries=RETRIES, **sla)
        task = config.defaultConfig
        task.resource.cpuLimit, task.command.value = cpu, "sleep 1000"
        if is_exclusive:
            rule = task.constraint
            rule.type = task_pb2.Constraint.LABEL_CONSTRAINT
            rule.labelConstraint.kind, rule.labelConstraint.condition = task_pb2.LabelConstraint.HOST, 2  # type: ignore[assignment]
            rule.labelConstraint.label.key, rule.labelConstraint.label.value = EXCLUSIVE_LABEL, "ours"
            rule.labelConstraint.requirement = 1
        job_id = JobId(str(uuid.UUID(int=self.random.getrandbits(128), version=4)))
        self._store(job_id, config)
        self.jobs[job_id], self.counts[job_id] = workload, count
        return job_id

    def _store(self, job_id: JobId, config: job_pb2.JobConfig) -> None:
        job, now_ns = convert.new_job_record(job_id, config, self.clock.ns), self.clock.ns
        if job.type is JobType.SERVICE:
            self.storage.updates.create_service(job, config, b"", UpdateSpec(), "", now_ns)
        else:
            self.storage.jobs.create(job, config, now_ns)
            self.storage.pods.create(job_id, lambda _: None)

    def live(self, steps: int) -> None:
        acts: list[tuple[Callable[[], object], float]] = [
            (self.turn, 30), (self.news, 15), (self.room, 8), (self.chores, 5), (self.drain, 12), (self.follow, 3),
            (self.wait, 3), (self.lead, 1), (self.fail, 1), (self.lose_host, 0.7), (self.return_host, 1),
            (self.move, 3), (self.move_at_once, 1), (self.change_factors, 1), (self.change_workloads, 0.8),
            (self.delete_pool, 0.2), (self.create_pool, 0.5), (self.maintain, 0.5), (self.complete, 1),
            (self.cancel, 0.3),
        ]  # fmt: skip
        for act in self.random.choices([act for act, _ in acts], [weight for _, weight in acts], k=steps):
            self._act(act)
            self.clock.pass_s(self.random.choice([0, 0.01, 0.1, 1]))

    def _act(self, act: Callable[..., object], *arguments: object) -> None:
        try:
            what = act(*arguments)
        except PelotonError as error:
            what = f"refused: {error}"
        else:
            self.done[act.__name__] = self.done.get(act.__name__, 0) + bool(what)
        self.story.append(f"{act.__name__} {what or ''}")
        self.check(act in (self.move_at_once, self.change_workloads, self.delete_pool, self.create_pool))

    def end(self) -> None:
        """One host pool serves everything again, and all hosts are back: all pods run, and nothing is left to move."""
        for host in HOSTS:
            if (row := self.storage.maintenance.get("local", host)) is None or row.state is not HostState.DOWN:
                self.cluster.bring_back(host)
        for name in self._pools().pools.keys() - {DEFAULT_HOST_POOL}:
            self.keeper.delete(name)
        self.check(is_abrupt=True)
        self.storage.jobs.set_goal(self.busy, JobState.KILLED, self.clock.ns)
        self.counts[self.busy] = 0
        for _ in range(ROUNDS_TO_END_MAX):
            for act in (self.complete, self.cancel, self.follow):
                self._act(act)
            for host in self._maintained():
                self.maintainer.step(host)
            for job_id in self.jobs:
                for part in self._parts(job_id):
                    part()
            self.core.do_chores()
            self.core.take_room()
            self.core.take_news(self.random, 1_000)
            self.clock.pass_s(10)
            self.check()
            if not self.cluster.reports and not self._maintained() and self._run_all():
                break
        else:
            self._fail(f"it does not come to rest: {self._maintained()}, {sorted(self.cluster.running())}")
        fresh = SimulatedHostManager(self.storage, self.cluster, uses_host_pools=True)
        fresh.do_chores()
        if fresh.book.host_pools.rooms() != self.core.book.host_pools.rooms():
            self._fail(f"in memory {self.core.book.host_pools.rooms()}, read anew {fresh.book.host_pools.rooms()}")

    def _run_all(self) -> bool:
        running = [pod.job_id for pod in self.cluster.running()]
        return all(running.count(job_id) == count for job_id, count in self.counts.items())

    # What must hold after each step, by the cluster and the rows.

    def check(self, is_abrupt: bool = False) -> None:
        """``is_abrupt``: what serves a host may have changed under its pods."""
        before, pools = self.places, self._pools()
        self._note_places()
        for host in self.cluster.hosts.values():
            if before[host.hostname] != self.places[host.hostname]:
                if host.pods and not is_abrupt:
                    told = f"{before[host.hostname][0]} to {self.places[host.hostname][0]}"
                    self._fail(f"{host.hostname} moved from {told} with {sorted(host.pods)}")
                self.left.update(host.pods)
            self._check_host(host, pools)
        self.seen = {pod for host in self.cluster.hosts.values() for pod in host.pods}
        self.left &= self.seen

    def _check_host(self, host: MemoryHost, pools: HostPools) -> None:
        name, serves = self.places[host.hostname]
        if strangers := [pod for pod in host.pods if pod not in self.left and self.jobs[pod.job_id] not in serves]:
            self._fail(f"{host.hostname} is in host pool {name} and shared with {strangers}")
        asked = sum((pod.template.ordinary for pod in host.pods.values()), NOTHING)
        room = announced(host.capacity, pools.pools[name].factors)
        if not host.pods.keys() <= self.seen and not asked.fits_in(room):
            self._fail(f"{host.hostname} announces {room} in host pool {name}, its pods have asked for {asked}")
        if not NOTHING.fits_in(host.free):
            self._fail(f"{host.hostname} is full beyond what it has: {host.free}")
        if host.hostname in EXCLUSIVE_HOSTS and (others := [pod for pod in host.pods if pod.job_id != self.exclusive]):
            self._fail(f"exclusive {host.hostname} has {others}")

    def _note_places(self) -> None:
        pools = self._pools()
        serves, names = serving(pools.pools.values()), {host: pools.of(host).current for host in self.cluster.hosts}
        self.places = {host: (name, serves[name]) for host, name in names.items()}

    def _pools(self) -> HostPools:
        return self.storage.host_pools.all() or HostPools()

    def _fail(self, what: str) -> None:
        tail = "\n".join(self.story[-60:])
        raise AssertionError(f"{what}\nseed {self.seed}, step {len(self.story)}:\n{tail}")

    # What workflows and the host manager do.

    def _lead(self) -> None:
        self.core = SimulatedHostManager(self.storage, self.cluster, uses_host_pools=True)
        self.maintainer = SimulatedMaintainer(self.core, self.storage, self.clock)
        self.keeper = HostPoolKeeper(self.core, self.storage.host_pools, self.storage.host_pods, self.maintainer, 600)
        hosts: Any = Through(self.core, self.launch)
        queue: Any = QueueOfAll(self.storage)
        self.placing = PlacementActivities(self.storage.pods, hosts, queue, FirstFitPlacer())

    def lead(self) -> str:
        self._lead()
        return "another host manager"

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        """Now and then it gets lost, or the host manager dies after its commit; or somebody was faster, and host pools
        have changed."""
        if self.random.random() < 0.05:
            return LaunchResult(0)
        if self.random.random() < 0.1:
            self._act(
                self.random.choice([self.move_at_once, self.change_factors]), [each.hostname for each in placements]
            )
        if self.random.random() > 0.05:
            return self.core.launch(job_id, lease_id, placements)
        driver: Any = self.core.driver
        driver.launch = self._cut_off
        try:
            return self.core.launch(job_id, lease_id, placements)
        finally:
            self._lead()

    def _cut_off(self, launches: Any) -> Any:
        raise OSError("the host manager died")

    def _parts(self, job_id: JobId) -> list[Callable[[], object]]:
        now_ns = self.clock.ns
        return [
            lambda: self.storage.updates.advance(job_id, now_ns),
            lambda: self.storage.jobs.settle(job_id, now_ns),
            lambda: self.core.kill_running(job_id),
            lambda: self.storage.admission.kill_queued(job_id, now_ns),
            lambda: self._queue(job_id),
            lambda: self.storage.admission.mark_ready([(job_id, 0, 100)]),
            lambda: self._place(job_id),
        ]

    def _queue(self, job_id: JobId) -> None:
        self.queue_seq += 1
        self.storage.admission.mark_pending(job_id, self.storage.admission.queueable(job_id, 100), self.queue_seq)

    def _place(self, job_id: JobId) -> None:
        try:
            self.placing.place_and_launch(job_id, 100, 60.0)
        except Exception as error:  # as Temporal sees it: the activity is repeated
            self.story.append(f"placement failed: {error}")

    def turn(self) -> str:
        job_id = self.random.choice(list(self.jobs))
        parts = self._parts(job_id)
        parts = parts[: self.random.randrange(1, len(parts))] if self.random.random() < 0.2 else parts
        for part in parts:
            part()
        return f"{job_id[:4]}, {self.jobs[job_id]}"

    def news(self) -> None:
        self.core.take_news(self.random, self.random.choice([1, 3, 10]))

    def room(self) -> None:
        self.core.take_room()

    def chores(self) -> None:
        self.core.do_chores()

    def follow(self) -> None:
        """What the host manager does each second."""
        self.core.read_host_pools()
        self.maintainer.follow_moves(600)

    def drain(self) -> str:
        hosts = self._maintained()
        if not hosts:
            return ""
        host = self.random.choice(hosts)
        self.maintainer.step(host)
        return host

    def wait(self) -> str:
        seconds = self.random.choice([2, 10, 40, 200])
        self.clock.pass_s(seconds)
        return f"{seconds} s"

    def _maintained(self) -> list[str]:
        return [host.hostname for host in self.storage.maintenance.all("local")]

    # What people do.

    def _one_pool(self, names: Iterable[str] = ()) -> str:
        return self.random.choice(sorted(names or self._pools().pools))

    def move(self) -> str:
        """Drained; asked of another host manager now and then, of which this one learns later."""
        hosts, pool = self.random.sample(HOSTS, self.random.choice([1, 1, 2])), self._one_pool()
        if self.random.random() < 0.3:
            self.storage.host_pools.desire(hosts, pool, self.clock.ns)
        else:
            self.keeper.move(hosts, pool)
        return f"{hosts} to {pool}"

    def move_at_once(self, hosts: Sequence[str] = HOSTS) -> str:
        host, pool = self.random.choice(hosts), self._one_pool()
        self.keeper.change(host, self._pools().of(Hostname(host)).current, pool)
        return f"{host} to {pool}"

    def change_factors(self, hosts: Sequence[str] = ()) -> str:
        """Of any host pool, or of that of one of the hosts."""
        pools = self._pools()
        pool = self._one_pool([pools.of(Hostname(host)).current for host in hosts])
        percent = self.random.choice(PERCENTS)
        self.keeper.update(pool, None, {"cpu_percent": percent})
        return f"{pool}: {percent}"

    def change_workloads(self) -> str:
        pool, serves = self._one_pool(SERVES), frozenset(self.random.choice(list(SERVES.values())))
        self.keeper.update(pool, serves, {})
        return f"{pool}: {sorted(serves)}"

    def delete_pool(self) -> str:
        pool = self._one_pool()
        self.keeper.delete(pool)
        return pool

    def create_pool(self) -> str:
        pool = self._one_pool(SERVES)
        self.keeper.create(pool, frozenset(SERVES[pool]), {"cpu_percent": self.random.choice(PERCENTS)})
        return pool

    def maintain(self) -> str:
        host = self.random.choice(HOSTS)
        self.maintainer.request([MaintenanceRequest(Hostname(host), "10.0.0.1")])
        return host

    def complete(self) -> str:
        down = [h.hostname for h in self.storage.maintenance.all("local") if h.state is HostState.DOWN]
        if down:
            self.maintainer.steer(down[:1], MaintenanceAct.COMPLETE)
        return " ".join(down[:1])

    def cancel(self) -> str:
        others = [h.hostname for h in self.storage.maintenance.all("local") if h.state is not HostState.DOWN]
        if others:
            self.maintainer.steer(others[:1], MaintenanceAct.CANCEL)
        return " ".join(others[:1])

    # What hosts do.

    def fail(self) -> str:
        running = sorted(pod for pod in self.cluster.running() if self.jobs[pod.job_id] is Workload.STATELESS)
        if not running:
            return ""
        pod_id = self.random.choice(running)
        self.cluster.end(pod_id, PodState.FAILED)
        return str(pod_id)

    def lose_host(self) -> str:
        up = [name for name, host in self.cluster.hosts.items() if host.is_up]
        if len(HOSTS) - len(up) >= LOST_MAX:
            return ""
        host = self.random.choice(up)
        self.cluster.lose(host)
        return host

    def return_host(self) -> str:
        down = {h.hostname for h in self.storage.maintenance.all("local") if h.state is HostState.DOWN}
        lost = [name for name, host in self.cluster.hosts.items() if not host.is_up and name not in down]
        if not lost:
            return ""
        self.cluster.bring_back(lost[0])
        return lost[0]
