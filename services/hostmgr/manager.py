"""The host manager of one cluster: a Mesos framework that leases hosts, launches and kills pods, and stores what
becomes of them. Its memory holds offers and agents only; after a restart it subscribes again and reconciles."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from peloton.errors import NotFound, Unavailable
from peloton.model.host import Desired, HostLease, LaunchResult, Placement
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord
from peloton.model.pod import PodShape, PodStatus
from peloton.ports import PodLifecycles
from services.hostmgr.claims import HostClaims
from services.hostmgr.failure_output import FailureOutput, StderrReader
from services.hostmgr.hosts import HostPool
from services.hostmgr.mesos.agent_watch import AgentWatch
from services.hostmgr.mesos.agents import AgentLooks
from services.hostmgr.mesos.codec import (
    TaskTemplate,
    accept_call,
    acknowledge_call,
    kill_call,
    launch_refused,
    pod_status,
)
from services.hostmgr.mesos.framework import HostManagerSettings, framework_info, framework_refusal
from services.hostmgr.mesos.master_term import MasterTerm
from services.hostmgr.mesos.offer_keeper import OfferKeeper
from services.hostmgr.mesos.operator import Operator
from services.hostmgr.mesos.resources import Json
from services.hostmgr.mesos.subscription import REMOVED, SUPERSEDED, Callbacks, Disconnected, Subscription
from services.hostmgr.mesos.wire import MesosRefusal
from services.hostmgr.reconcile import AGENT_BACK, AGENT_BACK_REST_S, InFlight, Look, Reconciler, ReconcileSchedule
from services.hostmgr.reports import Reports
from services.hostmgr.room import Claim
from services.hostmgr.statuses import StatusCommitter
from services.hostmgr.templates import TemplateCache
from services.storage.gateway import Gateway

log = logging.getLogger(__name__)

KILL_BATCH = 1_000
BEHIND_PERIOD_S = 1.0
"""Between attempts at chores that have not worked."""
Kill = tuple[PodId, str, str, int]  # pod, host, agent id, grace in seconds


class HostManagerCore(Callbacks):
    """``ports.HostManager`` for one cluster, in process; the servicer puts it on the wire."""

    def __init__(
        self,
        settings: HostManagerSettings,
        gateway: Gateway,
        lifecycles: PodLifecycles,
        give_up: Callable[[str], None] = log.error,
    ) -> None:
        """``give_up`` hears of a master that will not take us until somebody changes a setting."""
        self._settings = settings
        self._give_up = give_up
        self.operator = Operator(settings.access)
        self._gateway = gateway
        self._lifecycles = lifecycles
        self.pool = HostPool(settings.lease_s, cluster=settings.cluster, role=settings.role)
        self._templates = TemplateCache(gateway, settings.cluster, settings.user)
        self._in_flight = InFlight()
        self._reconciler = Reconciler(partial(gateway.pods_on_hosts, settings.cluster), self._in_flight)
        looks = AgentLooks(
            settings.agents_period_s, self.operator.answer_of, cluster=settings.cluster, role=settings.role
        )
        self._term = MasterTerm(settings.agent_reregister_timeout_s)
        claims = HostClaims(gateway, settings.cluster)
        self._agents = AgentWatch(looks, claims, self.pool, self._master, self._denied, self._term)
        self._failure_output = FailureOutput(
            StderrReader(self.pool, self.operator, lambda: self.driver.framework_id or ""), gateway.add_output
        )
        self._reports = Reports(
            gateway,
            settings.cluster,
            self.pool,
            lifecycles,
            self._agents.want,
            self._failure_output.take,
            lambda: time.monotonic(),
        )
        self._statuses = StatusCommitter(
            self._reports.commit,
            self._acknowledge,
            self._kill_orphans,
            self._translate,
            missed=self._look_anew,
            done=self._reconciler.answers.take,
        )
        self._driver: Subscription | None = None
        self._stopping = threading.Event()
        self._look_now = threading.Event()
        self._reconciling = ReconcileSchedule(settings.agent_reregister_timeout_s)
        self._unsaved_framework_id = ""
        self._keeper = OfferKeeper(self.pool, lambda calls: self.driver.send_all(calls), settings.offer_hold_s)
        self._chores = threading.Thread(target=self._run_chores, name="host chores", daemon=True)

    # Life.

    def start(self) -> None:
        settings = self._settings
        framework = framework_info(settings, self._gateway.framework_id(settings.cluster))
        for pods in self._gateway.labelled_pods(settings.cluster):
            self.pool.pod_labels.add(pods)
        self._driver = Subscription(self, framework, settings.master, settings.access)
        self._statuses.start()
        self._failure_output.start()
        self._driver.start()
        self._chores.start()
        self._agents.start()

    def stop(self) -> None:
        """Statuses first, while they can still be acknowledged."""
        self._stopping.set()
        self._look_now.set()
        self._agents.stop()
        self._statuses.stop()
        self._failure_output.stop()
        self.driver.stop()
        self.driver.join()
        self._chores.join()

    @property
    def driver(self) -> Subscription:
        assert self._driver is not None, "the host manager has not been started"
        return self._driver

    def _master(self) -> str | None:
        return self.driver.master if self.driver.connected else None

    # Callbacks of the driver, on its thread: none of them waits for storage or for Mesos.

    def registered(self, driver: Subscription, framework_id: Json, master: Json) -> None:
        log.info("subscribed to Mesos at %(hostname)s:%(port)s as %(id)s", {**master, "id": framework_id["value"]})
        self._unsaved_framework_id = framework_id["value"]
        self._term.begin(driver.leader_id)
        self._keeper.subscribed()
        self._look_anew()

    def reregistered(self, driver: Subscription, master: Json) -> None:
        log.info("subscribed again to Mesos at %(hostname)s:%(port)s", master)
        self._term.begin(driver.leader_id)
        self._keeper.subscribed()
        self._look_anew()

    def disconnected(self, driver: Subscription) -> None:
        self._term.lost()
        self._agents.connection_lost()
        self.pool.forget_offers()
        self._keeper.returns.clear()

    def resourceOffers(self, driver: Subscription, offers: list[Json]) -> None:
        self._lifecycles.jobs_changed(self.pool.add_offers(offers))
        self._keeper.offers_came()
        if any(self.pool.agent(offer["hostname"]) is None for offer in offers):
            self._agents.want()

    def offerRescinded(self, driver: Subscription, offer_id: Json) -> None:
        self.pool.remove_offer(offer_id["value"])

    def statusUpdate(self, driver: Subscription, status: Json) -> None:
        if self._term.is_premature(status):
            return  # as if there were no answer: it is asked again
        if status.get("reason") == AGENT_BACK:
            self._reconciling.want_by(time.monotonic() + AGENT_BACK_REST_S)
        if self._reconciler.answers.is_news(status):
            self._statuses.add(status)

    def slaveLost(self, driver: Subscription, agent_id: Json) -> None:
        log.warning("agent %s is lost", agent_id["value"])
        self._agents.want()

    def inverseOffers(self, driver: Subscription, offers: list[Json]) -> None:
        self.pool.inverse_offers.extend(offers)  # whoever keeps the hosts in maintenance answers

    def error(self, driver: Subscription, message: str) -> None:
        log.error("Mesos refuses the framework: %s", message)
        if message == REMOVED:
            # Its pods are gone with it: a new framework, and reconciliation finds out what is lost.
            driver.forget_framework()
        elif message != SUPERSEDED:
            self._give_up(framework_refusal(self._settings, driver.master, message))

    def denied(self, driver: Subscription, why: str) -> None:
        self._denied(why)

    def _denied(self, why: str) -> None:
        self._give_up(self._settings.access.denial(self.driver.master, why))

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
        return self._keeper.lease(job_id, gangs, time.monotonic, for_gang, desired)

    def release(self, lease_id: str) -> None:
        self._lifecycles.jobs_changed(self.pool.release(lease_id))

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        """Commit, then tell Mesos. Pods that an earlier call committed are refused here, so nothing starts twice;
        pods that Mesos does not take after the commit are stored as LOST and get a new run."""
        if self._unsaved_framework_id:
            raise Unavailable("the framework id is not stored yet: a successor could not find what is launched now")
        self._check_unlocked("Launch", "launch")
        job = self._gateway.job(job_id)
        if job is None:
            raise NotFound(f"job {job_id} not found")
        claims = self.pool.claim(lease_id, [p.hostname for p in placements])
        self.release(lease_id)
        usable = [p for p in placements if p.hostname in claims]
        pods = [PodId(job_id, pod.instance_id, pod.run_id) for p in usable for pod in p.pods]
        try:
            with self._in_flight.launching(pods):
                taken, failed = self._launch(job, usable, claims)
        except Exception as error:
            # Not known what was committed and what arrived. Mesos ignores a DECLINE of offers that were used.
            self._give_back([offer_id for claim in claims.values() for offer_id in claim.offer_ids])
            self._look_anew(Look.UNSETTLED)
            if isinstance(error, OSError):
                raise Unavailable(f"not known whether Mesos took the launch: {error}") from error
            raise
        total = sum(len(p.pods) for p in placements)
        return LaunchResult(len(taken) - len(failed), total - len(taken), len(failed))

    def _launch(
        self, job: JobRecord, placements: Sequence[Placement], claims: dict[Hostname, Claim]
    ) -> tuple[set[int], list[PodId]]:
        """Instances that were committed, and of those the pods that Mesos did not get."""
        templates = self._templates.of_job(job, [pod.instance_id for p in placements for pod in p.pods])
        agents = {hostname: claim.agent_id for hostname, claim in claims.items()}
        rows = [
            (pod.instance_id, pod.run_id, p.hostname, agents[p.hostname], templates[pod.instance_id].ports(pod.ports))
            for p in placements
            for pod in p.pods
            if pod.instance_id in templates  # else it has been deleted
        ]
        taken = self._gateway.mark_launched(job.job_id, rows, time.time_ns(), self._settings.cluster) if rows else set()
        launched = [(i, run, host, templates[i].labels) for i, run, host, _, _ in rows if i in taken]
        self.pool.pods_launched(job.job_id, launched)
        return taken, self._accept(job.job_id, placements, claims, templates, taken)

    def _accept(
        self,
        job_id: JobId,
        placements: Sequence[Placement],
        claims: dict[Hostname, Claim],
        templates: dict[int, TaskTemplate],
        taken: set[int],
    ) -> list[PodId]:
        """One ACCEPT per host. Returns the pods that Mesos did not get."""
        calls: list[Json] = []
        pods_of_call: list[list[PodId]] = []
        failed: list[tuple[PodId, str]] = []
        for placement in placements:
            claim = claims[placement.hostname]
            tasks: list[Json] = []
            pods: list[PodId] = []
            for pod in placement.pods:
                if pod.instance_id not in taken:
                    continue
                template, pod_id = templates[pod.instance_id], PodId(job_id, pod.instance_id, pod.run_id)
                resources = claim.pot.take(template.resources, template.revocable, pod.ports)
                if resources is None:
                    failed.append((pod_id, f"the offers of {claim.hostname} do not hold what the pod asks"))
                    continue
                tasks.append(template.task_info(pod, claim.agent_id, resources))
                pods.append(pod_id)
            calls.append(accept_call(claim.offer_ids, tasks))
            pods_of_call.append(pods)
        for placement, pods, refusal in zip(placements, pods_of_call, self._send_accepts(calls), strict=True):
            if refusal:
                failed += [(pod_id, str(refusal)) for pod_id in pods]
                self._give_back(claims[placement.hostname].offer_ids)
        if failed:
            self._reports.commit([launch_refused(pod_id, message, time.time_ns()) for pod_id, message in failed])
        return [pod_id for pod_id, _ in failed]

    def _send_accepts(self, calls: Sequence[Json]) -> Sequence[MesosRefusal | None]:
        try:
            return self.driver.send_all(calls)
        except Disconnected as error:
            return [MesosRefusal(0, str(error))] * len(calls)
        # An OSError goes on to our caller: not known what arrived, so reconciliation decides. Were the pods called
        # LOST here, one that runs, and has said so already, would run on beside its next run.

    def _give_back(self, offer_ids: Sequence[str]) -> None:
        self._keeper.returns.add(offer_ids)
        self._look_now.set()

    # Kills.

    def kill_running(self, job_id: JobId) -> int:
        """Raises Unavailable while Mesos is away: the pods are marked, and the next call or the next subscription
        tells Mesos. The same while an administrator has locked kills."""
        self._check_unlocked("Kill", "kill")
        try:
            kills = self._gateway.mark_killing(job_id, KILL_BATCH, cluster=self._settings.cluster)
            self.pool.hold(self._gateway.coming_back(job_id, [pod.instance_id for pod, *_ in kills]), time.monotonic())
        except Exception:
            self._look_anew(Look.UNSETTLED)  # not known what is marked: no further call would tell Mesos of it
            raise
        self._kill(kills)
        return len(kills)

    def _check_unlocked(self, component: str, act: str) -> None:
        if component in self._gateway.lockdowns():
            raise Unavailable(f"{act} op is locked")

    def _kill(self, kills: Sequence[Kill]) -> None:
        calls = [kill_call(pod_id, agent) for pod_id, _, agent, _ in kills]
        if not calls:
            return
        try:
            faults: list[Exception] = [refusal for refusal in self.driver.send_all(calls) if refusal]
        except (Disconnected, OSError) as error:
            faults = [error]
        if faults:
            self._look_anew()
            raise Unavailable(f"{len(calls)} pods not killed yet: {faults[0]}") from faults[0]

    def _kill_orphans(self, orphans: list[PodId]) -> None:
        log.info("killing %d runs that nobody wants any more", len(orphans))
        try:
            self._kill([(pod_id, "", "", 0) for pod_id in orphans])
        except Unavailable as error:
            log.info("%s; reconciliation finds them again", error)

    # Status updates, on the committer's thread.

    def _translate(self, status: Json) -> PodStatus | None:
        translated = pod_status(status, "")
        if translated is None and status["state"] not in ("TASK_UNREACHABLE", "TASK_UNKNOWN"):
            log.warning("status %s of %s is not ours", status["state"], status["task_id"]["value"])
        return translated

    def _acknowledge(self, statuses: list[Json]) -> None:
        try:
            self.driver.send_all([acknowledge_call(status) for status in statuses])
        except (Disconnected, OSError) as error:
            log.info("%d acknowledgements not sent: %s; the updates come again", len(statuses), error)

    # Chores: the framework id, offers to give back, held room, reconciliation.

    def _run_chores(self) -> None:
        while not self._stopping.is_set():
            self._look_now.clear()
            if self.driver.connected:
                self._attempt("framework id", self._save_framework_id)
                self._attempt("offers", self._keeper.tend)
                self._attempt("held room", self._review_holds)
                look = self._reconciling.take(time.monotonic())
                if look and not self._attempt("reconciliation", partial(self._reconcile, look)):
                    self._reconciling.want(look)
            is_behind = self._reconciling.is_wanted or self._unsaved_framework_id or self._keeper.returns.are_due
            self._look_now.wait(BEHIND_PERIOD_S if is_behind else self._keeper.period_s)
            self._stopping.wait(0.2)  # what comes together is done together

    def _attempt(self, what: str, chore: Callable[[], None]) -> bool:
        try:
            chore()
        except Exception as error:
            if not self._stopping.is_set():
                log.warning("%s failed, tried again soon: %s", what, error)
            return False
        return True

    def _save_framework_id(self) -> None:
        if unsaved := self._unsaved_framework_id:
            self._gateway.set_framework_id(self._settings.cluster, unsaved)
            if self._unsaved_framework_id == unsaved:
                self._unsaved_framework_id = ""

    def _review_holds(self) -> None:
        self._lifecycles.jobs_changed(self.pool.review_holds(self._gateway.coming_back, time.monotonic()))

    def _reconcile(self, look: Look) -> None:
        """Ask Mesos about the pods that storage believes on hosts, and tell it again what must end. A look at
        everything wakes all active jobs too: their wake-ups may have died with our predecessor."""
        ending = self._reconciler.ask(look, self.driver.send_all)
        self._kill([(pod, host, agent, 0) for pod, host, agent, _ in ending])
        if look is Look.ALL:
            self._lifecycles.jobs_changed(self._gateway.active_job_ids())
