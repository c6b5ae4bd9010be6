"""A driver on a cluster, the events that it reports, and operations on the cluster without the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol, TypeVar

import pytest
from google.protobuf.json_format import ParseDict

from peloton.api import convert
from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v0.task.task_pb2 import TaskConfig
from peloton.model.ids import Hostname, JobId, PodId, new_job_id
from peloton.model.pod import PodShape, PodState
from peloton.model.resources import Resources, compute_needed
from peloton.model.secret import Secret
from services.hostmgr.driver import (
    CapacityRequest,
    Claim,
    ClusterDriver,
    FreeResources,
    HostAddress,
    HostLaunch,
    PodLaunch,
    PodOnHost,
    PodReport,
    PodTemplate,
    RegisteredHost,
    Token,
)

T = TypeVar("T")

TIMEOUT_S = 180.0
FPGA = "example.com/fpga"
EXTENDED = ((FPGA, 2),)
"""The extended resources of each host of an emulated cluster."""
LONG = "sleep 300"
END_STATES = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.KILLED, PodState.LOST})


class RecordedEvents:
    """Implements ``DriverEvents``: keeps the events of a driver, and acknowledges them unless it is ``deaf``."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.sessions = 0
        self.is_connected = False
        self.hosts: dict[str, RegisteredHost] = {}
        self.free_resources: dict[str, FreeResources] = {}
        self.reports: list[PodReport] = []
        self.refusals: list[str] = []
        self.deaf = self.is_idle = False
        self.acknowledge: Callable[[Sequence[Token]], None] = lambda tokens: None

    def on_connect(self) -> None:
        with self.changed:
            self.sessions += 1
            self.is_connected = True
            self.changed.notify_all()

    def on_disconnect(self) -> None:
        with self.changed:
            self.free_resources.clear()
            self.is_connected = False
            self.changed.notify_all()

    def hosts_registered(self, hosts: Sequence[RegisteredHost]) -> None:
        with self.changed:
            self.hosts = {host.hostname: host for host in hosts}
            self.changed.notify_all()

    def resources_announced(self, free_resources: Sequence[FreeResources]) -> None:
        with self.changed:
            self.free_resources |= {announced.resources_id: announced for announced in free_resources}
            self.changed.notify_all()

    def resources_withdrawn(self, resources_ids: Sequence[str]) -> None:
        with self.changed:
            for resources_id in resources_ids:
                self.free_resources.pop(resources_id, None)
            self.changed.notify_all()

    def idle_resources(self, until_s: float, kept: int, limit: int) -> list[str]:
        """Up to ``limit`` idle offers, once the cluster is marked idle."""
        with self.changed:
            idle = list(self.free_resources)[:limit] if self.is_idle else []
            for resources_id in idle:
                del self.free_resources[resources_id]
            self.changed.notify_all()
            return idle

    def on_report(self, report: PodReport) -> None:
        with self.changed:
            self.reports.append(report)
            self.changed.notify_all()

    def host_returned(self) -> None:
        """Ignore returned hosts: there is nothing to end here."""

    def on_refuse(self, why: str) -> None:
        self.refusals.append(why)


class Cluster(Protocol):
    """A kind of cluster that a fixture provides, with operations on it without its driver."""

    can_lose_hosts: bool  # and take them down for maintenance
    can_fail_over: bool
    runs_processes: bool  # else a command is how long the pod runs
    hosts_answer: bool  # when they are asked what is on them
    keeps_output_of_killed: bool  # else it goes with the pod

    def driver(self) -> ClusterDriver:
        """Another driver, with the identity of the earlier ones."""
        ...

    def measure_slack(self) -> bool:
        """Measure slack at once, if slack is the usage gap of ordinary pods; else hosts have a fixed amount."""
        ...

    def lose_host(self, hostname: str) -> None: ...
    def bring_back_host(self, hostname: str) -> None: ...
    def fail_over(self) -> None: ...
    def tear_down(self) -> None: ...


class Lab:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._instances = count()
        self._drivers: list[ClusterDriver] = []
        config = JobConfig(name="driver", instanceCount=100)
        self._job = convert.new_job_record(new_job_id(), config, 1)
        self.start()

    # Lifecycle.

    def start(self) -> None:
        """A driver, another one if there was one."""
        self.events = RecordedEvents()
        self.driver = self.cluster.driver()
        self._drivers.append(self.driver)
        self.events.acknowledge = self._acknowledge
        self.driver.start(self.events)
        self.wait(
            lambda: self.driver.is_connected and self.events.free_resources and self.events.hosts,
            "free resources and hosts",
        )
        self.run_periodic()
        self.wait(lambda: not self.driver.unready, "a driver that is ready")

    def stop(self) -> None:
        """Stop the driver, and does not stop it again at the end: a session stops once."""
        self._drivers.remove(self.driver)
        self.driver.stop()

    def close(self) -> None:
        for driver in self._drivers:
            driver.stop()

    def run_periodic(self) -> None:
        self.driver.run_periodic()

    def _acknowledge(self, tokens: Sequence[Token]) -> None:
        self.driver.acknowledge(tokens)

    def wait(self, condition: Callable[..., T | None], what: str) -> T:
        """The first true value of the condition. Meanwhile reports are acknowledged, and the driver does its chores."""
        deadline_s = time.monotonic() + TIMEOUT_S
        seen = tended_s = 0.0
        while not (value := condition()):
            assert time.monotonic() < deadline_s, f"still waiting for {what}: {self.events.reports[-5:]}"
            reports = self.events.reports[int(seen) :]
            seen += len(reports)
            if not self.events.deaf and (tokens := list(dict.fromkeys(r.token for r in reports if r.token))):
                self._quietly(lambda: self._acknowledge(tokens))
            if time.monotonic() - tended_s > 0.2 and self.driver.is_connected:
                tended_s = time.monotonic()
                self._quietly(self.run_periodic)
            with self.events.changed:
                self.events.changed.wait(0.01)
        return value

    def _quietly(self, act: Callable[[], None]) -> None:
        """Call a driver whose session may end meanwhile: reports that were not acknowledged come again."""
        try:
            act()
        except OSError:
            return

    # Offers.

    def host_with_free(self, hostname: str = "", **at_least: float) -> str:
        """An offer of a host with at least these resources."""
        found = lambda: self._host_with(hostname, at_least.get("cpu", 0.1))  # noqa: E731
        return str(self.wait(found, f"free resources on {hostname or 'any host'}"))

    def claim_of(self, hostname: str = "", **at_least: float) -> Claim:
        """A claim of all offers of a host with at least these resources, made when they are found, since the end of a
        session removes offers."""

        def claim_some() -> Claim | None:
            with self.events.changed:
                found = self._host_with(hostname, at_least.get("cpu", 0.1))
                return self.claim(found) if found else None

        claim: Claim = self.wait(claim_some, f"free resources on {hostname or 'any host'}")
        return claim

    def _host_with(self, hostname: str, cpu: float) -> str:
        names = [hostname] if hostname else sorted(self.events.hosts)
        return next((name for name in names if Resources.of(cpu, 32).fits_in(self.free(name))), "")

    def free_resources(self, hostname: str) -> list[FreeResources]:
        with self.events.changed:
            return [announced for announced in self.events.free_resources.values() if announced.hostname == hostname]

    def lender(self) -> str:
        """A host with more than one revocable cpu."""
        is_measured = self.cluster.measure_slack()
        if is_measured:
            self.running(cpu=2)
        elif not any(announced.revocable.cpu_milli for announced in self.events.free_resources.values()):
            pytest.skip("no host of this cluster has revocable resources")
        at_least = 1_610 if is_measured else 1_000  # above four fifths of what is held an estimate is at rest

        def find_host() -> str:
            self.cluster.measure_slack()
            slack = {
                name: sum(announced.revocable.cpu_milli for announced in self.free_resources(name))
                for name in self.events.hosts
            }
            return next((name for name, milli in slack.items() if milli >= at_least), "")

        return str(self.wait(find_host, "revocable resources"))

    def free(self, hostname: str) -> Resources:
        return sum((announced.free for announced in self.free_resources(hostname)), Resources())

    def claim(self, hostname: str) -> Claim:
        with self.events.changed:
            free_resources = self.free_resources(hostname)
            assert free_resources, f"no free resources on {hostname}"
            for announced in free_resources:
                del self.events.free_resources[announced.resources_id]
        return Claim(
            Hostname(hostname), free_resources[0].host_id, tuple(announced.resources_id for announced in free_resources)
        )

    def request_capacity(self) -> None:
        """Request offers as a lease that found none does."""
        shape = PodShape(Resources.of(0.1))
        self.driver.request_capacity(
            CapacityRequest((self._job.job_id, False), (shape,), frozenset({shape}), False, bool)
        )

    # Pods.

    def template(
        self, command: str = LONG, cpu: float = 0.5, secrets: Sequence[Secret] = (), **task: Any
    ) -> PodTemplate:
        resource = {"cpuLimit": cpu, "memLimitMb": 32}
        config = ParseDict({"command": {"value": command, "shell": True}, "resource": resource, **task}, TaskConfig())
        return PodTemplate(self._job, "/driver", config, secrets)

    def pod(self, template: PodTemplate, ports: tuple[int, ...] = ()) -> PodLaunch:
        return PodLaunch(PodId(self._job.job_id, next(self._instances), 1), template, ports)

    def launch(self, command: str = LONG, hostname: str = "", **task: Any) -> PodOnHost:
        """Launch one pod; on any host with offers, if none is named."""
        pod = self.pod(self.template(command, **task))
        while True:
            sessions = self.events.sessions
            claim = self.claim_of(hostname, cpu=compute_needed(pod.template.resources).cpu_milli / 1000)
            failed = self.driver.launch([HostLaunch(claim, [pod])])
            if not failed:
                return PodOnHost(pod.pod_id, claim.hostname, claim.host_id)
            void = f"a session that made the room of the one before void: {failed}"
            self.wait(lambda sessions=sessions: self.events.sessions > sessions, void)

    def running(self, command: str = LONG, hostname: str = "", **task: Any) -> PodOnHost:
        pod = self.launch(command, hostname, **task)
        self.wait_for(pod, PodState.RUNNING)
        return pod

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        """Reconcile in a session that lasts for it: after a failover one may follow another."""

        def has_reconciled() -> bool:
            try:
                self.driver.reconcile(pods)
            except OSError:
                return False
            return True

        self.wait(has_reconciled, "a session in which to ask")

    def unknown(self) -> PodOnHost:
        """A pod that was never launched, on a host that is there."""
        hostname = min(self.events.hosts)
        return PodOnHost(PodId(JobId(new_job_id()), 0, 1), hostname, self.events.hosts[hostname].host_id)

    def reports_of(self, pod: PodOnHost) -> list[PodReport]:
        return [report for report in self.events.reports if report.pod == str(pod.pod_id)]

    def states(self, pod: PodOnHost) -> list[PodState]:
        """States of the pod as reported, without repetitions and answers."""
        found: list[PodState] = []
        for report in self.reports_of(pod):
            if report.status is not None and not report.is_answer and report.status.state not in found[-1:]:
                found.append(report.status.state)
        return found

    def wait_for(self, pod: PodOnHost, *states: PodState) -> PodReport:
        """A report of one of these states."""

        def find_report() -> PodReport | None:
            return next((r for r in self.reports_of(pod) if r.status is not None and r.status.state in states), None)

        report: PodReport = self.wait(find_report, f"{pod.pod_id} in {states}")
        return report

    def wait_end(self, pod: PodOnHost) -> PodState:
        report = self.wait_for(pod, *END_STATES)
        assert report.status is not None
        return report.status.state

    def has_given_back(self, pod: PodOnHost, failed: Collection[tuple[PodId, str]]) -> bool:
        """The launch said so, or a report does."""
        return pod.pod_id in dict(failed) or self.wait_end(pod) is PodState.LOST

    def address(self, hostname: str) -> HostAddress:
        return HostAddress(Hostname(hostname), self.events.hosts[hostname].ip)


@contextmanager
def lab_on(cluster: Cluster, make: Callable[[Cluster], Lab] = Lab) -> Iterator[Lab]:
    """The pods are gone from the cluster before the driver stops."""
    made: Lab | None = None
    try:
        made = make(cluster)
        yield made
    finally:
        cluster.tear_down()
        if made is not None:
            made.close()
