"""The host manager of one cluster: leases hosts, launches and kills pods through the cluster's driver, and stores their
states. Its memory holds only hosts and their free resources: a new leader starts the driver again and reconciles."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from peloton.errors import Unavailable
from peloton.hosts.domain_counts import NO_COUNTS, Counts
from peloton.model.host import (
    CLUSTER_KIND_LABEL,
    CLUSTER_LABEL,
    KEPT,
    VOLUMES_LABEL,
    Desired,
    HostLease,
    LaunchedBatch,
    LaunchResult,
    Placement,
)
from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodShape, PodStatus
from peloton.model.reservation import WaitingPod
from peloton.ports import Evictor, Lifecycles, PodLifecycles
from services.hostmgr.daemon_evictions import DaemonEvictions
from services.hostmgr.daemons import DaemonReconciler
from services.hostmgr.driver import (
    ClusterDriver,
    FreeResources,
    PodOnHost,
    PodReport,
    RegisteredHost,
    Token,
)
from services.hostmgr.event_writer import EventWriter
from services.hostmgr.failure_output import FailureOutput
from services.hostmgr.gang_launches import GangLaunches
from services.hostmgr.hosts.host_addresses import HostAddresses
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.hosts.host_event_recorder import CLOSED_BY, HostEventRecorder
from services.hostmgr.hosts.hostname_claims import HostnameClaims
from services.hostmgr.in_flight import InFlight
from services.hostmgr.launcher import Launcher
from services.hostmgr.metrics import ROUNDS, HostGauges
from services.hostmgr.placing import PlacementController, launch_placed, place_and_launch
from services.hostmgr.pod_templates import TemplateCache
from services.hostmgr.reconcile import HOST_BACK_REST_S, Reconciler, ReconcileSchedule, ReconcileScope
from services.hostmgr.reports import ReportQueue, StatusWriter
from services.hostmgr.reserver import Reserver
from services.hostmgr.restored import RestoredGate
from services.hostmgr.volumes import VolumeController
from services.storage.daemons.daemons import Daemons
from services.storage.storage import Storage
from services.telemetry.log_context import about
from services.ticks import ticking

log = logging.getLogger(__name__)

KILL_BATCH = 1_000
BUDGETS_PERIOD_S = 5.0
"""Seconds between reads of how many pods of each service must stay available."""
BEHIND_PERIOD_S = 1.0
"""Seconds between retries of failed periodic tasks."""


@dataclass(frozen=True)
class HostManagerSettings:
    cluster: str = "local"
    lease_s: float = 30.0
    uses_host_pools: bool = False
    reserve_after_s: float = 120.0
    reservation_s: float = 1_800.0
    pods_api: str = ""


class HostManagerCore:
    """``ports.HostManager`` for one cluster, in process; the servicer serves it over gRPC. Implements
    ``DriverEvents``."""

    def __init__(
        self,
        settings: HostManagerSettings,
        storage: Storage,
        lifecycles: PodLifecycles,
        driver: ClusterDriver,
        give_up: Callable[[str], None] = log.error,
        evictor: Evictor | None = None,
        daemons: Lifecycles | None = None,
    ) -> None:
        """``give_up`` is called when the cluster rejects Peloton until a setting changes. ``evictor`` evicts pods to
        free resources for daemons; without one, daemons wait. ``daemons`` wakes the workflows of daemons, by default
        ``lifecycles``."""
        self._settings = settings
        self._give_up = give_up
        self.driver = driver
        self._pods, self._lockdowns = storage.host_pods, storage.lockdowns
        self._disruptions, self._host_pools = storage.disruptions, storage.host_pools
        self._ready = storage.pods
        self._budgets_at_s = float("-inf")
        self._lifecycles = lifecycles
        labels = {CLUSTER_LABEL: settings.cluster, CLUSTER_KIND_LABEL: driver.capabilities.kind}
        if driver.capabilities.keeps_volumes:
            labels[VOLUMES_LABEL] = KEPT
        self._open_events = storage.host_events.open
        self._events = EventWriter(storage.host_events.add)
        self.recorder = HostEventRecorder(settings.cluster, self._events.add)
        self.cache = HostCache(settings.lease_s, cluster_labels=labels, recorder=self.recorder)
        HostGauges(self.cache)
        periods_s = settings.reserve_after_s, settings.reservation_s
        self._reserver = Reserver(settings.cluster, storage.daemons, self.cache, *periods_s)
        preferred = storage.pods.preferred_hosts
        self._placement = PlacementController(settings.cluster, self.cache, driver, self._reserver, preferred)
        self.place_pods, self.count_domains = self._placement.place_pods, self._placement.count_domains
        self._claims = HostnameClaims(storage.hosts, settings.cluster)
        self._addresses = HostAddresses(storage.hosts, settings.cluster, driver.capabilities.gang_address)
        in_flight = InFlight[PodId]()
        self._reconciler = Reconciler(partial(storage.host_pods.on_hosts, settings.cluster), in_flight)
        self._reconciling = ReconcileSchedule(driver.capabilities.settles_s)
        self._restored = RestoredGate(storage.restorations, settings.cluster)
        self._volumes = VolumeController(storage.volumes, settings.cluster, self.cache, driver, lifecycles)
        self._failure_output = FailureOutput(driver.output_tail, storage.host_pods.add_output)
        self._status_writer = StatusWriter(
            storage.host_pods, settings.cluster, self.cache, lifecycles, self._take_committed, lambda: time.monotonic()
        )
        self._launcher = Launcher(
            storage.jobs,
            storage.host_pods,
            storage.volumes,
            TemplateCache(storage.host_pods, storage.configs, storage.pools, storage.secrets),
            GangLaunches(storage.pods, self._addresses, settings.pods_api),
            cluster=settings.cluster,
            cache=self.cache,
            driver=driver,
            writer=self._status_writer,
            in_flight=in_flight,
            release=self.release,
            unsettled=lambda: self._request_reconcile(ReconcileScope.UNSETTLED),
            background_task=lambda: self._background_due.set(),
        )
        self.daemons = self._make_daemons(storage.daemons, evictor, daemons or lifecycles)
        self._report_queue = ReportQueue(
            self._status_writer.commit,
            self._acknowledge,
            self._kill_orphans,
            missed=self._request_reconcile,
            done=self._reconciler.answers.take,
        )
        self._stopping, self._background_due = threading.Event(), threading.Event()
        self._background_tasks = threading.Thread(target=self._run_background_tasks, name="host chores", daemon=True)

    def _make_daemons(self, daemons: Daemons, evictor: Evictor | None, lifecycles: Lifecycles) -> DaemonReconciler:
        cluster, evictions = self._settings.cluster, None
        if evictor is not None:
            evictions = DaemonEvictions(cluster, daemons, self.cache, evictor, self.kill_evicted)
        return DaemonReconciler(
            cluster,
            daemons,
            self.cache,
            lifecycles=lifecycles,
            place=self._placement.place_daemon,
            launch=partial(launch_placed, self),
            evictions=evictions,
        )

    # Start and stop.

    def start(self) -> None:
        self._restored.start()
        self._addresses.load()
        for pods in self._pods.list_labelled(self._settings.cluster):
            self.cache.pod_labels.add(pods)
        if self._settings.uses_host_pools:
            self.read_host_pools()
            self._read_asked()
        self.recorder.succeed(self._open_events(self._settings.cluster, CLOSED_BY))
        self._events.start()
        self.daemons.start()
        self._report_queue.start()
        self._failure_output.start()
        self.driver.start(self)
        self._background_tasks.start()

    def stop(self) -> None:
        """Stop the report queue first, while statuses can still be acknowledged."""
        self._stopping.set()
        self._background_due.set()
        self._report_queue.stop()
        self._failure_output.stop()
        self.driver.stop()
        self._background_tasks.join()
        self._events.stop()

    # Events of the driver. Only ``hosts_registered`` blocks on storage.

    def on_connect(self) -> None:
        self._request_reconcile()

    def on_disconnect(self) -> None:
        self.cache.forget_resources()

    def read_host_pools(self) -> None:
        """Read changed host pools. Any thread may call."""
        if found := self._host_pools.all(self.cache.host_pools.version):
            self._lifecycles.jobs_changed(self.cache.host_pools.set(found), "host pools changed")
            self.daemons.hosts_changed()  # daemons may be constrained by the label

    def _read_asked(self) -> None:
        self.cache.read_requests(partial(self._pods.list_requests, self._settings.cluster))

    def hosts_registered(self, hosts: Sequence[RegisteredHost]) -> None:
        if not self._stopping.is_set():
            refused = self._claims.find_refused([host.hostname for host in hosts])
            self._addresses.set([host for host in hosts if host.hostname not in refused])
            waiting = self.cache.set_hosts(hosts, refused)
            self.recorder.record_hosts(hosts, refused)
            self._lifecycles.jobs_changed(waiting, "hosts became free")
            self.daemons.hosts_changed()

    def resources_announced(self, free_resources: Sequence[FreeResources]) -> None:
        self._lifecycles.jobs_changed(self.cache.add_resources(free_resources), "hosts became free")
        self.daemons.signal_jobs()

    def resources_withdrawn(self, resources_ids: Sequence[str]) -> None:
        self.cache.remove_resources(resources_ids)

    def idle_resources(self, until_s: float, kept: int, limit: int) -> list[str]:
        return self.cache.take_idle(until_s, time.monotonic(), kept, limit)

    def on_report(self, report: PodReport) -> None:
        if self._reconciler.answers.is_news(report):
            self._report_queue.add(report)

    def host_returned(self) -> None:
        self._reconciling.want_by(time.monotonic() + HOST_BACK_REST_S)

    def on_refuse(self, why: str) -> None:
        self._give_up(why)

    def _request_reconcile(self, scope: ReconcileScope = ReconcileScope.ALL) -> None:
        self._reconciling.want(scope)
        self._background_due.set()

    # Leases and launches.

    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        elsewhere: Counts = NO_COUNTS,
        waiting: Sequence[WaitingPod] = (),
    ) -> HostLease:
        return self._placement.acquire_hosts(job_id, gangs, for_gang, desired, elsewhere, waiting)

    def release(self, lease_id: str) -> None:
        self._lifecycles.jobs_changed(self.cache.release(lease_id), "hosts became free")

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        self._check_unlocked("Launch", "launch")
        self._restored.check()
        hostnames = [placement.hostname for placement in placements]
        self.cache.spread_turns.launch_began(lease_id)
        try:
            with about(job=job_id), self.cache.launching(hostnames):
                return self._launcher.launch(job_id, lease_id, placements)
        finally:
            self.cache.spread_turns.launch_ended(lease_id)

    def place_and_launch(
        self, job_id: JobId, limit: int, for_gang: bool = False, others: Collection[str] = ()
    ) -> LaunchedBatch:
        """Place at most ``limit`` READY pods that are not in a gang, or the gang whole, and launch them. Pods that
        return to a host in one of the ``others``, clusters that are tried as well, wait for their turn. Raises
        Unavailable and NotFound."""
        return place_and_launch(self._ready, self, job_id, limit, for_gang, others)

    # Kills.

    def kill_running(self, job_id: JobId) -> int:
        """Mark and kill pods of the job that must end; return their number. Raises Unavailable while the cluster
        does not respond, with the pods marked: the next call or session kills them. Raises it too while an
        administrator has locked kills."""
        self._check_unlocked("Kill", "kill")
        try:
            kills = self._pods.mark_killing(job_id, KILL_BATCH, cluster=self._settings.cluster)
            self.cache.hold(self._pods.coming_back(job_id, [pod.instance_id for pod, *_ in kills]), time.monotonic())
        except Exception:
            self._request_reconcile(
                ReconcileScope.UNSETTLED
            )  # it is unknown which are marked: a further call would not find them
            raise
        self._kill([PodOnHost(pod_id, host, host_id) for pod_id, host, host_id, _ in kills])
        return len(kills)

    def kill_evicted(self, job_ids: Iterable[JobId]) -> None:
        """Kill pods of these jobs that have been evicted, as the effect of the eviction. The workflow of a job kills
        the pods that are left when the cluster does not respond or kills are locked."""
        for job_id in dict.fromkeys(job_ids):
            with suppress(Unavailable):
                self.kill_running(job_id)

    def _check_unlocked(self, component: str, act: str) -> None:
        if component in self._lockdowns.read_locked():
            raise Unavailable(f"{act} op is locked")

    def _kill(self, pods: Sequence[PodOnHost]) -> None:
        if not pods:
            return
        try:
            self.driver.kill(pods)
        except OSError as error:
            self._request_reconcile()
            raise Unavailable(f"{len(pods)} pods not killed yet: {error}") from error

    def _kill_orphans(self, orphans: list[PodId]) -> None:
        log.info("killing %d orphaned runs", len(orphans))
        self._restored.note_orphans(orphans)
        try:
            self._kill([PodOnHost(pod_id) for pod_id in orphans])
        except Unavailable as error:
            log.info("%s; reconciliation will retry", error)

    # Callbacks on the thread of the report queue.

    def _take_committed(self, statuses: Sequence[PodStatus]) -> None:
        self._restored.note_statuses(statuses)
        if self.driver.capabilities.serves_files:
            self._failure_output.take(statuses)

    def _acknowledge(self, tokens: list[Token]) -> None:
        try:
            self.driver.acknowledge(tokens)
        except OSError as error:
            log.info("%d acknowledgements not sent, the cluster will resend the updates: %s", len(tokens), error)

    # Periodic tasks: of the driver, resource holds, reconciliation.

    def _run_background_tasks(self) -> None:
        with ticking("host chores") as loop:
            while not self._stopping.is_set():
                loop.tick()
                self._background_due.clear()
                if self.driver.is_connected:
                    self._attempt("the driver's chores", self.driver.run_periodic)
                    self._attempt("resource holds", self._review_holds)
                    self._attempt("reserved hosts", self._review_reservations)
                    if self.cache.host_pools.is_stale:
                        self._attempt("requests of pods", self._read_asked)
                    self._attempt("disruption budgets", self._set_disruption_budgets)
                    self._attempt("volumes", self._volumes.run_periodic)
                    self._attempt("daemons", self.daemons.refresh)
                    scope = self._reconciling.take(time.monotonic())
                    if scope:
                        is_done = self._attempt("reconciliation", partial(self._reconcile, scope))
                        ROUNDS.add(1, {"outcome": "done" if is_done else "failed"})
                        if not is_done:
                            self._reconciling.want(scope)
                    self._attempt("restored database", self._restored.review)
                next_run_in_s = max(min(self.driver.next_run_in_s, self.daemons.signal_in_s), 0.0)
                loop.rest()
                self._background_due.wait(
                    min(next_run_in_s, BEHIND_PERIOD_S) if self._reconciling.is_wanted else next_run_in_s
                )
                self._stopping.wait(0.2)  # events that arrive together are handled together

    def _attempt(self, what: str, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as error:
            if not self._stopping.is_set():
                log.warning("%s failed, retrying: %s", what, error)
            return False
        return True

    def _review_holds(self) -> None:
        self._lifecycles.jobs_changed(
            self.cache.review_holds(self._pods.coming_back, time.monotonic()), "resources were freed"
        )

    def _review_reservations(self) -> None:
        self._lifecycles.jobs_changed(self._reserver.review(time.monotonic()), "reserved hosts were given back")

    def _set_disruption_budgets(self) -> None:
        """Update the cluster's disruption budgets, so that external drains respect the SLAs of services."""
        now_s = time.monotonic()
        if self.driver.capabilities.has_disruption_budgets and now_s - self._budgets_at_s >= BUDGETS_PERIOD_S:
            self._budgets_at_s = now_s
            self.driver.set_disruption_budgets(self._disruptions.budgets(self._settings.cluster))

    def _reconcile(self, scope: ReconcileScope) -> None:
        """Request reports of the pods that storage records on hosts, and repeat kills. Answers wake the jobs that
        they change; a periodic sweep finds changes that a predecessor committed without waking the job."""
        if not self._restored.is_open and self.driver.capabilities.list_ended is not None:
            ended = self.driver.capabilities.list_ended()  # the end of a pod is not answered, once it was acknowledged
            for first in range(0, len(ended), KILL_BATCH):
                self._status_writer.commit(ended[first : first + KILL_BATCH])
        ending = self._reconciler.ask(scope, self.driver.reconcile)
        self._kill([PodOnHost(*row[:3]) for row in ending])
        if scope is ReconcileScope.ALL:
            self._restored.note_compared()
