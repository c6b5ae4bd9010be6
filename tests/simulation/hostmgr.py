"""The host manager without its threads: a story calls their functions. Its cluster is in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random
from typing import Any

from peloton.lifecycle.maintenance import Step, next_step
from peloton.model.host import ClusterChoice, HostLease, LaunchedBatch, LaunchResult, Placement
from peloton.model.ids import JobId
from peloton.model.pod import PodStatus
from peloton.model.reason import PlacementReason, RequeueReason
from services.hostmgr import manager
from services.hostmgr.drain_watch import DrainWatch
from services.hostmgr.driver import HostAddress
from services.hostmgr.hosted_pods import HostedPods
from services.hostmgr.maintenance import MaintenanceController
from services.hostmgr.manager import HostManagerCore, HostManagerSettings
from services.hostmgr.placing import place_and_launch
from services.storage.storage import Storage
from tests.doubles.hostmgr.cluster import MemoryCluster
from tests.doubles.hostmgr.driver import MemoryDriver
from tests.simulation.clock import Clock

SETTINGS = HostManagerSettings()


class NoListener:
    """Ignores signals of the host manager: stories draw the turns of workflows."""

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        """Ignore the signal: turns are drawn."""

    pods_changed = jobs_changed

    def hosts_changed(self, hostnames: Iterable[str]) -> None:
        """Ignore the signal: turns are drawn."""


class QueueOfAll:
    """Part of the resource manager that placement requires; every queued pod is admitted soon."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.requeued_count = 0

    def note_unplaced(self, job_id: JobId, count: int, why: PlacementReason) -> int:
        """Ignore the reasons; no pod is in backoff."""
        return 0

    def requeue_pods(
        self, job_id: JobId, instances: Sequence[tuple[int, int]], reason: RequeueReason, but: Sequence[int] = ()
    ) -> int:
        queued = self._storage.admission.requeue_pods(job_id, instances, reason, but=but).queued
        count = sum(count for _, _, count in queued)
        self.requeued_count += count
        return count


class SimulatedDriver(MemoryDriver):
    def take_down(self, host: HostAddress) -> None:
        left = self.cluster.hosts[host.hostname].pods
        assert not left, f"{host.hostname} goes down with {sorted(left)}"
        super().take_down(host)


class SimulatedHostManager(HostManagerCore):
    def __init__(self, storage: Storage, cluster: MemoryCluster, settings: HostManagerSettings = SETTINGS) -> None:
        super().__init__(settings, storage, NoListener(), SimulatedDriver(cluster))
        self.cluster = cluster
        for pods in storage.host_pods.list_labelled("local"):
            self.cache.pod_labels.add(pods)
        if settings.uses_host_pools:
            self.read_host_pools()
            self._read_asked()
        self.driver.start(self)

    def choose_clusters(self, *_: object) -> ClusterChoice:
        return ClusterChoice(("local",))

    def acquire_hosts(  # type: ignore[override]  # that of ports.HostManager, which names a cluster
        self,
        job_id: JobId,
        gangs: Any,
        for_gang: bool = False,
        desired: Any = (),
        cluster: str = "local",
        waiting: Any = (),
    ) -> HostLease:
        assert cluster == "local"
        return super().acquire_hosts(job_id, gangs, for_gang, desired, waiting=waiting)

    def launch_and_die(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        """Die after the commit of a launch, which never reaches the cluster. Raises the error of the caller."""
        driver: Any = self.driver
        driver.launch = _cut_off
        return self.launch(job_id, lease_id, placements)

    def take_hosts(self) -> None:
        self.cluster.deliver_resources()

    def take_news(self, random: Random, most: int) -> None:
        """Deliver statuses, in order for each pod, in any order between pods."""
        statuses: list[PodStatus] = []
        while (waiting := self.cluster.reports) and len(statuses) < most:
            report = self.cluster.take_report(random.choice(sorted(waiting)))
            assert report.status is not None
            statuses.append(report.status)
        self._kill_orphans(self._status_writer.commit(statuses))

    def run_background_tasks(self) -> None:
        self.cluster.deliver_hosts()
        self._review_holds()
        self._review_reservations()
        if self.cache.host_pools.is_stale:
            self._read_asked()
        self._volumes.run_periodic()
        if look := self._reconciling.take(manager.time.monotonic()):  # type: ignore[attr-defined]
            self._reconcile(look)


def _cut_off(launches: Any) -> Any:
    raise OSError("the host manager died")


class SimulatedMaintenance(MaintenanceController):
    def __init__(self, core: SimulatedHostManager, storage: Storage, clock: Clock) -> None:
        watch = DrainWatch(NoListener(), NoListener(), clock.monotonic)
        super().__init__(
            core,
            storage.maintenance,
            storage.host_pods,
            storage.disruptions,
            storage.host_pools,
            NoListener(),
            NoListener(),
            watch,
            cluster="local",
            share=0.25,
        )

        def slow_read(hostnames: Collection[str]) -> Any:
            clock.pass_s(2)  # what it saw serves for twenty seconds
            return storage.host_pods.hosted_pods(hostnames, "local")

        self._hosted_pods = HostedPods(slow_read, clock.monotonic)

    def step(self, hostname: str) -> None:
        host = self._maintenance.get("local", hostname)
        acts = {Step.CORDON: self.cordon, Step.DRAIN: self.drain}
        acts |= {Step.TAKE_DOWN: self.take_down, Step.BRING_UP: self.bring_up, Step.RELABEL: self.relabel}
        if host is not None and (act := acts.get(next_step(host))):
            act(hostname)


class Through:
    """Host manager whose launches pass through another function."""

    def __init__(self, core: SimulatedHostManager, launch: Callable[..., LaunchResult]) -> None:
        self._core = core
        self.launch = launch

    def place_and_launch(self, job_id: JobId, limit: int, for_gang: bool = False) -> LaunchedBatch:
        return place_and_launch(self._core._ready, self, job_id, limit, for_gang)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)
