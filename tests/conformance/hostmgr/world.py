"""A host manager with its storage and a Mesos cluster, and the operations of tests on them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from peloton.api.v0.job import job_pb2
from peloton.model.host import ComingBack, HostLease, LaunchResult, PlacementBatch
from peloton.model.ids import JobId
from peloton.model.job import JobProgress, JobState
from peloton.model.pod import PodRecord, PodShape, PodState
from peloton.scheduling.placement import FirstFitPlacer
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.manager import HostManagerCore, HostManagerSettings
from services.hostmgr.mesos.driver import MesosDriver
from services.hostmgr.mesos.framework import MesosSettings
from services.storage.hosts.hosts import Hosts
from services.storage.pods.host_pods import NO_VOLUMES, HostPods, KillRow
from services.storage.pods.status_writes import StatusOutcome
from services.storage.storage import Storage
from tests.conformance.hostmgr.emulated import LONG, TIMEOUT_S, Emulated
from tests.conformance.hostmgr.link import Link
from tests.conformance.storage import builders
from tests.waiting import pause_s

T = TypeVar("T")

WAITING = frozenset({PodState.INITIALIZED, PodState.PENDING, PodState.READY})


def wait(condition: Callable[..., T | None], what: str) -> T:
    """Return the first true value of the condition."""
    began_s = time.monotonic()
    while not (value := condition()):
        waited_s = time.monotonic() - began_s
        assert waited_s < TIMEOUT_S, f"still waiting for {what}"
        time.sleep(pause_s(waited_s, 0.01, 0.05))
    return value


class Outage(Exception):
    """An outage of storage."""


class FailingHostPods(HostPods):
    """Host pods whose calls can fail, and which signal the commit of a launch and the beginning of a commit of
    statuses."""

    commits_to_fail = 0
    launches_to_fail = 0  # before the commit
    answers_to_fail = 0  # after it
    kills_to_fail = 0  # after their commit
    comings_back_to_fail = 0
    on_launched: Callable[[JobId], None] | None = None
    on_commit: Callable[[], None] = staticmethod(lambda: None)

    def apply_status(self, statuses: Any, cluster: str = "", no_other_host: Any = ()) -> StatusOutcome:
        self.on_commit()
        if self.commits_to_fail:
            self.commits_to_fail -= 1
            raise Outage("apply_status")
        return super().apply_status(statuses, cluster, no_other_host)

    def mark_launched(
        self, job_id: JobId, rows: Any, now_ns: int, cluster: str = "", volumes: Any = NO_VOLUMES
    ) -> set[int]:
        if self.launches_to_fail:
            self.launches_to_fail -= 1
            raise Outage("mark_launched")
        taken = super().mark_launched(job_id, rows, now_ns, cluster, volumes)
        if self.answers_to_fail:
            self.answers_to_fail -= 1
            raise Outage("mark_launched, after its commit")
        if self.on_launched is not None:
            reported, self.on_launched = self.on_launched, None
            reported(job_id)
        return taken

    def mark_killing(self, job_id: JobId, limit: int, again: bool = False, cluster: str = "") -> list[KillRow]:
        kills = super().mark_killing(job_id, limit, again, cluster)
        if self.kills_to_fail:
            self.kills_to_fail -= 1
            raise Outage("mark_killing, after its commit")
        return kills

    def coming_back(self, job_id: JobId, instance_ids: Sequence[int]) -> list[ComingBack]:
        if self.comings_back_to_fail:
            self.comings_back_to_fail -= 1
            raise Outage("coming_back")
        return super().coming_back(job_id, instance_ids)


class FailingHosts(Hosts):
    framework_ids_to_fail = 0

    def set_framework_id(self, cluster: str, framework_id: str) -> None:
        if self.framework_ids_to_fail:
            self.framework_ids_to_fail -= 1
            raise Outage("set_framework_id")
        super().set_framework_id(cluster, framework_id)


class FailingStorage(Storage):
    host_pods: FailingHostPods
    hosts: FailingHosts

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.host_pods, self.hosts = FailingHostPods(self.db), FailingHosts(self.db)


class Wakes:
    """Records the jobs that were woken."""

    def __init__(self) -> None:
        self.jobs: list[JobId] = []

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        self.jobs += job_ids

    pods_changed = jobs_changed


class World:
    def __init__(self, url: str, link: Link, cluster: Emulated | None, **settings: Any) -> None:
        """``settings``: settings of the host manager."""
        self.storage = FailingStorage(url)
        self.link = link
        self._cluster = cluster
        self.wakes = Wakes()
        self.cores: list[HostManagerCore] = []
        self.given_up: list[str] = []
        self.settings = settings
        self.core = self.lead()

    @property
    def cluster(self) -> Emulated:
        assert self._cluster is not None, "this story needs an emulated cluster"
        return self._cluster

    def lead(self) -> HostManagerCore:
        """Start a new leader."""
        more = dict(self.settings)
        settings = HostManagerSettings(lease_s=more.pop("lease_s", 30.0))
        driver = MesosDriver(MesosSettings(self.link.address, **more), self.storage.hosts)
        self.core = HostManagerCore(settings, self.storage, self.wakes, driver, self.given_up.append)
        self.core.start()
        self.cores.append(self.core)
        return self.core

    @property
    def mesos(self) -> MesosDriver:
        return cast(MesosDriver, self.core.driver)

    def close(self) -> None:
        with suppress(Exception):
            self.mesos.send_all([{"type": "TEARDOWN"}])
        for core in self.cores:
            if not cast(MesosDriver, core.driver).subscription.aborted:
                core.stop()
        self.storage.close()

    def host(self, hostname: str) -> RegisteredHost:
        """Add a registered host. Its offers, and therefore its first pods, may arrive before the list of agents."""
        return wait(lambda: self.core.cache.host(hostname), f"host {hostname}")

    # Jobs.

    def job(self, count: int = 1, command: str = LONG, **task: Any) -> JobId:
        """Create a job whose pods are READY."""
        config: job_pb2.JobConfig = builders.a_config(count, **task.pop("sla", {}))
        config.defaultConfig.command.value = command
        config.defaultConfig.resource.cpuLimit = 1.0
        for change in task.pop("changes", ()):
            change(config.defaultConfig)
        job_id = builders.create(self.storage, config)
        self.storage.pods.create(job_id, lambda _: None)
        self.admit(job_id)
        return job_id

    def admit(self, job_id: JobId) -> None:
        self.settle(job_id)
        builders.admit(self.storage, job_id)

    def settle(self, job_id: JobId) -> JobProgress:
        return self.storage.jobs.settle(job_id, time.time_ns())

    def place(self, job_id: JobId, limit: int = 1_000) -> PlacementBatch:
        """Place all READY pods, once there are offers for them."""

        def try_once() -> PlacementBatch | None:
            gangs = self.storage.pods.ready_gangs(job_id, limit)
            wanted: Counter[PodShape] = Counter()
            for gang in gangs:
                wanted[gang.shape] += len(gang.pods)
            lease: HostLease = self.core.acquire_hosts(job_id, list(wanted.items()))
            batch = FirstFitPlacer().place(job_id, gangs, lease)
            if batch.placements and not batch.unplaced_count:
                return batch
            self.core.release(lease.lease_id)
            return None

        placed: PlacementBatch = wait(try_once, f"hosts for job {job_id}")
        return placed

    def launch(self, batch: PlacementBatch) -> LaunchResult:
        return self.core.launch(batch.job_id, batch.lease_id, batch.placements)

    def start(self, count: int = 1, command: str = LONG, **task: Any) -> JobId:
        """Launch every pod of a new job on Mesos."""
        job_id = self.job(count, command, **task)
        assert self.launch(self.place(job_id)) == LaunchResult(count)
        return job_id

    def running(self, count: int = 1, **task: Any) -> JobId:
        job_id = self.start(count, **task)
        self.wait_states(job_id, {"RUNNING": count})
        return job_id

    def kill(self, job_id: JobId) -> int:
        self.storage.jobs.set_goal(job_id, JobState.KILLED, time.time_ns())
        return self.core.kill_running(job_id)

    # Their outcome.

    def pods(self, job_id: JobId) -> list[PodRecord]:
        return builders.pods(self.storage, job_id)

    def pod(self, job_id: JobId) -> PodRecord:
        return self.pods(job_id)[0]

    def states(self, job_id: JobId) -> dict[str, int]:
        return dict(Counter(pod.state.value for pod in self.pods(job_id)))

    def wait_states(self, job_id: JobId, states: dict[str, int]) -> None:
        wait(lambda: self.states(job_id) == states, f"{states}")

    def history(self, job_id: JobId) -> list[tuple[int, PodState]]:
        """Return runs and states of instance 0, oldest first."""
        events = self.storage.pods.events(job_id, 0, None, 0)
        return [(e.run_id, e.state) for e in reversed(events) if e.state not in WAITING]

    def tasks(self) -> list[str]:
        """Return the pods that the master believes alive."""
        address = f"{self.link.target[0]}:{self.link.target[1]}"
        answer = self.mesos.operator.call(address, {"type": "GET_TASKS"})["get_tasks"]
        return sorted(
            task["task_id"]["value"]
            for task in answer.get("tasks", ())
            if task["state"] in ("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING")
        )

    def wait_calls(self, type_: str, after: int = 0) -> None:
        wait(lambda: type_ in self.link.calls[after:], f"a call {type_}")

    def restart_master(self) -> None:
        """Restart the master at the same address without memory of frameworks, tasks and agents."""
        self.link.down()
        self.cluster.restart()
        self.link.target = self.cluster.target
        self.link.up()

    def lose_registry(self) -> None:
        """Replace the registry by an empty one, as a restarted master might: connections drop, agents and pods
        continue to run."""
        self.link.down()
        self.cluster.lose_registry()
        self.link.up()
