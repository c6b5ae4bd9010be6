"""Kubernetes as a ``ClusterDriver``: a ledger of nodes provides the free resources, and pods are created on their
nodes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from peloton.errors import InvalidArgument, NotFound
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape
from peloton.model.volume import VolumeRecord
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
    PodReport,
    Sandbox,
    Token,
    UseSample,
)
from services.hostmgr.kubernetes.apiserver.access import read_access
from services.hostmgr.kubernetes.apiserver.watch import Reflector
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json
from services.hostmgr.kubernetes.cluster_view import ClusterView
from services.hostmgr.kubernetes.nodes.cordons import Cordons
from services.hostmgr.kubernetes.nodes.nodes import DOWN
from services.hostmgr.kubernetes.nodes.slack import SlackEstimator
from services.hostmgr.kubernetes.nodes.use import NodeUse
from services.hostmgr.kubernetes.output.command_sessions import CommandSessions
from services.hostmgr.kubernetes.output.log_readers import LogReaders
from services.hostmgr.kubernetes.output.logs import PodLogs
from services.hostmgr.kubernetes.pods.creation import Creation
from services.hostmgr.kubernetes.pods.deletions import Deletions
from services.hostmgr.kubernetes.pods.disruption_budgets import DisruptionBudgets
from services.hostmgr.kubernetes.pods.gang_services import GangServices, address_pattern
from services.hostmgr.kubernetes.pods.image_pods import ImagePods
from services.hostmgr.kubernetes.pods.missing_folders import MissingFolders
from services.hostmgr.kubernetes.pods.pod_secrets import PodSecrets
from services.hostmgr.kubernetes.pods.volume_folders import NOT_KEPT, VolumeFolders
from services.hostmgr.kubernetes.preparation import Preparation
from services.hostmgr.kubernetes.session import Session
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.ticks import ticking

log = logging.getLogger(__name__)

PODS = "/api/v1/pods?fieldSelector=spec.nodeName!%3D"
"""All pods that are bound to a node, external ones included."""
NODES = "/api/v1/nodes"
GATHER_S = 0.02
"""Seconds for which changes are gathered into one announcement."""
EVALUATION_PERIOD_S = 0.25
"""Seconds between checks for nodes that have been unready, and pods that have not started, for too long."""
HOSTS_PERIOD_S = 1.0
"""Seconds between lists of all hosts."""
REPEAT_S = 3.0
"""Seconds after which unacknowledged reports are repeated."""
BEGIN_RETRY_S = 1.0
PERIODIC_S = 0.2
OVER = "the session with the cluster is over"


class KubernetesDriver:
    """Implements ``ClusterDriver``."""

    def __init__(self, settings: KubernetesSettings, refusal: Callable[[], str] = str) -> None:
        """Raise InvalidArgument for an access that cannot be read. ``refusal`` returns why this process may change
        nothing now, or ""."""
        self._settings = settings
        self.api = ApiServer(read_access(settings.access, settings.context), refusal=refusal)
        self.view = ClusterView(settings, self._publish, self._wake)
        self._deletions = Deletions(self.api, settings, self.view, self._publish)
        self._preparation = Preparation(self.api, settings)
        self._folders = VolumeFolders(self.api, settings, self.view)
        self._missing = MissingFolders(self.api, settings, self.view, self._publish)
        self._creation = Creation(settings, self.view, self._deletions, self._preparation, self._folders, self._publish)
        self.images = ImagePods(self.api, settings)
        self._secrets = PodSecrets(self.api, settings, self.view.secrets_in_use, self._preparation)
        self._gangs = GangServices(self.api, settings, self.view.gangs_in_use, self._preparation)
        self._cordons = Cordons(self.api)
        self._budgets = DisruptionBudgets(self.api, settings)
        self._session = Session(self.api, settings.namespace, settings.cluster, lambda holder: self._wake())
        self._pods = Reflector(self.api, PODS, _News(self.view.pods_replaced, self.view.pod_changed, self._wake))
        self._nodes = Reflector(self.api, NODES, _News(self.view.nodes_replaced, self.view.node_changed, self._wake))
        self._events: DriverEvents | None = None
        self._is_serving = False
        self._nodes_version = -1  # of the hosts listed last
        self._hosts_at_s = self._evaluated_at_s = self._repeated_at_s = self._prepared_at_s = float("-inf")
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubernetes", daemon=True)
        self._logs = PodLogs(self.api, settings.namespace)
        self._log_readers = LogReaders(self._logs)
        self._commands = CommandSessions(self.api, self._logs)
        self._use = NodeUse(self.api, settings.namespace, self.view.pods_on)
        lends = settings.slack_period_s > 0
        self.slack = SlackEstimator(self.view, self.samples_of, settings.slack_period_s, lambda: self.is_connected)
        self.capabilities = Capabilities(
            "kubernetes",
            announces_revocable=lends,
            measures_use=True,
            serves_files=True,
            has_disruption_budgets=True,
            gang_address=address_pattern(settings.namespace) if settings.gang_services else "",
            images=self.images,
            keeps_volumes=bool(settings.volumes),
        )

    # Start and stop.

    def start(self, events: DriverEvents) -> None:
        self._events = events
        self._thread.start()
        if self.capabilities.announces_revocable:
            self.slack.start()

    def stop(self) -> None:
        self._stopping.set()
        self._woken.set()
        self._stop_watching()
        self._log_readers.close()
        self._commands.close()
        self.api.close()  # ends waits for answers
        self.slack.stop()
        self._thread.join()

    def _stop_watching(self) -> None:
        self._pods.stop()
        self._nodes.stop()
        self._session.end()

    @property
    def is_connected(self) -> bool:
        return self._is_serving and self._session.is_held

    @property
    def unready(self) -> str:
        return self._preparation.lacking

    def _check(self) -> None:
        if not self.is_connected:
            raise ConnectionError(OVER)

    def _wake(self) -> None:
        self._woken.set()

    def _publish(self, reports: Sequence[PodReport]) -> None:
        if self._events is None or not self._is_serving:
            return  # the reports are repeated in the session
        for report in reports:
            self._events.on_report(report)

    # On the thread of the driver.

    def _run(self) -> None:
        while not self._begin():
            if self._stopping.wait(BEGIN_RETRY_S):
                return
        self._pods.start()
        self._nodes.start()
        with ticking("kubernetes", EVALUATION_PERIOD_S) as loop:
            while not self._stopping.is_set():
                loop.tick()
                try:
                    self._tick()
                except Exception as error:  # storage is unavailable, or the host manager did not record the hosts
                    log.warning("hosts and offers not published, retrying: %s", error)
                    self._stopping.wait(BEGIN_RETRY_S)
                self._woken.wait(EVALUATION_PERIOD_S)
                self._stopping.wait(GATHER_S)
                self._woken.clear()
        self._stop_watching()

    def _begin(self) -> bool:
        try:
            self._preparation.make()
            self._session.begin()
            return True
        except InvalidArgument as error:
            log.error("%s", error)
            self._sink().on_refuse(str(error))
        except OSError as error:
            log.info("no session with Kubernetes yet: %s", error)
        except Exception:  # for an answer that no apiserver sends
            log.exception("no session with Kubernetes yet")
        return False

    def _sink(self) -> DriverEvents:
        assert self._events is not None, "the driver has not been started"
        return self._events

    def _tick(self) -> None:
        now_s = time.monotonic()
        self._update_session()
        if not self._is_serving:
            return
        if self.unready and now_s - self._prepared_at_s >= BEGIN_RETRY_S:
            self._prepared_at_s = now_s
            self._preparation.make_again()
        if now_s - self._evaluated_at_s >= EVALUATION_PERIOD_S:
            self._evaluated_at_s = now_s
            with self.view.lock:
                found = self.view.evaluate(now_s, time.time())
            self._publish(found)
        self._announce(now_s)
        if now_s - self._repeated_at_s >= REPEAT_S:
            self._repeated_at_s = now_s
            with self.view.lock:
                found = self.view.cache.list_unacknowledged()
            self._publish(found)

    def _update_session(self) -> None:
        """End or start the session. An interrupted watch may have missed changes, so a new session starts when it is
        current again."""
        is_current = self._session.is_held and self._pods.is_current and self._nodes.is_current
        is_new = self.view.take_new_term() if is_current else False
        if self._is_serving and (is_new or not is_current):
            self._end_session()
        if is_current and not self._is_serving:
            self._is_serving = True
            self._hosts_at_s = self._repeated_at_s = float("-inf")
            self._sink().on_connect()

    def _end_session(self) -> None:
        self._is_serving = False
        with self.view.lock:
            self.view.ledger.void_resources()
        self._sink().on_disconnect()

    def _announce(self, now_s: float) -> None:
        """Announces hosts before their free resources."""
        version = self.view.ledger.nodes_version
        if version != self._nodes_version or now_s - self._hosts_at_s >= HOSTS_PERIOD_S:
            with self.view.lock:
                hosts = self.view.ledger.hosts()
            self._sink().hosts_registered(hosts)
            self._nodes_version, self._hosts_at_s = version, now_s
        with self.view.lock:
            withdrawn, announced = self.view.ledger.changes()
        if withdrawn:
            self._sink().resources_withdrawn(withdrawn)
        if announced:
            self._sink().resources_announced(announced)

    # Free resources, all of which are offered.

    def request_capacity(self, request: CapacityRequest) -> bool:
        return False

    def demand_met(self, holder: Holder, shapes: Sequence[PodShape]) -> None:
        """Ignore the call: unsatisfied leases are not recorded."""

    def return_resources(self, resources_ids: Sequence[str]) -> None:
        with self.view.lock:
            self.view.ledger.give_back(resources_ids)
        self._wake()

    # Pods.

    def launch(self, launches: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        if not self.is_connected:
            return [(pod.pod_id, OVER) for each in launches for pod in each.pods]
        try:
            launches, failed = self._secrets.make(launches)
            launches, lonely = self._gangs.make(launches)
            return failed + lonely + self._creation.launch(launches)
        finally:
            self._wake()  # the remaining free resources are offered again

    def destroy_volume(self, volume: VolumeRecord) -> None:
        self._check()
        if not self.capabilities.keeps_volumes:
            raise OSError(NOT_KEPT)
        self._folders.destroy(volume)
        self._wake()

    def kill(self, pods: Sequence[PodOnHost]) -> None:
        self._check()
        self._deletions.kill(pods)

    def acknowledge(self, tokens: Sequence[Token]) -> None:
        self._deletions.acknowledge(tokens)

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        self._check()
        self._deletions.reconcile(pods)

    # Hosts.

    def drain(self, hosts: Sequence[HostAddress]) -> None:
        self._check()
        for host in hosts:
            with self.view.lock:
                node = self.view.ledger.node(host.hostname)
            if node is not None and not (node.maintenance and node.is_cordoned):
                self._cordons.drain(host.hostname)

    def take_down(self, host: HostAddress) -> None:
        self._check()
        with self.view.lock:
            node = self.view.ledger.node(host.hostname)
        if node is None or node.maintenance != DOWN:
            self._cordons.take_down(host.hostname)

    def bring_up(self, host: HostAddress) -> None:
        self._check()
        self._cordons.bring_up(host.hostname)

    def set_disruption_budgets(self, minimums: Mapping[JobId, int]) -> None:
        self._check()
        self._budgets.set(minimums)

    # Output and resource use of pods.

    def samples_of(self, hostname: Hostname) -> list[UseSample]:
        if not self.view.is_node_there(hostname):
            raise OSError(f"node {hostname} is not there")
        return self._use.samples_of(hostname)

    def output_tail(self, pod: PodOnHost, limit_bytes: int) -> bytes:
        """Return the end of the pod's log, which has stdout and stderr in one."""
        try:
            return self._logs.tail(str(pod.pod_id), limit_bytes)
        except NotFound as error:
            raise OSError(str(error)) from error

    def sandbox(self, pod: PodOnHost) -> Sandbox:
        return Sandbox("", self._logs.files(str(pod.pod_id)), "", "")

    def read_file(self, pod: PodOnHost, path: str, offset: int, follow: bool) -> FilePiece:
        return self._log_readers.read(str(pod.pod_id), path, offset, follow)

    def exchange(self, pod: PodOnHost, exchange: Exchange) -> ExchangeAnswer:
        return self._commands.exchange(str(pod.pod_id), exchange)

    # Periodic tasks.

    def run_periodic(self) -> None:
        self._commands.close_idle()
        self._check()
        self._deletions.run_periodic()
        self._secrets.run_periodic()
        self._gangs.run_periodic()
        self._folders.run_periodic()
        self._missing.run_periodic()
        self.images.run_periodic()

    @property
    def next_run_in_s(self) -> float:
        return min(max(self._deletions.due_in_s, PERIODIC_S), HOSTS_PERIOD_S)


class _News:
    """Implements ``Watched``: forwards the events of a watch."""

    def __init__(
        self,
        replaced: Callable[[Sequence[Json]], None],
        changed: Callable[[Json, bool], None],
        wake: Callable[[], None],
    ) -> None:
        self.on_replace, self._changed, self._wake = replaced, changed, wake

    def on_change(self, kind: str, object: Json) -> None:
        self._changed(object, kind == "DELETED")

    def on_lost(self, why: str) -> None:
        self._wake()
