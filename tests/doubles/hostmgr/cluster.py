"""A cluster in memory: hosts and pods are values, and nothing changes without a call.

The smallest cluster behind the driver's port, for tests and simulations of the host manager. A pod whose command is
``true``, ``false`` or ``exit N`` ends at once; any other pod runs until it is killed or its host is lost.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from peloton.lifecycle.constraints import HOSTNAME_LABEL, Labels
from peloton.lifecycle.volumes import volume_label
from peloton.model.ids import Hostname, PodId
from peloton.model.pod import Cause, PodState, PodStatus
from peloton.model.ranges import ranges_without
from peloton.model.resources import Resources, compute_needed, ordinary
from peloton.model.volume import HERE, VolumeState
from services.hostmgr.driver import (
    NOTHING,
    Claim,
    DriverEvents,
    FreeResources,
    PodLaunch,
    PodReport,
    PodTemplate,
    Ports,
    RegisteredHost,
    Token,
)

PORTS: Ports = ((31_000, 31_999),)


@dataclass(slots=True)
class MemoryVolume:
    size_mib: int
    runs: list[PodId] = field(default_factory=list)  # its users in order, which stand for its data


@dataclass(slots=True)
class MemoryHost:
    hostname: Hostname
    capacity: Resources
    revocable: Resources = NOTHING  # cpu only
    labels: Labels = field(default_factory=dict)
    number: int = 0  # of registrations
    is_up: bool = True
    goes_ns: int = 0
    resources_id: str = ""  # its open offer
    pods: dict[PodId, PodLaunch] = field(default_factory=dict)
    volumes: dict[str, MemoryVolume] = field(default_factory=dict)  # by id; they survive the loss of the host

    @property
    def host_id(self) -> str:
        return f"{self.hostname}-S{self.number}"

    @property
    def free(self) -> Resources:
        return (
            self.capacity
            - Resources(disk_mib=self.volumes_mib)
            - sum((_ordinary(pod) for pod in self.pods.values()), NOTHING)
        )

    @property
    def volumes_mib(self) -> int:
        return sum(volume.size_mib for volume in self.volumes.values())

    @property
    def volumes_in_use(self) -> frozenset[str]:
        return frozenset(pod.volume.volume_id for pod in self.pods.values() if pod.volume is not None)

    @property
    def revocable_free(self) -> Resources:
        return self.revocable - self.revocable_held

    @property
    def revocable_held(self) -> Resources:
        held = sum(
            compute_needed(pod.template.resources).cpu_milli for pod in self.pods.values() if pod.template.revocable
        )
        return Resources(cpu_milli=held)

    @property
    def ports(self) -> Ports:
        taken = {port for pod in self.pods.values() for port in pod.ports}
        return ranges_without(PORTS, taken)

    def registered(self) -> RegisteredHost:
        return RegisteredHost(
            self.host_id,
            self.hostname,
            "127.0.0.1",
            self.capacity,
            self.revocable,
            {HOSTNAME_LABEL: self.hostname, **self.labels, **{volume_label(one): HERE for one in self.volumes}},
            self.revocable_held,
            held=self.capacity - self.free,
            volumes=frozenset(self.volumes),
            volumes_mib=self.volumes_mib,
        )

    def free_part(self) -> FreeResources:
        labels = {HOSTNAME_LABEL: self.hostname, **self.labels}
        amounts = self.free, self.revocable_free, self.ports
        volumes = frozenset(self.volumes) - self.volumes_in_use
        return FreeResources(
            self.resources_id, self.hostname, self.host_id, *amounts, labels, self.goes_ns, volumes=volumes
        )

    def takes(self, pod: PodLaunch) -> bool:
        amounts = _ordinary(pod)
        if pod.volume is not None and pod.volume.volume_id not in self.volumes:
            if pod.volume.state is not VolumeState.INITIALIZED:
                return False
            amounts += Resources(disk_mib=pod.volume.size_mib)
        elif pod.volume is not None and pod.volume.volume_id in self.volumes_in_use:
            return False
        cpu_milli = compute_needed(pod.template.resources).cpu_milli if pod.template.revocable else 0
        ports = [port for begin, end in self.ports for port in range(begin, end + 1)]
        return (
            amounts.fits_in(self.free) and cpu_milli <= self.revocable_free.cpu_milli and set(pod.ports).issubset(ports)
        )


class MemoryCluster:
    """A cluster that outlives its drivers, which have one session with it at a time. It delivers events as they happen,
    or with ``delivers=False`` only on request."""

    def __init__(
        self, hosts: Iterable[MemoryHost], clock_ns: Callable[[], int] = time.time_ns, delivers: bool = True
    ) -> None:
        self.hosts = {host.hostname: host for host in hosts}
        self.reports: dict[PodId, deque[PodReport]] = {}
        """Unacknowledged reports of each pod in order: the next is delivered when the first is acknowledged."""
        self.lock = threading.RLock()
        self._clock_ns = clock_ns
        self._delivers = delivers
        self._events: DriverEvents | None = None
        self._stale = set(self.hosts)  # hosts whose resources must be offered again
        self._gone: list[str] = []  # withdrawn offers
        self._count = 0  # of offers and reports

    # Sessions.

    def connect(self, events: DriverEvents) -> None:
        """Start a session; the previous one ends."""
        with self.lock:
            self.disconnect()
            self._events = events
            for host in self.hosts.values():
                host.resources_id = ""
            self._stale, self._gone = set(self.hosts), []
            events.on_connect()
            self._changed()
            self.deliver_again()

    def disconnect(self) -> None:
        with self.lock:
            events, self._events = self._events, None
            if events is not None:
                events.on_disconnect()

    def serves(self, events: DriverEvents | None) -> bool:
        return events is not None and self._events is events

    def fail_over(self) -> None:
        """Start another control plane: pods keep running, and the session starts again."""
        with self.lock:
            if self._events is not None:
                self.connect(self._events)

    # Delivery.

    def deliver_again(self) -> None:
        with self.lock:
            for queue in list(self.reports.values()) if self._delivers else ():
                self._deliver(queue[0])

    def _changed(self) -> None:
        if self._delivers:
            self.deliver_hosts()
            self.deliver_resources()

    def deliver_hosts(self) -> None:
        with self.lock:
            if self._events is not None:
                self._events.hosts_registered([host.registered() for host in self.hosts.values() if host.is_up])

    def deliver_resources(self) -> None:
        with self.lock:
            stale, gone = [self.hosts[name] for name in sorted(self._stale)], self._gone
            self._stale, self._gone = set(), []
            gone += [host.resources_id for host in stale if host.resources_id]
            free_resources = []
            for host in stale:
                has_capacity = host.is_up and host.free.cpu_milli + host.revocable_free.cpu_milli > 0
                host.resources_id = self._next("R") if has_capacity else ""
                free_resources += [host.free_part()] if has_capacity else []
            if self._events is not None and gone:
                self._events.resources_withdrawn(gone)
            if self._events is not None and free_resources:
                self._events.resources_announced(free_resources)

    def take_report(self, pod_id: PodId) -> PodReport:
        """Acknowledge the first report of the pod, and return it."""
        with self.lock:
            queue = self.reports[pod_id]
            report = queue.popleft()
            if not queue:
                del self.reports[pod_id]
            elif self._delivers:
                self._deliver(queue[0])
            return report

    def _deliver(self, report: PodReport) -> None:
        if self._events is not None:
            self._events.on_report(report)

    def _next(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _note(self, pod_id: PodId, state: PodState, host: MemoryHost | None, cause: Cause = Cause.PROGRAM) -> None:
        """Report the state until the report is acknowledged."""
        report = self._report(pod_id, state, host, cause, (str(pod_id), self._next("U")))
        queue = self.reports.setdefault(pod_id, deque())
        queue.append(report)
        if self._delivers and len(queue) == 1:
            self._deliver(report)

    def _report(
        self, pod_id: PodId, state: PodState, host: MemoryHost | None, cause: Cause, token: Token = ()
    ) -> PodReport:
        hostname, host_id = (host.hostname, host.host_id) if host else ("", "")
        status = PodStatus(pod_id, state, self._clock_ns(), hostname, host_id, f"pod {state}", cause=cause)
        return PodReport(str(pod_id), state.value, lambda: status, token, is_answer=not token)

    # Events of the cluster, and calls of the driver.

    def running(self) -> dict[PodId, MemoryHost]:
        return {pod_id: host for host in self.hosts.values() for pod_id in host.pods}

    def end(self, pod_id: PodId, state: PodState) -> None:
        with self.lock:
            host = self.running()[pod_id]
            del host.pods[pod_id]
            self._stale.add(host.hostname)
            self._note(pod_id, state, host)
            self._changed()

    def lose(self, hostname: str) -> list[PodId]:
        """Lose the host; return the pods that are lost with it."""
        with self.lock:
            host = self.hosts[Hostname(hostname)]
            lost, host.pods, host.is_up = sorted(host.pods), {}, False
            for pod_id in lost:
                self._note(pod_id, PodState.LOST, host, Cause.HOST_LOST)
            self._stale.add(host.hostname)
            self._changed()
            return lost

    def bring_back(self, hostname: str) -> None:
        with self.lock:
            host = self.hosts[Hostname(hostname)]
            host.goes_ns = 0
            if not host.is_up:
                host.is_up, host.number = True, host.number + 1
            self._stale.add(host.hostname)
            self._changed()

    def announce_end(self, hostname: str) -> None:
        with self.lock:
            host = self.hosts.get(Hostname(hostname))
            if host is not None and not host.goes_ns:
                host.goes_ns = self._clock_ns()
                self._stale.add(host.hostname)
                self._changed()

    def launch(self, claim: Claim, pods: Sequence[PodLaunch]) -> None:
        with self.lock:
            host = self.hosts[claim.hostname]
            is_there = host.is_up and host.resources_id != "" and host.resources_id in claim.resources_ids
            for pod in pods:
                if not is_there or not host.takes(pod):
                    self._note(pod.pod_id, PodState.LOST, None, Cause.RESOURCES_GONE)
                    continue
                assert pod.pod_id not in self.running(), f"{pod.pod_id} runs already"
                host.pods[pod.pod_id] = pod
                if pod.volume is not None:
                    kept = host.volumes.setdefault(pod.volume.volume_id, MemoryVolume(pod.volume.size_mib))
                    kept.runs.append(pod.pod_id)
                self._note(pod.pod_id, PodState.STARTING, host)
                self._note(pod.pod_id, PodState.RUNNING, host)
                if (state := _end_of(pod.template)) is not None:
                    del host.pods[pod.pod_id]
                    self._note(pod.pod_id, state, host)
            self._stale.add(host.hostname)
            self._changed()

    def destroy_volume(self, hostname: str, volume_id: str) -> None:
        """Destroy the volume. Raises OSError while a pod uses it, or its host is lost."""
        with self.lock:
            host = self.hosts[Hostname(hostname)]
            if not host.is_up or volume_id in host.volumes_in_use:
                raise OSError(f"volume {volume_id} is in use, or host {hostname} is lost")
            host.volumes.pop(volume_id, None)
            self._stale.add(host.hostname)
            self._changed()

    def returned(self, resources_ids: Sequence[str]) -> None:
        with self.lock:
            self._stale |= {host.hostname for host in self.hosts.values() if host.resources_id in resources_ids}
            self._changed()

    def kill(self, pod_id: PodId) -> None:
        with self.lock:
            if pod_id in self.running():
                self.end(pod_id, PodState.KILLED)
            else:
                self.answer([pod_id])

    def answer(self, pod_ids: Sequence[PodId]) -> None:
        """Report the states of these pods, except pods with unacknowledged reports."""
        with self.lock:
            running = self.running()
            for pod_id in pod_ids:
                host = running.get(pod_id)
                if host is None and pod_id in self.reports:
                    continue
                state = PodState.RUNNING if host is not None else PodState.LOST
                report = self._report(pod_id, state, host, Cause.NO_ENDING)
                if self._delivers:
                    self._deliver(report)
                else:
                    self.reports.setdefault(pod_id, deque()).append(report)


def _ordinary(pod: PodLaunch) -> Resources:
    """Return the ordinary resources that a pod takes."""
    return ordinary(pod.taken, pod.template.revocable)


def _end_of(template: PodTemplate) -> PodState | None:
    match template.config.command.value.split():
        case ["true"] | ["exit", "0"]:
            return PodState.SUCCEEDED
        case ["false"] | ["exit", _]:
            return PodState.FAILED
    return None
