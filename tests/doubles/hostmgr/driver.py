"""The driver of a cluster in memory: the smallest ``ClusterDriver``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    Sandbox,
    Token,
    UseSample,
)
from tests.doubles.hostmgr.cluster import MemoryCluster

NO_FILES = "a cluster in memory has no files, and measures nothing"


class MemoryDriver:
    """Implements ``ClusterDriver`` with one session with a ``MemoryCluster``."""

    capabilities = Capabilities(kind="memory", announces_revocable=True, keeps_volumes=True)
    unready = ""
    next_run_in_s = 1.0

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self._events: DriverEvents | None = None

    @property
    def is_connected(self) -> bool:
        return self.cluster.serves(self._events)

    def start(self, events: DriverEvents) -> None:
        self._events = events
        self.cluster.connect(events)

    def stop(self) -> None:
        if self.is_connected:
            self.cluster.disconnect()

    def _check(self) -> None:
        if not self.is_connected:
            raise ConnectionError("the session with the cluster is over")

    def request_capacity(self, request: CapacityRequest) -> bool:
        return False  # all free resources are offered already

    def demand_met(self, holder: Holder, shapes: Sequence[PodShape]) -> None:
        """Ignore the call: unsatisfied leases are not recorded."""

    def return_resources(self, resources_ids: Sequence[str]) -> None:
        self.cluster.returned(resources_ids)

    def launch(self, launches: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        if not self.is_connected:
            return [(pod.pod_id, "the session with the cluster is over") for each in launches for pod in each.pods]
        for claim, pods in launches:
            self.cluster.launch(claim, pods)
        return []

    def destroy_volume(self, volume: VolumeRecord) -> None:
        self._check()
        self.cluster.destroy_volume(volume.host, volume.volume_id)

    def kill(self, pods: Sequence[PodOnHost]) -> None:
        self._check()
        for pod in pods:
            self.cluster.kill(pod.pod_id)

    def acknowledge(self, tokens: Sequence[Token]) -> None:
        self._check()
        for token in tokens:
            pod_id = PodId.parse(token[0])
            queue = self.cluster.reports.get(pod_id)
            if queue is not None and queue[0].token == token:
                self.cluster.take_report(pod_id)

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        self._check()
        self.cluster.answer([pod.pod_id for pod in pods] or sorted(self.cluster.running()))

    def drain(self, hosts: Sequence[HostAddress]) -> None:
        self._check()
        for host in hosts:
            self.cluster.announce_end(host.hostname)

    def take_down(self, host: HostAddress) -> None:
        self._check()
        self.cluster.lose(host.hostname)

    def bring_up(self, host: HostAddress) -> None:
        self._check()
        self.cluster.bring_back(host.hostname)

    def set_disruption_budgets(self, minimums: Mapping[JobId, int]) -> None:
        """Ignore the call: a cluster in memory has no external evictions."""

    def samples_of(self, hostname: Hostname) -> list[UseSample]:
        raise OSError(NO_FILES)

    def output_tail(self, pod: PodOnHost, limit_bytes: int) -> bytes:
        raise OSError(NO_FILES)

    def sandbox(self, pod: PodOnHost) -> Sandbox:
        raise OSError(NO_FILES)

    def read_file(self, pod: PodOnHost, path: str, offset: int, follow: bool) -> FilePiece:
        raise OSError(NO_FILES)

    def exchange(self, pod: PodOnHost, exchange: Exchange) -> ExchangeAnswer:
        raise OSError(NO_FILES)

    def run_periodic(self) -> None:
        self.cluster.deliver_again()
