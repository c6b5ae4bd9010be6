"""The host manager of one cluster: leases hosts, launches and kills pods through the cluster's driver, and stores
what becomes of them. Its memory holds hosts and their room only: a successor starts the driver again and reconciles."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from peloton.errors import Unavailable
from peloton.model.host import Desired, HostLease, LaunchResult, Placement
from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodShape, PodStatus
from peloton.ports import PodLifecycles
from services.hostmgr.driver import ClusterDriver, PodOnHost, PodReport, RegisteredHost, Room, Token
from services.hostmgr.failure_output import FailureOutput
from services.hostmgr.hosts.hostname_claims import HostnameClaims
from services.hostmgr.hosts.pool import HostPool
from services.hostmgr.launcher import Launcher
from services.hostmgr.leasing import lease_hosts
from services.hostmgr.pod_templates import TemplateCache
from services.hostmgr.reconcile import HOST_BACK_REST_S, InFlight, Look, Reconciler, ReconcileSchedule
from services.hostmgr.report_queue import ReportQueue
from services.hostmgr.status_writer import StatusWriter
from services.storage.storage import Storage

log = logging.getLogger(__name__)

KILL_BATCH = 1_000
BEHIND_PERIOD_S = 1.0
"""Between attempts at chores that have not worked."""


@dataclass(frozen=True)
class HostManagerSettings:
    cluster: str = "local"
    lease_s: float = 30.0


class HostManagerCore:
    """``ports.HostManager`` for one cluster, in process; the servicer puts it on the wire. Implements
    ``DriverEvents``."""

    def __init__(
        self,
        settings: HostManagerSettings,
        storage: Storage,
        lifecycles: PodLifecycles,
        driver: ClusterDriver,
        give_up: Callable[[str], None] = log.error,
    ) -> None:
        """``give_up`` hears of a cluster that will not have us until somebody changes a setting."""
        self._settings = settings
        self._give_up = give_up
        self.driver = driver
        self._jobs, self._pods, self._lockdowns = storage.jobs, storage.host_pods, storage.lockdowns
        self._lifecycles = lifecycles
        self.pool = HostPool(settings.lease_s)
        self._claims = HostnameClaims(storage.hosts, settings.cluster)
        in_flight = InFlight()
        self._reconciler = Reconciler(partial(storage.host_pods.on_hosts, settings.cluster), in_flight)
        self._reconciling = ReconcileSchedule(driver.capabilities.settles_s)
        self._failure_output = FailureOutput(driver.output_tail, storage.host_pods.add_output)
        self._status_writer = StatusWriter(
            storage.host_pods, settings.cluster, self.pool, lifecycles, self._committed, lambda: time.monotonic()
        )
        self._launcher = Launcher(
            storage.jobs,
            storage.host_pods,
            TemplateCache(storage.host_pods, storage.configs, storage.pools),
            settings.cluster,
            self.pool,
            driver,
            self._status_writer,
            in_flight,
            self.release,
            lambda: self._look_anew(Look.UNSETTLED),
            lambda: self._look_now.set(),
        )
        self._report_queue = ReportQueue(
            self._status_writer.commit,
            self._acknowledge,
            self._kill_orphans,
            missed=self._look_anew,
            done=self._reconciler.answers.take,
        )
        self._stopping = threading.Event()
        self._look_now = threading.Event()
        self._chores = threading.Thread(target=self._run_chores, name="host chores", daemon=True)

    # Life.

    def start(self) -> None:
        for pods in self._pods.labelled(self._settings.cluster):
            self.pool.pod_labels.add(pods)
        self._report_queue.start()
        self._failure_output.start()
        self.driver.start(self)
        self._chores.start()

    def stop(self) -> None:
        """Statuses first, while they can still be acknowledged."""
        self._stopping.set()
        self._look_now.set()
        self._report_queue.stop()
        self._failure_output.stop()
        self.driver.stop()
        self._chores.join()

    # Events of the driver. All but ``hosts_registered`` wait neither for storage nor for the cluster.

    def connected(self) -> None:
        self._look_anew()

    def disconnected(self) -> None:
        self.pool.forget_room()

    def hosts_registered(self, hosts: Sequence[RegisteredHost]) -> None:
        if not self._stopping.is_set():
            self.pool.set_hosts(hosts, self._claims.refused([host.hostname for host in hosts]))

    def room_announced(self, rooms: Sequence[Room]) -> None:
        self._lifecycles.jobs_changed(self.pool.add_room(rooms), "hosts became free")

    def room_withdrawn(self, room_ids: Sequence[str]) -> None:
        self.pool.remove_room(room_ids)

    def idle_room(self, until_s: float, kept: int, limit: int) -> list[str]:
        return self.pool.take_idle(until_s, time.monotonic(), kept, limit)

    def reported(self, report: PodReport) -> None:
        if self._reconciler.answers.is_news(report):
            self._report_queue.add(report)

    def host_returned(self) -> None:
        self._reconciling.want_by(time.monotonic() + HOST_BACK_REST_S)

    def refused(self, why: str) -> None:
        self._give_up(why)

    def _look_anew(self, look: Look = Look.ALL) -> None:
        self._reconciling.want(look)
        self._look_now.set()

    # Leases and launches.

    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
    ) -> HostLease:
        return lease_hosts(self.pool, self.driver, job_id, gangs, time.monotonic, for_gang, desired)

    def release(self, lease_id: str) -> None:
        self._lifecycles.jobs_changed(self.pool.release(lease_id), "hosts became free")

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        self._check_unlocked("Launch", "launch")
        return self._launcher.launch(job_id, lease_id, placements)

    # Kills.

    def kill_running(self, job_id: JobId) -> int:
        """Raises Unavailable while the cluster is away: the pods are marked, and the next call or the next session
        tells the cluster. The same while an administrator has locked kills."""
        self._check_unlocked("Kill", "kill")
        try:
            kills = self._pods.mark_killing(job_id, KILL_BATCH, cluster=self._settings.cluster)
            self.pool.hold(self._pods.coming_back(job_id, [pod.instance_id for pod, *_ in kills]), time.monotonic())
        except Exception:
            self._look_anew(Look.UNSETTLED)  # not known what is marked: no further call would tell the cluster of it
            raise
        self._kill([PodOnHost(pod_id, host, host_id) for pod_id, host, host_id, _ in kills])
        return len(kills)

    def _check_unlocked(self, component: str, act: str) -> None:
        if component in self._lockdowns.locked():
            raise Unavailable(f"{act} op is locked")

    def _kill(self, pods: Sequence[PodOnHost]) -> None:
        if not pods:
            return
        try:
            self.driver.kill(pods)
        except OSError as error:
            self._look_anew()
            raise Unavailable(f"{len(pods)} pods not killed yet: {error}") from error

    def _kill_orphans(self, orphans: list[PodId]) -> None:
        log.info("killing %d runs that nobody wants any more", len(orphans))
        try:
            self._kill([PodOnHost(pod_id) for pod_id in orphans])
        except Unavailable as error:
            log.info("%s; reconciliation finds them again", error)

    # Reports, on the committer's thread.

    def _committed(self, statuses: Sequence[PodStatus]) -> None:
        if self.driver.capabilities.serves_files:
            self._failure_output.take(statuses)

    def _acknowledge(self, tokens: list[Token]) -> None:
        try:
            self.driver.acknowledge(tokens)
        except OSError as error:
            log.info("%d acknowledgements not sent: %s; the reports come again", len(tokens), error)

    # Chores: those of the driver, held room, reconciliation.

    def _run_chores(self) -> None:
        while not self._stopping.is_set():
            self._look_now.clear()
            if self.driver.is_connected:
                self._attempt("the driver's chores", self.driver.tend)
                self._attempt("held room", self._review_holds)
                look = self._reconciling.take(time.monotonic())
                if look and not self._attempt("reconciliation", partial(self._reconcile, look)):
                    self._reconciling.want(look)
            tend_in_s = self.driver.tend_in_s
            self._look_now.wait(min(tend_in_s, BEHIND_PERIOD_S) if self._reconciling.is_wanted else tend_in_s)
            self._stopping.wait(0.2)  # what comes together is done together

    def _attempt(self, what: str, chore: Callable[[], None]) -> bool:
        try:
            chore()
        except Exception as error:
            if not self._stopping.is_set():
                log.warning("%s failed, tried again soon: %s", what, error)
            return False
        return True

    def _review_holds(self) -> None:
        self._lifecycles.jobs_changed(self.pool.review_holds(self._pods.coming_back, time.monotonic()), "freed room")

    def _reconcile(self, look: Look) -> None:
        """Ask the cluster about the pods that storage believes on hosts, and tell it again what must end. A look at
        everything wakes all active jobs too: their wake-ups may have died with our predecessor."""
        ending = self._reconciler.ask(look, self.driver.reconcile)
        self._kill([PodOnHost(*row[:3]) for row in ending])
        if look is Look.ALL:
            self._lifecycles.jobs_changed(self._jobs.active_ids(), "a host manager has reconciled all pods")
