"""Mesos as a ``ClusterDriver``: one framework per cluster, whose offers are free resources and whose tasks are pods."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from peloton.errors import NotFound
from peloton.model.host_pool import AT_PAR
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape, PodStatus
from peloton.model.volume import VolumeRecord, VolumeState
from peloton.ports import FrameworkRecords
from services.hostmgr.driver import (
    Capabilities,
    CapacityRequest,
    DriverEvents,
    Exchange,
    ExchangeAnswer,
    FilePiece,
    Holder,
    HostAddress,
    HostLaunch,
    PodOnHost,
    PodTemplate,
    RegisteredHost,
    Sandbox,
    Token,
    UseSample,
)
from services.hostmgr.mesos.agent_watch import AgentWatch
from services.hostmgr.mesos.agents import AgentPoller
from services.hostmgr.mesos.codec import (
    AGENT_BACK,
    TaskTemplate,
    accept_call,
    acknowledge_call,
    kill_call,
    reconcile_call,
    report_of,
    samples_of,
)
from services.hostmgr.mesos.framework import MesosSettings, framework_info, framework_refusal
from services.hostmgr.mesos.isolators import ALL, AgentIsolators, Isolators
from services.hostmgr.mesos.maintenance import InverseOffers, MaintenanceSchedule
from services.hostmgr.mesos.master_term import MasterTerm
from services.hostmgr.mesos.offer_cache import OfferCache
from services.hostmgr.mesos.offer_controller import OfferController
from services.hostmgr.mesos.operator import Operator
from services.hostmgr.mesos.reasons import AGENT_DRAINING, is_limit_refusal
from services.hostmgr.mesos.resources import ANY_ROLE, Json, OfferedResources
from services.hostmgr.mesos.sandboxes import Sandboxes
from services.hostmgr.mesos.subscription import REMOVED, SUPERSEDED, Callbacks, Disconnected, Subscription
from services.hostmgr.mesos.volumes import calls_to_destroy, operations_to_make, volume_id_of
from services.hostmgr.mesos.wire import MesosRefusal

log = logging.getLogger(__name__)

BEHIND_PERIOD_S = 1.0
"""Seconds between retries of failed periodic tasks."""
AGENT_RESTART_S = 30.0
"""Seconds within which an agent that its supervisor restarts is back: a few until the restart, 2 in which it waits for
its executors, and up to ten until the next read of the agents."""


class MesosDriver(Callbacks):
    """Implements ``ClusterDriver``, and handles the events of the subscription."""

    def __init__(self, settings: MesosSettings, records: FrameworkRecords, refusal: Callable[[], str] = str) -> None:
        """``refusal`` returns why this process may send nothing now, or ""."""
        self._settings = settings
        self._records = records
        self._refusal = refusal
        self.operator = Operator(settings.access, refusal)
        self._offers = OfferCache(settings.role)
        self._term = MasterTerm(settings.agent_reregister_timeout_s)
        poller = AgentPoller(settings.agents_period_s, self.operator.answer_of, role=settings.role)
        self._isolators = AgentIsolators(self.operator.flags)
        self.agents = AgentWatch(
            poller,
            self._register,
            self._master,
            self._report_denial,
            self._term,
            self._isolators.label,
        )
        self._sandboxes = Sandboxes(self.agents, self.operator)
        self._controller = OfferController(self._take_idle, lambda calls: self.send_all(calls), settings.offer_hold_s)
        self._schedule = MaintenanceSchedule(lambda: self.subscription.master, self.operator)
        self._inverse_offers = InverseOffers(self.agents, lambda calls: self.send_all(calls))
        self._hostnames: frozenset[Hostname] = frozenset()  # of the registered hosts
        self._tasks: WeakKeyDictionary[PodTemplate, TaskTemplate] = WeakKeyDictionary()
        self._subscription: Subscription | None = None
        self._unsaved_framework_id = ""
        self.capabilities = Capabilities(
            kind="mesos",
            shares_capacity=True,
            announces_revocable=True,
            measures_use=True,
            serves_files=True,
            keeps_volumes=settings.role != ANY_ROLE,
            restart_s=AGENT_RESTART_S,
            settles_s=settings.agent_reregister_timeout_s,
            list_ended=self._list_ended,
        )

    # Start and stop.

    def start(self, events: DriverEvents) -> None:
        settings = self._settings
        self._events = events
        framework = framework_info(settings, self._records.framework_id(settings.cluster))
        self._subscription = Subscription(self, framework, settings.master, settings.access, self._refusal)
        self._subscription.start()
        self.agents.start()

    def stop(self) -> None:
        self.agents.stop()
        self._isolators.close()
        self.subscription.stop()
        self.subscription.join()

    @property
    def subscription(self) -> Subscription:
        assert self._subscription is not None, "the driver has not been started"
        return self._subscription

    def send_all(self, calls: Sequence[Json]) -> list[MesosRefusal | None]:
        return self.subscription.send_all(calls)

    @property
    def is_connected(self) -> bool:
        return bool(self.subscription.connected)

    @property
    def unready(self) -> str:
        if self._unsaved_framework_id:
            return "the framework id is not stored yet: a successor could not find what is launched now"
        return ""

    def _master(self) -> str | None:
        return self.subscription.master if self.is_connected else None

    # Events of the subscription, on its thread.

    def registered(self, driver: Subscription, framework_id: Json, master: Json) -> None:
        log.info("subscribed to Mesos at %(hostname)s:%(port)s as %(id)s", {**master, "id": framework_id["value"]})
        self._unsaved_framework_id = framework_id["value"]
        self._begin_subscription(driver)

    def reregistered(self, driver: Subscription, master: Json) -> None:
        log.info("subscribed again to Mesos at %(hostname)s:%(port)s", master)
        self._begin_subscription(driver)

    def _begin_subscription(self, subscription: Subscription) -> None:
        self._term.begin(subscription.leader_id)
        self._controller.reset()
        self._events.on_connect()

    def disconnected(self, driver: Subscription) -> None:
        self._term.end()
        self.agents.connection_lost()
        self._offers.clear()
        self._controller.returns.clear()
        self._events.on_disconnect()

    def _register(self, hosts: Sequence[RegisteredHost]) -> None:
        before, self._hostnames = self._hostnames, frozenset(host.hostname for host in hosts)
        if self._hostnames - before:
            self._controller.hosts_joined()
        self._events.hosts_registered(hosts)

    def resourceOffers(self, driver: Subscription, offers: list[Json]) -> None:
        free_resources = self._offers.receive(offers)
        self._events.resources_announced(free_resources)
        self._controller.offers_came()
        if not self.agents.knows_all([announced.hostname for announced in free_resources]):
            self.agents.want()

    def offerRescinded(self, driver: Subscription, offer_id: Json) -> None:
        self._offers.forget([offer_id["value"]])
        self._events.resources_withdrawn([offer_id["value"]])

    def statusUpdate(self, driver: Subscription, status: Json) -> None:
        if self._term.is_premature(status):
            return  # not an answer: reconciliation repeats the request
        if status.get("reason") == AGENT_BACK:
            self._events.host_returned()
        if is_limit_refusal(status) and (agent := self.agents.of_id(status["agent_id"]["value"])):
            self._isolators.record_refusal(agent, status["message"])
        if status.get("reason") == AGENT_DRAINING:
            self.agents.want()  # it takes no pods from now on
        self._events.on_report(report_of(status))

    def slaveLost(self, driver: Subscription, agent_id: Json) -> None:
        log.warning("agent %s is lost", agent_id["value"])
        self.agents.want()

    def inverseOffers(self, driver: Subscription, offers: list[Json]) -> None:
        self._inverse_offers.record(offers)

    def error(self, driver: Subscription, message: str) -> None:
        is_replaced = message in (REMOVED, SUPERSEDED)
        log.log(logging.WARNING if is_replaced else logging.ERROR, "Mesos rejected the framework: %s", message)
        if message == REMOVED:
            # Its pods ended with it: a new framework follows, and reconciliation finds the lost pods.
            driver.forget_framework()
        elif message != SUPERSEDED:
            self._events.on_refuse(framework_refusal(self._settings, driver.master, message))

    def denied(self, driver: Subscription, why: str) -> None:
        self._report_denial(why)

    def _report_denial(self, why: str) -> None:
        self._events.on_refuse(self._settings.access.denial(self.subscription.master, why))

    # Offers.

    def request_capacity(self, request: CapacityRequest) -> bool:
        return self._controller.want(request)

    def demand_met(self, holder: Holder, shapes: Sequence[PodShape]) -> None:
        self._controller.record_demand_met(holder, shapes)

    def return_resources(self, resources_ids: Sequence[str]) -> None:
        """Return offers. Mesos ignores a DECLINE of offers that were used."""
        self._offers.forget(resources_ids)
        self._controller.returns.add(resources_ids)

    def _take_idle(self, until_s: float, kept: int, limit: int) -> list[str]:
        idle = self._events.idle_resources(until_s, kept, limit)
        self._offers.forget(idle)
        return idle

    # Pods.

    def launch(self, launches: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        """Send one ACCEPT per host."""
        self._controller.note_used(len(launches))
        isolators = self._isolators_for(launches)
        calls: list[Json] = []
        sent: list[tuple[list[str], list[PodId]]] = []  # by call: offers, pods
        failed: list[tuple[PodId, str]] = []
        for claim, pods in launches:
            offer_ids, pot = self._offers.use(claim.resources_ids)
            tasks: list[Json] = []
            operations: list[Json] = []
            taken: list[PodId] = []
            for pod in pods:
                task = self._task(pod.template)
                here = isolators.get(claim.host_id, ALL)
                if why := task.refusal_of(here, claim.hostname):
                    failed.append((pod.pod_id, why))
                    continue
                resources = pot.take(pod.taken, pod.template.revocable, pod.ports)
                if resources is None:
                    failed.append((pod.pod_id, f"the offers of {claim.hostname} do not hold what the pod asks"))
                    continue
                if pod.volume is not None:
                    if (found := self._volume(pod.volume, pot)) is None:
                        failed.append((pod.pod_id, _no_volume(pod.volume, claim.hostname)))
                        continue
                    operations += found[0]
                    resources.append(found[1])
                tasks.append(task.task_info(pod, claim.host_id, resources, here, claim.hostname))
                taken.append(pod.pod_id)
            if offer_ids:
                calls.append(accept_call(offer_ids, tasks, operations))
                sent.append((offer_ids, taken))
        for (offer_ids, taken), refusal in zip(sent, self._send_accepts(calls), strict=True):
            if refusal:
                failed += [(pod_id, str(refusal)) for pod_id in taken]
                self._controller.returns.add(offer_ids)
        return failed

    def _isolators_for(self, launches: Sequence[HostLaunch]) -> dict[str, Isolators]:
        """Return by id the isolators of the agents on which a launch depends."""
        asking = [
            agent
            for claim, pods in launches
            if any(pod.factors != AT_PAR or pod.template.secret_files for pod in pods)
            and (agent := self.agents.of_host(claim.hostname)) is not None
        ]
        found = self._isolators.of(asking)
        if any(not isolators.mounts_secrets for isolators in found.values()):
            self.agents.want()  # its host gets the label that excludes pods with secrets
        return found

    def _volume(self, volume: VolumeRecord, pot: OfferedResources) -> tuple[list[Json], Json] | None:
        """Return the volume's resource entry, and the operations that create the volume if necessary; None when the
        offers lack it."""
        if (entry := pot.volumes.pop(volume.volume_id, None)) is not None:
            return ([], entry) if volume_id_of(entry) else None
        if volume.state is not VolumeState.INITIALIZED or (disk := pot.take_disk(volume.size_mib)) is None:
            return None
        self.agents.want()  # the next read lists the volume
        return operations_to_make(volume, disk, self._settings.role, self._settings.access.principal)

    def destroy_volume(self, volume: VolumeRecord) -> None:
        """Destroy the volume through the operator API, which rescinds offers that contain it."""
        agent, master = self.agents.of_host(Hostname(volume.host)), self._master()
        if agent is None or master is None:
            raise OSError(f"host {volume.host} is not registered")
        if (entry := agent.volumes.get(volume.volume_id)) is not None:
            for call in calls_to_destroy(agent.host.host_id, entry):
                self.operator.call(master, call)
        self.agents.want()

    def _task(self, template: PodTemplate) -> TaskTemplate:
        made = self._tasks.get(template)
        if made is None:
            made = self._tasks[template] = TaskTemplate(template, self._settings.cluster, self._settings.user)
        return made

    def _send_accepts(self, calls: Sequence[Json]) -> Sequence[MesosRefusal | None]:
        try:
            return self.send_all(calls)
        except Disconnected as error:
            return [MesosRefusal(0, str(error))] * len(calls)
        # An OSError is raised to the caller: it is unknown which tasks arrived, so reconciliation decides. If the pods
        # became LOST here, a pod that was already reported as running would run alongside its next run.

    def kill(self, pods: Sequence[PodOnHost]) -> None:
        self._send([kill_call(pod.pod_id, pod.host_id) for pod in pods])

    def acknowledge(self, tokens: Sequence[Token]) -> None:
        self.send_all([acknowledge_call(token) for token in tokens])

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        self._send([reconcile_call(pods)])

    def _list_ended(self) -> list[PodStatus]:
        """Return the ends of the pods that the master remembers, by default the last 1,000."""
        if (master := self._master()) is None:
            raise OSError("no Mesos master is connected")
        tasks = self.operator.call(master, {"type": "GET_TASKS"}).get("get_tasks", {})
        own = {"value": self.subscription.framework_id}
        ended = [task for task in tasks.get("completed_tasks", ()) if task.get("framework_id") == own]
        reports = [
            report_of({"task_id": task["task_id"], **task["statuses"][-1]}) for task in ended if task.get("statuses")
        ]
        return [status for report in reports if (status := report.status) is not None]

    def _send(self, calls: Sequence[Json]) -> None:
        """Send calls. Raises OSError, also for a rejection."""
        if refusals := [refusal for refusal in self.send_all(calls) if refusal]:
            raise OSError(str(refusals[0]))

    # Hosts.

    def drain(self, hosts: Sequence[HostAddress]) -> None:
        """Announces the hosts in Mesos's maintenance schedule, and answers its inverse offers."""
        if hosts:
            self._schedule.announce([_machine(host) for host in hosts])
        self._inverse_offers.answer({host.hostname for host in hosts})

    def take_down(self, host: HostAddress) -> None:
        self._schedule.take_down(_machine(host))

    def bring_up(self, host: HostAddress) -> None:
        self._schedule.bring_up(_machine(host))

    def set_disruption_budgets(self, minimums: Mapping[JobId, int]) -> None:
        """Ignore the call: Mesos has no disruption budgets."""

    # Output and resource use of pods.

    def samples_of(self, hostname: Hostname) -> list[UseSample]:
        agent = self.agents.of_host(hostname)
        if agent is None:
            raise OSError(f"agent {hostname} is not registered")
        try:
            rows = self.operator.statistics(agent.address, agent.process)
            return samples_of(rows, self.subscription.framework_id or "")
        except (KeyError, TypeError) as error:
            raise ValueError(f"statistics of {hostname}: {error!r}") from error

    def output_tail(self, pod: PodOnHost, limit_bytes: int) -> bytes:
        return self._sandboxes.output_tail(pod, self.subscription.framework_id or "", limit_bytes)

    def sandbox(self, pod: PodOnHost) -> Sandbox:
        return self._sandboxes.of(pod, self.subscription.framework_id or "", self.subscription.master or "")

    def read_file(self, pod: PodOnHost, path: str, offset: int, follow: bool) -> FilePiece:
        raise NotFound(f"no file {path} of pod {pod.pod_id} here: agents of Mesos serve files themselves")

    def exchange(self, pod: PodOnHost, exchange: Exchange) -> ExchangeAnswer:
        raise NotFound(f"no session with pod {pod.pod_id} here: agents of Mesos serve sessions themselves")

    # Periodic tasks.

    def run_periodic(self) -> None:
        try:
            self._save_framework_id()
        finally:
            self._controller.run_periodic()

    def _save_framework_id(self) -> None:
        if unsaved := self._unsaved_framework_id:
            self._records.set_framework_id(self._settings.cluster, unsaved)
            if self._unsaved_framework_id == unsaved:
                self._unsaved_framework_id = ""

    @property
    def next_run_in_s(self) -> float:
        is_behind = self._unsaved_framework_id or self._controller.returns.are_due
        return BEHIND_PERIOD_S if is_behind else self._controller.period_s


def _no_volume(volume: VolumeRecord, hostname: str) -> str:
    if volume.state is VolumeState.INITIALIZED:
        return f"the offers of {hostname} hold no disk of {volume.size_mib} MB in one piece for the pod's volume"
    return f"the offers of {hostname} do not hold the pod's volume {volume.volume_id}"


def _machine(host: HostAddress) -> Json:
    return {"hostname": host.hostname, "ip": host.ip}
