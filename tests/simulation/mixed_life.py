"""Life of services while their cluster is rebalanced, together with pods that never move: databases, daemons, gangs and
other batch pods.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from temporalio.exceptions import ApplicationError

from peloton.api.v0.job import job_pb2
from peloton.errors import Unavailable
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobType
from peloton.model.pod import ON_HOST, PodState
from peloton.model.resources import Resources
from services.hostmgr import daemons
from services.hostmgr.driver import NOTHING
from tests.availability import Pod, Rules
from tests.conformance.storage.builders import a_config
from tests.simulation.job_life import Act
from tests.simulation.rebalanced_life import CLUSTER, RebalancedLife
from tests.simulation.service_life import HOSTS, ROUNDS_TO_END_MAX

HOUR_S = 3_600
GANG_SIZE = 3
RETRIES = 90
ROUND_S, LATE_S = 31, 601
"""Seconds between two rounds of moves, and the timeout after which a round stops waiting for its pods."""


class ServiceRules(Rules):
    """Invariants of services. Rebalancing leaves the pods of other jobs alone."""

    def __init__(self, services: Collection[str], *given: Any) -> None:
        super().__init__(*given)
        self._services = services

    def _pod(self, job: str, instance: int, pod: Pod | None) -> None:
        if job in self._services:
            super()._pod(job, instance, pod)
        elif pod is not None:
            self._check(not pod.message.startswith("Moves to"), f"{job}-{instance} is not of a service, and moves")


class MixedLife(RebalancedLife):
    capacity = Resources.of(9, 8_192, 20_000)

    def __init__(self, seed: int, template: Path, folder: Path) -> None:
        super().__init__(seed, template, folder)
        by_job = {service.job_id.replace("-", ""): service for service in self.services}
        self.rules = ServiceRules(by_job.keys(), self._may_break, lambda job: by_job[job].per_host)
        self.others: dict[JobId, JobType] = {}
        self.counts: dict[JobId, int] = {}
        self.moved_s: deque[float] = deque()  # when moves began
        self.homes_of: dict[str, str] = {}  # volume -> host
        self.moved_in_flight = 0  # moves that began while other pods started or ended

    def __enter__(self) -> MixedLife:
        self._daemon_time: Any = daemons.time  # type: ignore[attr-defined]
        daemons.time = self.clock  # type: ignore[attr-defined, assignment]
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        daemons.time = self._daemon_time  # type: ignore[attr-defined]
        super().__exit__(*exc)

    def begin(self) -> None:
        super().begin()
        self.databases = self._other(3, JobType.SERVICE, 1)
        self.daemon = self._other(0, JobType.DAEMON, 0.25)
        self.gangs = [self._other(GANG_SIZE, JobType.BATCH, 1, minimumRunningInstances=GANG_SIZE) for _ in range(2)]
        self._other(4, JobType.BATCH, 0.5)

    def _other(self, count: int, kind: JobType, cpu: float, **sla: Any) -> JobId:
        config: job_pb2.JobConfig = a_config(count, type_=kind, retries=RETRIES * (kind is JobType.BATCH), **sla)
        task = config.defaultConfig
        task.resource.cpuLimit, task.command.value = cpu, "sleep 1000"
        if kind is JobType.SERVICE:
            task.volume.containerPath, task.volume.sizeMB = "data", 100
        job_id = self.create(config)
        self.others[job_id], self.counts[job_id] = kind, count or len(HOSTS)
        return job_id

    def _lead(self) -> None:
        super()._lead()
        self.core.daemons.start()

    def job_ids(self) -> Collection[JobId]:
        return [*super().job_ids(), *getattr(self, "others", ())]

    def one_job(self) -> JobId:
        return self.random.choice(list(self.others)) if self.random.random() < 0.3 else super().one_job()

    def _parts(self, job_id: JobId) -> list[Callable[[], object]]:
        parts = super()._parts(job_id)
        if job_id == self.daemon:
            return [parts[1], lambda: self.core.kill_running(job_id), self._step_daemon]
        return [*parts[:-1], lambda: self._place_gang(job_id)] if job_id in self.gangs else parts

    def _step_daemon(self) -> None:
        with suppress(Unavailable):  # before hosts are known: its workflow repeats it
            self.core.daemons.step(self.daemon, -1)

    def _place_gang(self, job_id: JobId) -> None:
        try:
            batch = self.placing.place_gang(job_id)
            if batch.placements:
                self.launch(job_id, batch.lease_id, batch.placements)
        except ApplicationError as error:
            self.story.append(f"placement failed: {error}")

    def run_tasks(self) -> str:
        self.core.daemons.refresh()
        if self.random.random() < 0.6:  # the time of a round, in which pods that start and end may be stuck
            self.clock.pass_s(LATE_S if self.random.random() < 0.1 else ROUND_S)
        if self.random.random() < 0.5:
            self.fail_other()
        before, is_busy = self.rules.taken["move"], self._in_flight() > 0
        said = super().run_tasks()
        self.rules.read(self.tale)
        begun = self.rules.taken["move"] - before
        self.moved_in_flight += begun * is_busy
        self._check_budget(begun)
        return said

    def _in_flight(self) -> int:
        """Return the number of pods that start or end, or whose start or end is not yet reported."""
        pods = (pod for job_id in self.job_ids() for pod in self.storage.pods.page(job_id))
        on_way = {pod.pod_id for pod in pods if pod.state in ON_HOST and pod.state is not PodState.RUNNING}
        return len(on_way | self.cluster.reports.keys())

    def budget(self) -> int:
        return self.random.choice([3, 10, 100])

    def _check_budget(self, begun: int) -> None:
        row, now_s = self.storage.rebalances.get(CLUSTER), self.clock.monotonic()
        assert row is not None
        self.moved_s.extend([now_s] * begun)
        while self.moved_s and self.moved_s[0] <= now_s - HOUR_S:
            self.moved_s.popleft()
        count = len(self.moved_s)
        assert not begun or count <= row.spec.moves_per_hour, (
            f"{count} of {row.spec.moves_per_hour} moves within the hour"
        )

    # What must hold after each step, by the cluster.

    def check(self, act: Act | None = None) -> None:
        super().check(act)
        used = Counter[str]()
        for host in self.cluster.hosts.values():
            assert NOTHING.fits_in(host.free), f"{host.hostname} is full beyond what it has: {host.free}"
            of_daemon = [pod for pod in host.pods if pod.job_id == self.daemon]
            assert len(of_daemon) <= 1, f"{host.hostname} has {of_daemon}"
            used.update(pod.volume.volume_id for pod in host.pods.values() if pod.volume is not None)
            for volume_id in host.volumes:
                home = self.homes_of.setdefault(volume_id, host.hostname)
                assert home == host.hostname, f"volume {volume_id} of {home} is on {host.hostname}"
        twice = [volume for volume, count in used.items() if count > 1]
        assert not twice, f"several pods have the volumes {twice}"

    def settle(self) -> None:
        super().settle()
        self._lead()  # the end has checked memory with another one
        for _ in range(ROUNDS_TO_END_MAX):
            self._round()
            running = Counter(pod.job_id for pod in self.cluster.running())
            if all(running[job_id] == count for job_id, count in self.counts.items()):
                return
        raise AssertionError(f"others do not come to rest: {running} of {self.counts}")

    def acts(self) -> list[tuple[Act, float]]:
        """Return few updates, because a service under update is not rebalanced, and frequent returns of hosts, which
        are then empty.
        """
        weights: dict[Act, float]
        weights = {self.update: 1, self.restart: 0.3, self.pause: 0.1, self.lose_host: 1, self.return_host: 2,
                   self.complete: 4, self.turn: 15, self.advance: 1}  # fmt: skip
        own = [(act, weights.get(act, weight)) for act, weight in super().acts()]
        return [*own, (self.run_tasks, 10), (self.all_turns, 8), (self.fail_other, 4)]

    def all_turns(self) -> str:
        """Run a turn of every workflow, and deliver some of the reports: some services come to rest, while others are
        busy.
        """
        self._take_turns()
        self.core.take_hosts()
        self.core.take_news(self.random, self.random.choice([10, 30]))
        return f"{len(self.cluster.reports)} pods have more"

    def fail_other(self) -> str:
        """Restart a pod that never moves, or a gang as a whole."""
        ours = sorted(pod for pod in self.cluster.running() if pod.job_id in self.others)
        if not ours:
            return ""
        pod_id = self.random.choice(ours)
        self.cluster.end(pod_id, PodState.FAILED)
        return str(pod_id)

    def may_fail(self, pod_id: PodId) -> bool:
        return pod_id.job_id not in self.others
