"""Random lives of host pools: hosts move between them, drained or at once, factors and served workloads change, hosts
are lost, host managers are replaced, launches are lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from peloton.api.v0.task import task_pb2
from peloton.lifecycle.constraints import EXCLUSIVE_LABEL
from peloton.lifecycle.host_pools import announce, serving
from peloton.model.host import Placement
from peloton.model.host_pool import DEFAULT_HOST_POOL, HostPools, Workload
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobState, JobType
from peloton.model.maintenance import MaintenanceRequest
from peloton.model.resources import Resources
from services.hostmgr.driver import NOTHING
from services.hostmgr.host_pool_controller import HostPoolController
from services.hostmgr.manager import HostManagerSettings
from tests.conformance.storage.builders import a_config
from tests.doubles.hostmgr.cluster import MemoryHost
from tests.simulation.hostmgr import SimulatedHostManager
from tests.simulation.job_life import Act, JobLife

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
RETRIES = 90
ROUNDS_TO_END_MAX = 300


class HostPoolLife(JobLife):
    settings = HostManagerSettings(uses_host_pools=True)
    dies = 0.05

    def __init__(self, seed: int, template: Path, folder: Path) -> None:
        labels = {True: {EXCLUSIVE_LABEL: "ours"}, False: dict[str, str]()}
        hosts = [MemoryHost(Hostname(h), CAPACITY, labels=labels[h in EXCLUSIVE_HOSTS]) for h in HOSTS]
        super().__init__(seed, template, folder, hosts)
        self.jobs: dict[JobId, Workload] = {}
        self.counts: dict[JobId, int] = {}
        self.seen: set[PodId] = set()  # on hosts
        self.left: set[PodId] = set()  # that were there when a host pool changed at once: they may stay
        self.places: dict[Hostname, tuple[str, frozenset[Workload]]] = {}  # host pool, and what it serves

    def begin(self) -> None:
        self.core.run_background_tasks()
        for name, serves in SERVES.items():
            self.controller.create(name, frozenset(serves), {})
        self._create(6, 0.5, JobType.SERVICE, Workload.STATELESS)
        self._create(4, 2, JobType.SERVICE, Workload.STATELESS)
        self.exclusive = self._create(3, 1, JobType.SERVICE, Workload.STATELESS, is_exclusive=True)
        self.busy = self._create(16, 1, JobType.BATCH, Workload.SHARED, preemptible=True)
        self._create(3, 1, JobType.BATCH, Workload.BATCH)
        self._note_places()

    def _create(
        self, count: int, cpu: float, kind: JobType, workload: Workload, is_exclusive: bool = False, **sla: Any
    ) -> JobId:
        config = a_config(count, type_=kind, retries=RETRIES, **sla)
        task = config.defaultConfig
        task.resource.cpuLimit, task.command.value = cpu, "sleep 1000"
        if is_exclusive:
            rule = task.constraint
            rule.type = task_pb2.Constraint.LABEL_CONSTRAINT
            rule.labelConstraint.kind = task_pb2.LabelConstraint.HOST
            rule.labelConstraint.condition = task_pb2.LabelConstraint.CONDITION_EQUAL
            rule.labelConstraint.label.key, rule.labelConstraint.label.value = EXCLUSIVE_LABEL, "ours"
            rule.labelConstraint.requirement = 1
        job_id = self.create(config)
        self.jobs[job_id], self.counts[job_id] = workload, count
        return job_id

    def job_ids(self) -> Collection[JobId]:
        return self.jobs.keys()

    def acts(self) -> list[tuple[Act, float]]:
        return [
            (self.turn, 30), (self.news, 15), (self.refresh_hosts, 8), (self.run_tasks, 5), (self.drain, 12),
            (self.follow, 3), (self.wait, 3), (self.lead, 1), (self.fail, 1), (self.lose_host, 0.7),
            (self.return_host, 1), (self.move, 3), (self.move_at_once, 1), (self.change_factors, 1),
            (self.change_workloads, 0.8), (self.delete_pool, 0.2), (self.create_pool, 0.5), (self.maintain, 0.5),
            (self.complete, 1), (self.cancel, 0.3),
        ]  # fmt: skip

    def settle(self) -> None:
        """One host pool serves everything again, and all hosts are back: all pods run, and no host has to move."""
        self._bring_all_back()
        for name in self._pools().pools.keys() - {DEFAULT_HOST_POOL}:
            self.controller.delete(name)
        self.check(self.delete_pool)
        self.storage.jobs.set_goal(self.busy, JobState.KILLED, self.clock.ns)
        self.counts[self.busy] = 0
        for _ in range(ROUNDS_TO_END_MAX):
            for act in (self.complete, self.cancel, self.follow):
                self._act(act)
            self._take_turns()
            self._catch_up(10)
            if not self.cluster.reports and not self._list_maintained() and self._run_all():
                break
        else:
            raise AssertionError(f"not idle: {self._list_maintained()}, {sorted(self.cluster.running())}")
        fresh = SimulatedHostManager(self.storage, self.cluster, self.settings)
        fresh.run_background_tasks()
        if fresh.cache.host_pools.totals() != self.core.cache.host_pools.totals():
            raise AssertionError(
                f"in memory {self.core.cache.host_pools.totals()}, read again {fresh.cache.host_pools.totals()}"
            )

    def _run_all(self) -> bool:
        running = [pod.job_id for pod in self.cluster.running()]
        return all(running.count(job_id) == count for job_id, count in self.counts.items())

    # What must hold after each step, by the cluster and the rows.

    def check(self, act: Act | None = None) -> None:
        is_abrupt = act in (self.move_at_once, self.change_workloads, self.delete_pool, self.create_pool)
        before, pools = self.places, self._pools()
        self._note_places()
        for host in self.cluster.hosts.values():
            if before[host.hostname] != self.places[host.hostname]:
                if host.pods and not is_abrupt:
                    reported = f"{before[host.hostname][0]} to {self.places[host.hostname][0]}"
                    raise AssertionError(f"{host.hostname} moved from {reported} with {sorted(host.pods)}")
                self.left.update(host.pods)
            self._check_host(host, pools)
        self.seen = {pod for host in self.cluster.hosts.values() for pod in host.pods}
        self.left &= self.seen

    def _check_host(self, host: MemoryHost, pools: HostPools) -> None:
        name, serves = self.places[host.hostname]
        if strangers := [pod for pod in host.pods if pod not in self.left and self.jobs[pod.job_id] not in serves]:
            raise AssertionError(f"{host.hostname} is in host pool {name} and shared with {strangers}")
        asked = sum((pod.template.ordinary for pod in host.pods.values()), NOTHING)
        announced_amounts = announce(host.capacity, pools.pools[name].factors)
        if not host.pods.keys() <= self.seen and not asked.fits_in(announced_amounts):
            raise AssertionError(
                f"{host.hostname} announces {announced_amounts} in host pool {name}, its pods have asked for {asked}"
            )
        if not NOTHING.fits_in(host.free):
            raise AssertionError(f"{host.hostname} is full beyond what it has: {host.free}")
        if host.hostname in EXCLUSIVE_HOSTS and (others := [pod for pod in host.pods if pod.job_id != self.exclusive]):
            raise AssertionError(f"exclusive {host.hostname} has {others}")

    def _note_places(self) -> None:
        pools = self._pools()
        serves, names = serving(pools.pools.values()), {host: pools.of(host).current for host in self.cluster.hosts}
        self.places = {host: (name, serves[name]) for host, name in names.items()}

    def _pools(self) -> HostPools:
        return self.storage.host_pools.all() or HostPools()

    # What workflows and the host manager do.

    def _lead(self) -> None:
        super()._lead()
        self.controller = HostPoolController(
            self.core, self.storage.host_pools, self.storage.host_pods, self.maintenance, 600
        )

    def before_launch(self, job_id: JobId, placements: Sequence[Placement]) -> None:
        """Change host pools before a launch, in some cases."""
        if self.random.random() < 0.1:
            self._act(
                self.random.choice([self.move_at_once, self.change_factors]), [each.hostname for each in placements]
            )

    def job_name(self, job_id: JobId) -> str:
        return f"{job_id[:4]}, {self.jobs[job_id]}"

    def follow(self) -> None:
        """Run the host manager's periodic step."""
        self.core.read_host_pools()
        self.maintenance.follow_moves(600)

    # Acts of users.

    def _one_pool(self, names: Iterable[str] = ()) -> str:
        return self.random.choice(sorted(names or self._pools().pools))

    def move(self) -> str:
        """Move a host with a drain; in some cases by another host manager, whose change this one reads later."""
        hosts, pool = self.random.sample(HOSTS, self.random.choice([1, 1, 2])), self._one_pool()
        if self.random.random() < 0.3:
            self.storage.host_pools.desire(hosts, pool, self.clock.ns)
        else:
            self.controller.move(hosts, pool)
        return f"{hosts} to {pool}"

    def move_at_once(self, hosts: Sequence[str] = HOSTS) -> str:
        host, pool = self.random.choice(hosts), self._one_pool()
        self.controller.change(host, self._pools().of(Hostname(host)).current, pool)
        return f"{host} to {pool}"

    def change_factors(self, hosts: Sequence[str] = ()) -> str:
        """Change the factors of any host pool, or of one of the hosts' pool."""
        pools = self._pools()
        pool = self._one_pool([pools.of(Hostname(host)).current for host in hosts])
        percent = self.random.choice(PERCENTS)
        self.controller.update(pool, None, {"cpu_percent": percent})
        return f"{pool}: {percent}"

    def change_workloads(self) -> str:
        pool, serves = self._one_pool(SERVES), frozenset(self.random.choice(list(SERVES.values())))
        self.controller.update(pool, serves, {})
        return f"{pool}: {sorted(serves)}"

    def delete_pool(self) -> str:
        pool = self._one_pool()
        self.controller.delete(pool)
        return pool

    def create_pool(self) -> str:
        pool = self._one_pool(SERVES)
        self.controller.create(pool, frozenset(SERVES[pool]), {"cpu_percent": self.random.choice(PERCENTS)})
        return pool

    def maintain(self) -> str:
        host = self.random.choice(HOSTS)
        self.maintenance.request([MaintenanceRequest(Hostname(host), "10.0.0.1")])
        return host

    def may_fail(self, pod_id: PodId) -> bool:
        return self.jobs[pod_id.job_id] is Workload.STATELESS
