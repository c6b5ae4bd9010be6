"""Services through a random life: updates and their steps, SLA, maintenance, holds, labels and constraints are real."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from peloton.api import convert
from peloton.errors import PelotonError
from peloton.model.admission import EvictionOrder
from peloton.model.host import Placement
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobState
from peloton.model.maintenance import MaintenanceRequest
from peloton.model.pod import PodState, TerminationReason
from peloton.model.resources import Resources
from peloton.model.update import UpdateAct, UpdateSpec, UpdateState, UpdateType
from services.storage.checks import Checks
from tests.availability import Pod, Rules, Tale
from tests.doubles.hostmgr.cluster import MemoryHost
from tests.reasons import PREEMPTED
from tests.simulation.homes import Homes
from tests.simulation.hostmgr import SimulatedHostManager
from tests.simulation.job_life import Act, JobLife
from tests.simulation.services import Service

HOSTS = tuple(f"h{n}" for n in range(8))
ROUNDS_TO_END_MAX = 400


class ServiceLife(JobLife):
    capacity = Resources.of(4, 8_192, 20_000)

    def __init__(self, seed: int, template: Path, folder: Path) -> None:
        super().__init__(seed, template, folder, [MemoryHost(Hostname(name), self.capacity) for name in HOSTS])
        self.tale = Tale(self.path).record()
        self.broken: set[tuple[str, int, int]] = set()
        self.homes = Homes(self.storage, self.cluster, self.clock)
        self.commands = 0
        self.services = [
            self._service(5, 0.5, per_host=1, maximumUnavailableInstances=1),
            self._service(5, 2.5, in_place=True),
            self._service(6, 0.5, per_host=2, maximumUnavailableInstances=2, strictUpdates=True),
            self._service(10, 2),  # more than fit
        ]
        self.at_most = {service.job_id: service.count + (service.cpu < 1) for service in self.services}
        by_job = {service.job_id.replace("-", ""): service for service in self.services}
        self.rules = Rules(self._may_break, lambda job: by_job[job].per_host)

    def _service(self, count: int, cpu: float, per_host: int = 0, in_place: bool = False, **sla: Any) -> Service:
        return Service(self._new_id(), count, cpu, per_host, in_place, sla)

    def begin(self) -> None:
        for service in self.services:
            config = service.config(0)
            job = convert.new_job_record(service.job_id, config, self.clock.ns)
            self.storage.updates.create_service(job, config, b"", UpdateSpec(), "", self.clock.ns)

    def __exit__(self, *exc: object) -> None:
        self.tale.close()
        super().__exit__(*exc)

    def job_ids(self) -> Collection[JobId]:
        return [service.job_id for service in self.services]

    def _lead(self) -> None:
        super()._lead()
        self.homes.clear()

    def _may_break(self, job: str, pod: Pod) -> bool:
        return any(job == other and pod.run == run and pod.host for other, _, run in self.broken)

    # The story.

    def acts(self) -> list[tuple[Act, float]]:
        return [
            (self.turn, 30), (self.advance, 5), (self.news, 15), (self.refresh_hosts, 8), (self.run_tasks, 3),
            (self.drain, 7), (self.update, 3), (self.restart, 3), (self.pause, 0.7), (self.resume, 1),
            (self.abort, 0.7), (self.stop, 0.3), (self.start, 0.6), (self.wait, 1.5), (self.fail, 0.7),
            (self.lose_host, 0.4), (self.return_host, 0.6), (self.evict, 0.6), (self.restart_with_care, 0.6),
            (self.maintain, 0.8), (self.complete, 1.5), (self.cancel, 0.2), (self.lead, 0.4),
        ]  # fmt: skip

    def check(self, act: Act | None = None) -> None:
        self.rules.read(self.tale)
        self.homes.check_free_resources(self.services, self.rules.away_hosts)

    def settle(self) -> None:
        self._bring_all_back()
        self.services[-1].count = 1  # with it not all would fit
        for service in self.services:
            self._settle_owner(service)
        for _ in range(ROUNDS_TO_END_MAX):
            self._round()
            if not self.cluster.reports and all(map(self._is_done, self.services)) and not self._list_maintained():
                break
        for service in self.services:
            self.rules.end(service.job_id.replace("-", ""), service.count)
        self._check_memory()
        assert {"job without pool"} == {
            finding.check.name for finding in Checks(self.storage.db).findings()
        }  # no pools

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
        self._take_turns()
        self._catch_up(5)

    def _is_done(self, service: Service) -> bool:
        job = self.storage.jobs.get(service.job_id)
        assert job is not None
        update = self.storage.updates.get(job.update_id)
        running = [pod for pod in self.storage.pods.page(service.job_id) if pod.state is PodState.RUNNING]
        return update is not None and update.state is UpdateState.SUCCEEDED and len(running) == service.count

    def _check_memory(self) -> None:
        """Check that the running pods equal the stored ones, and that a new host manager has the same labels in
        memory.
        """
        stored = {pod.pod_id: pod.host for service in self.services for pod in self.storage.pods.page(service.job_id)}
        jobs = {service.job_id for service in self.services}
        running = {pod_id: host.hostname for pod_id, host in self.cluster.running().items() if pod_id.job_id in jobs}
        assert stored == running
        labels = frozenset(service.label for service in self.services)
        fresh = SimulatedHostManager(self.storage, self.cluster)
        for host in HOSTS:
            assert fresh.cache.pod_labels.on_host(host, labels) == self.core.cache.pod_labels.on_host(host, labels)

    # What workflows and the host manager do.

    def one(self) -> Service:
        """Return a service, more often the second, whose pods return to their hosts."""
        return self.random.choices(self.services, [2, 3, 2, 2])[0]

    def one_job(self) -> JobId:
        return self.one().job_id

    def name(self, service: Service) -> str:
        return self.job_name(service.job_id)

    def job_name(self, job_id: JobId) -> str:
        return f"service {list(self.job_ids()).index(job_id)}"

    def turn(self) -> str:
        said = super().turn()
        if self.random.random() < 0.4:
            self.core.take_hosts()
            self.core.take_news(self.random, 10)
        return said

    def _kill(self, job_id: JobId) -> None:
        running = self.cluster.running()
        before = [pod for pod in self.storage.pods.page(job_id) if pod.pod_id in running]
        super()._kill(job_id)
        self.homes.note(before)

    def before_launch(self, job_id: JobId, placements: Sequence[Placement]) -> None:
        self.homes.check_placement(job_id, placements)

    def advance(self) -> str:
        service = self.one()
        return f"{self.name(service)}: {self.storage.updates.advance(service.job_id, self.clock.ns).milestone}"

    def news(self) -> str:
        self.core.take_news(self.random, self.random.choice([1, 3, 10]))
        return f"{len(self.cluster.reports)} pods have more"

    # Acts of users.

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
        """Evict pods, as the resource manager does for others."""
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

    # Acts of hosts, and acts on hosts.

    def _break(self, pods: Iterable[PodId]) -> None:
        self.broken.update((pod_id.job_id.replace("-", ""), pod_id.instance_id, pod_id.run_id) for pod_id in pods)

    def lose_host(self) -> str:
        lost = [name for name, host in self.cluster.hosts.items() if not host.is_up]
        host = self.random.choice(HOSTS)
        if host in lost or len(lost) >= self.lost_max:
            return ""
        self._break(self.cluster.lose(host))
        return host

    def maintain(self) -> str:
        hosts = sorted({self.random.choice(HOSTS) for _ in range(self.random.choice([1, 2]))})
        self.maintenance.request([MaintenanceRequest(Hostname(host), "10.0.0.1") for host in hosts])
        return " ".join(hosts)
