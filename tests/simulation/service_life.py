"""Services through a random life in virtual time, from one seed, step by step.

Real: storage, updates and their steps, SLA, maintenance, the host manager with its leases, holds and labels, placement.
Simulated: Mesos with its hosts, time, the resource manager (which admits every pod), and the workflows, whose turns are
taken one at a time, and not always to their end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from activities.placement import PlacementActivities
from peloton.api import convert
from peloton.errors import PelotonError
from peloton.model.admission import EvictionOrder
from peloton.model.host import HostState, LaunchResult, Placement, PlacementBatch
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobState
from peloton.model.maintenance import MaintenanceAct, MaintenanceRequest
from peloton.model.pod import PodState, TerminationReason
from peloton.model.resources import Resources
from peloton.model.update import UpdateAct, UpdateSpec, UpdateState, UpdateType
from peloton.scheduling.placement import FirstFitPlacer
from services.hostmgr import launcher, maintenance, manager, volumes
from services.hostmgr.memory.cluster import MemoryCluster, MemoryHost
from services.storage.storage import Storage
from tests.availability import Pod, Rules, Tale
from tests.reasons import PREEMPTED
from tests.simulation.clock import Clock
from tests.simulation.homes import Homes
from tests.simulation.hostmgr import QueueOfAll, SimulatedHostManager, SimulatedMaintainer, Through
from tests.simulation.services import Service

CAPACITY = Resources.of(4, 8_192, 20_000)
HOSTS = tuple(f"h{n}" for n in range(8))
LOST_MAX = 2
ROUNDS_TO_END_MAX = 400
PLACEMENT_S = 60.0


class ServiceLife:
    """``with ServiceLife(...) as life: life.live(steps); life.end()``."""

    def __init__(self, seed: int, template: Path, folder: Path) -> None:
        path = folder / "storage.db"
        path.write_bytes(template.read_bytes())
        self.seed, self.random, self.clock = seed, Random(seed), Clock()
        self.tale = Tale(path).tell()
        self.storage = Storage(f"sqlite:///{path}", self.clock)
        self.cluster = MemoryCluster(
            [MemoryHost(Hostname(name), CAPACITY) for name in HOSTS], self.clock, delivers=False
        )
        self.story: list[str] = []
        self.broken: set[tuple[str, int, int]] = set()
        self.homes = Homes(self.storage, self.cluster, self.clock)
        self.commands = self.queue_seq = self.restarts = 0
        self.services = [
            self._service(5, 0.5, per_host=1, maximumUnavailableInstances=1),
            self._service(5, 2.5, in_place=True),
            self._service(6, 0.5, per_host=2, maximumUnavailableInstances=2, strictUpdates=True),
            self._service(10, 2),  # more than there is room for
        ]
        self.at_most = {service.job_id: service.count + (service.cpu < 1) for service in self.services}
        by_job = {service.job_id.replace("-", ""): service for service in self.services}
        self.rules = Rules(self._may_break, lambda job: by_job[job].per_host)

    def _service(self, count: int, cpu: float, per_host: int = 0, in_place: bool = False, **sla: Any) -> Service:
        job_id = JobId(str(uuid.UUID(int=self.random.getrandbits(128), version=4)))
        return Service(job_id, count, cpu, per_host, in_place, sla)

    def __enter__(self) -> ServiceLife:
        self._times = launcher.time, maintenance.time, manager.time, volumes.time
        launcher.time = maintenance.time = manager.time = volumes.time = self.clock  # type: ignore[assignment]
        self._lead()
        for service in self.services:
            config = service.config(0)
            job = convert.new_job_record(service.job_id, config, self.clock.ns)
            self.storage.updates.create_service(job, config, b"", UpdateSpec(), "", self.clock.ns)
        return self

    def __exit__(self, *exc: object) -> None:
        launcher.time, maintenance.time, manager.time, volumes.time = self._times  # type: ignore[assignment]
        self.tale.close()
        self.storage.close()

    def _lead(self) -> None:
        """A new host manager, which knows what storage and Mesos tell it."""
        self.core = SimulatedHostManager(self.storage, self.cluster)
        self.maintainer = SimulatedMaintainer(self.core, self.storage, self.clock)
        hosts: Any = Through(self.core, self.launch)
        queue: Any = QueueOfAll(self.storage)
        self.placing = PlacementActivities(self.storage.pods, hosts, queue, FirstFitPlacer())
        self.homes.clear()
        self.restarts += 1

    def _may_break(self, job: str, pod: Pod) -> bool:
        return any(job == other and pod.run == run and pod.host for other, _, run in self.broken)

    # The story.

    def live(self, steps: int) -> None:
        acts: list[tuple[Callable[[], str], float]] = [
            (self.turn, 30), (self.advance, 5), (self.news, 15), (self.room, 8), (self.chores, 3), (self.drain, 7),
            (self.update, 3), (self.restart, 3), (self.pause, 0.7), (self.resume, 1), (self.abort, 0.7),
            (self.stop, 0.3), (self.start, 0.6), (self.wait, 1.5), (self.fail, 0.7), (self.lose_host, 0.4),
            (self.return_host, 0.6), (self.evict, 0.6), (self.restart_with_care, 0.6), (self.maintain, 0.8),
            (self.complete, 1.5), (self.cancel, 0.2), (self.lead, 0.4),
        ]  # fmt: skip
        with self._told():
            for act in self.random.choices([act for act, _ in acts], [weight for _, weight in acts], k=steps):
                self._act(act)
                self.clock.pass_s(self.random.choice([0, 0.01, 0.1, 1]))

    def end(self) -> None:
        """No more people and failures interfere."""
        with self._told():
            for host in HOSTS:
                if (row := self.storage.maintenance.get("local", host)) is None or row.state is not HostState.DOWN:
                    self.cluster.bring_back(host)
            self.services[-1].count = 1  # with it there would not be room for all
            for service in self.services:
                self._settle_owner(service)
            for _ in range(ROUNDS_TO_END_MAX):
                self._round()
                if not self.cluster.reports and all(map(self._is_done, self.services)) and not self._maintained():
                    break
            self.rules.read(self.tale)
            for service in self.services:
                self.rules.end(service.job_id.replace("-", ""), service.count)
            self._check_memory()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            tail = "\n".join(self.story[-60:])
            raise AssertionError(f"{error}\nseed {self.seed}, step {len(self.story)}:\n{tail}") from error

    def _act(self, act: Callable[[], str]) -> None:
        try:
            what = act()
        except PelotonError as error:
            what = f"refused: {error}"
        self.story.append(f"{act.__name__} {what}")
        self.rules.read(self.tale)
        self.homes.check_rooms(self.services, self.rules.away_hosts)

    def _settle_owner(self, service: Service) -> None:
        self.storage.updates.steer(service.job_id, None, UpdateAct.ABORT, None, self.clock.ns)
        for _ in range(ROUNDS_TO_END_MAX):
            try:
                self._ask(service, UpdateType.UPDATE, UpdateSpec(batch_size=2, start_pods=True))
                return
            except PelotonError:  # it is still being stopped
                self._round()
        raise AssertionError(f"{service.job_id} takes no update")

    def _round(self) -> None:
        self._act(self.complete)
        self._act(self.cancel)
        for host in self._maintained():
            self.maintainer.step(host)
        for service in self.services:
            self.storage.updates.advance(service.job_id, self.clock.ns)
            for part in self._turn(service):
                part()
        self.core.do_chores()
        self.core.take_room()
        self.core.take_news(self.random, 1_000)
        self.clock.pass_s(5)
        self.rules.read(self.tale)

    def _is_done(self, service: Service) -> bool:
        job = self.storage.jobs.get(service.job_id)
        assert job is not None
        update = self.storage.updates.get(job.update_id)
        running = [pod for pod in self.storage.pods.page(service.job_id) if pod.state is PodState.RUNNING]
        return update is not None and update.state is UpdateState.SUCCEEDED and len(running) == service.count

    def _maintained(self) -> list[str]:
        return [host.hostname for host in self.storage.maintenance.all("local")]

    def _check_memory(self) -> None:
        """What runs is what storage says, and the labels in memory are those of a manager that has just begun."""
        stored = {pod.pod_id: pod.host for service in self.services for pod in self.storage.pods.page(service.job_id)}
        assert stored == {pod_id: host.hostname for pod_id, host in self.cluster.running().items()}
        labels = frozenset(service.label for service in self.services)
        fresh = SimulatedHostManager(self.storage, self.cluster)
        for host in HOSTS:
            assert fresh.book.pod_labels.on_host(host, labels) == self.core.book.pod_labels.on_host(host, labels)

    # What workflows and the host manager do.

    def one(self) -> Service:
        """The second more often than others: its pods come back to their hosts."""
        return self.random.choices(self.services, [2, 3, 2, 2])[0]

    def name(self, service: Service) -> str:
        return f"service {self.services.index(service)}"

    def turn(self) -> str:
        """Of a job, to its end or until its worker dies."""
        service = self.one()
        parts = [lambda: self.storage.updates.advance(service.job_id, self.clock.ns), *self._turn(service)]
        parts = parts[: self.random.randrange(1, len(parts))] if self.random.random() < 0.2 else parts
        for part in parts:
            part()
        if self.random.random() < 0.4:
            self.core.take_room()
            self.core.take_news(self.random, 10)
        return self.name(service)

    def _turn(self, service: Service) -> list[Callable[[], Any]]:
        job_id, now_ns = service.job_id, self.clock.ns
        return [
            lambda: self.storage.jobs.settle(job_id, now_ns),
            lambda: self._kill(service),
            lambda: self.storage.admission.kill_queued(job_id, now_ns),
            lambda: self._queue(job_id),
            lambda: self.storage.admission.mark_ready([(job_id, 0, 1_000)]),
            lambda: self._place(service),
        ]

    def _kill(self, service: Service) -> None:
        running = self.cluster.running()
        before = [pod for pod in self.storage.pods.page(service.job_id) if pod.pod_id in running]
        self.core.kill_running(service.job_id)
        self.homes.note(before)

    def _queue(self, job_id: JobId) -> None:
        self.queue_seq += 1
        self.storage.admission.mark_pending(job_id, self.storage.admission.queueable(job_id, 1_000), self.queue_seq)

    def _place(self, service: Service) -> None:
        self.placing.place_and_launch(service.job_id, 1_000, PLACEMENT_S)

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        """The step between placement and host manager: now and then it gets lost, and the lease runs out."""
        if self.random.random() <= 0.05:
            return LaunchResult(0)
        self.homes.check_placement(PlacementBatch(job_id, lease_id, tuple(placements)))
        return self.core.launch(job_id, lease_id, placements)

    def advance(self) -> str:
        service = self.one()
        return f"{self.name(service)}: {self.storage.updates.advance(service.job_id, self.clock.ns).milestone}"

    def news(self) -> str:
        self.core.take_news(self.random, self.random.choice([1, 3, 10]))
        return f"{len(self.cluster.reports)} pods have more"

    def room(self) -> str:
        self.core.take_room()
        return ""

    def chores(self) -> str:
        self.core.do_chores()
        return ""

    def drain(self) -> str:
        hosts = self._maintained()
        if not hosts:
            return ""
        host = self.random.choice(hosts)
        self.maintainer.step(host)
        return host

    def lead(self) -> str:
        self._lead()
        return "another host manager"

    def wait(self) -> str:
        seconds = self.random.choice([2, 10, 40, 200])
        self.clock.pass_s(seconds)
        return f"{seconds} s"

    # What people do.

    def _ask(self, service: Service, type_: UpdateType, spec: UpdateSpec, instances: Iterable[int] = ()) -> None:
        self.commands += type_ is UpdateType.UPDATE
        config = service.config(self.commands) if type_ is UpdateType.UPDATE else None
        self.storage.updates.create(service.job_id, None, type_, spec, config, b"", instances, "", self.clock.ns)

    def update(self) -> str:
        service = self.one()
        spec = UpdateSpec(
            batch_size=self.random.choice([0, 1, 1, 2, 3]),
            in_place=service.in_place,
            start_paused=self.random.random() < 0.05,
            rollback_on_failure=self.random.random() < 0.3,
            max_instance_attempts=self.random.choice([0, 1]),
            max_failure_instances=self.random.choice([0, 1]),
        )
        before, service.count = service.count, max(service.count + self.random.choice([0, 0, 0, 1, -1]), 2)
        service.count = min(service.count, self.at_most[service.job_id])
        try:
            self._ask(service, UpdateType.UPDATE, spec)
        except PelotonError:
            service.count = before
            raise
        return f"{self.name(service)}: {service.count} instances, {spec}"

    def restart(self) -> str:
        service, start = self.one(), self.random.randrange(3)
        spec = UpdateSpec(batch_size=self.random.choice([1, 2]), in_place=service.in_place)
        self._ask(service, UpdateType.RESTART, spec, range(start, start + self.random.randrange(1, 4)))
        return f"{self.name(service)} from {start}, {spec}"

    def restart_with_care(self) -> str:
        service, instance = self.one(), self.random.randrange(5)
        why = TerminationReason.KILLED_FOR_SLA_AWARE_RESTART
        return str(
            self.storage.disruptions.disrupt(
                service.job_id, [instance], reason=why, message="", checks_sla=True, now_ns=self.clock.ns
            )
        )

    def evict(self) -> str:
        """The resource manager needs room for others."""
        service, start = self.one(), self.random.randrange(3)
        [result] = self.storage.admission.evict([EvictionOrder(service.job_id, start, 3, False, PREEMPTED)])
        return f"{self.name(service)}: {result.leaving} leave, {result.queued} wait again"

    def _steer(self, act: UpdateAct) -> str:
        service = self.one()
        self.storage.updates.steer(service.job_id, None, act, None, self.clock.ns)
        return self.name(service)

    def pause(self) -> str:
        return self._steer(UpdateAct.PAUSE)

    def resume(self) -> str:
        return self._steer(UpdateAct.RESUME)

    def abort(self) -> str:
        return self._steer(UpdateAct.ABORT)

    def stop(self) -> str:
        service = self.one()
        self.storage.jobs.set_service_goal(service.job_id, None, JobState.KILLED, False, self.clock.ns)
        return self.name(service)

    def start(self) -> str:
        service = self.one()
        self.storage.jobs.set_service_goal(service.job_id, None, JobState.RUNNING, False, self.clock.ns)
        return self.name(service)

    # What hosts do, and what is done to them.

    def fail(self) -> str:
        running = self.cluster.running()
        if not running:
            return ""
        pod_id = self.random.choice(sorted(running))
        self._break(pod_id)
        self.cluster.end(pod_id, PodState.FAILED)
        return str(pod_id)

    def _break(self, pod_id: PodId) -> None:
        self.broken.add((pod_id.job_id.replace("-", ""), pod_id.instance_id, pod_id.run_id))

    def lose_host(self) -> str:
        lost = [name for name, host in self.cluster.hosts.items() if not host.is_up]
        host = self.random.choice(HOSTS)
        if host in lost or len(lost) >= LOST_MAX:
            return ""
        for pod_id in self.cluster.lose(host):
            self._break(pod_id)
        return host

    def return_host(self) -> str:
        down = {h.hostname for h in self.storage.maintenance.all("local") if h.state is HostState.DOWN}
        lost = [name for name, host in self.cluster.hosts.items() if not host.is_up and name not in down]
        if not lost:
            return ""
        self.cluster.bring_back(lost[0])
        return lost[0]

    def maintain(self) -> str:
        hosts = sorted({self.random.choice(HOSTS) for _ in range(self.random.choice([1, 2]))})
        self.maintainer.request([MaintenanceRequest(Hostname(host), "10.0.0.1") for host in hosts])
        return " ".join(hosts)

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
