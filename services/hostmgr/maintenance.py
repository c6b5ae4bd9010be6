"""Maintenance of the hosts of one cluster, and their moves to other host pools. Rows hold the request and the progress,
and a workflow calls the steps. The controller excludes the hosts from leases and launches, asks pods to leave, and has
the driver notify the cluster."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from peloton.errors import Aborted, Unavailable
from peloton.hosts.state import HOSTS_UNKNOWN
from peloton.lifecycle.host_move import move_changes
from peloton.lifecycle.maintenance import (
    Step,
    drain_progress,
    next_step,
    plan_drain,
    turn_text,
    unavailable_max,
    who_leaves,
)
from peloton.lifecycle.sla import Grant
from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId
from peloton.model.maintenance import (
    Blocker,
    DrainProgress,
    HostedPod,
    HostMaintenance,
    MaintenanceAct,
    MaintenanceRequest,
    make_in_service,
)
from peloton.model.pod import TerminationReason
from peloton.model.text import shorten
from peloton.model.update_text import sla_text
from peloton.ports import HostLifecycles, Lifecycles
from services.hostmgr.drain_watch import DrainWatch
from services.hostmgr.driver import HostAddress
from services.hostmgr.hosted_pods import HostedPods
from services.hostmgr.manager import HostManagerCore
from services.storage.hosts.host_pools import HostPoolRecords
from services.storage.hosts.maintenance import Maintenance
from services.storage.pods.host_pods import HostPods
from services.ticks import ticking

log = logging.getLogger(__name__)

TASKS_PERIOD_S = 10.0
WAKE_PERIOD_S = 300.0
"""Seconds between wake-ups of all maintenances with a step to take: Temporal may have lost their workflows."""
NOT_A_HOST = "host is not a Peloton agent"
"""Text of the original, which clients search for; the host name follows."""


class Disrupts(Protocol):
    """The part of storage that evicts pods within the SLA of services."""

    def disrupt(
        self,
        job_id: JobId,
        instance_ids: Iterable[int],
        *,
        reason: TerminationReason,
        message: str,
        checks_sla: bool,
        now_ns: int,
        host: str,
    ) -> Grant: ...


class MaintenanceController:
    """Implements ``ports.MaintenanceController`` in process, and the requests of operators."""

    def __init__(
        self,
        core: HostManagerCore,
        maintenance: Maintenance,
        pods: HostPods,
        disrupts: Disrupts,
        host_pools: HostPoolRecords,
        jobs: Lifecycles,
        hosts: HostLifecycles,
        watch: DrainWatch,
        *,
        cluster: str,
        share: float,
        wake_period_s: float = WAKE_PERIOD_S,
    ) -> None:
        self._core, self._cache = core, core.cache
        self._maintenance, self._pods, self._disrupts = maintenance, pods, disrupts
        self._host_pools = host_pools
        self._jobs, self._hosts, self._watch = jobs, hosts, watch
        self.cluster, self._share = cluster, share
        self._wake_period_s = wake_period_s
        self._hosted_pods = HostedPods(partial(pods.hosted_pods, cluster=cluster))
        self._refreshing = threading.Lock()
        self._wanted = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run_background_tasks, name="host maintenance", daemon=True)
        self._refresh()  # before anything is leased

    def start(self) -> None:
        """Start the controller, after the core. Wakes every maintenance with a step to take: a predecessor may have
        died before its wake-ups."""
        self._thread.start()
        self._wake_all()

    def stop(self) -> None:
        self._stopping = True
        self._wanted.set()
        self._thread.join()

    # Requests of operators.

    def request(self, requests: Sequence[MaintenanceRequest]) -> list[HostMaintenance]:
        """Accept all of the hosts or none; fills in their ip addresses. Raises Aborted, and Unavailable while no host
        is known."""
        known = {host.hostname for host in self._maintenance.all(self.cluster)}
        placed: dict[Hostname, MaintenanceRequest] = {}
        for request in requests:
            host = self._cache.host(request.hostname)
            if host is None and request.hostname not in known:
                if not self.host_count():
                    raise Unavailable(HOSTS_UNKNOWN)
                raise Aborted(f"{NOT_A_HOST}: {shorten(request.hostname)}")
            if host is not None:
                request = replace(request, ip=host.ip, capacity=host.capacity)
            placed[request.hostname] = request
        hosts = self._maintenance.request(self.cluster, list(placed.values()), self.unavailable_max(), time.time_ns())
        self._apply_changes(hosts)
        maintained = self._maintenance.all(self.cluster)
        return [self._with_turn(host, maintained) for host in hosts]

    def steer(self, hostnames: Sequence[str], act: MaintenanceAct) -> list[HostMaintenance]:
        """Apply the act to all of the hosts or none. Raises NotFound, Aborted."""
        asked = list(dict.fromkeys(hostnames))
        changed = self._maintenance.steer(self.cluster, asked, act, self.unavailable_max(), time.time_ns())
        self._apply_changes(changed)
        return [host for host in changed if host.hostname in asked]

    def hosts(self) -> list[HostMaintenance]:
        """Return the hosts in maintenance, in the order of the requests."""
        hosts = self._maintenance.all(self.cluster)
        return [self._with_turn(host, hosts) for host in hosts]

    def follow_moves(self, deadline_s: int) -> None:
        """Start moves of hosts whose desired host pool differs, and cancels moves of hosts where it no longer does."""
        wanted = self._cache.host_pools.moving()
        rows = {host.hostname: host for host in self._maintenance.all(self.cluster)}
        known = {name: host for name in wanted if (host := self._cache.host(name)) is not None}
        bounds = self._cache.host_pools.move_bounds()
        due, now_ns, changed = move_changes(wanted, rows, known, bounds), time.time_ns(), list[HostMaintenance]()
        if due.begin:
            asked = [
                MaintenanceRequest(
                    name,
                    known[name].ip,
                    bounds.get(name, 0),
                    deadline_s,
                    reason="",
                    capacity=known[name].capacity,
                    to_pool=pool,
                )
                for name, pool in due.begin.items()
                if name in known
            ]
            changed += self._maintenance.request(self.cluster, asked, self.unavailable_max(), now_ns)
        if due.stay:
            changed += self._maintenance.cancel_moves(self.cluster, due.stay, self.unavailable_max(), now_ns)
        if due.redirect:
            self._maintenance.redirect(self.cluster, due.redirect, now_ns)
            changed += [rows[name] for name in due.redirect]
        for name, pool in due.arrive.items():
            self._host_pools.arrive(name, pool, now_ns)
        if due.arrive:
            self._core.read_host_pools()
        if changed:
            self._apply_changes(changed)

    def unavailable_max(self) -> int:
        return unavailable_max(self.host_count(), self._share)

    def host_count(self) -> int:
        return self._cache.host_count()

    def hosted_pods(self, hostnames: Sequence[Hostname]) -> Mapping[Hostname, Sequence[HostedPod]]:
        """Return the pods on hosts of the cluster. Raises Aborted for an unknown host, Unavailable while no host is
        known."""
        if not self.host_count():
            raise Unavailable(HOSTS_UNKNOWN)
        known = {host.hostname for host in self._maintenance.all(self.cluster)}
        if unknown := [name for name in hostnames if name not in known and self._cache.host(name) is None]:
            raise Aborted(f"{NOT_A_HOST}: {shorten(unknown[0])}")
        return self._hosted_pods.now_of(hostnames)

    # Steps of the workflow. Each does nothing unless the row has it as the next step, and returns the row after it.

    def cordon(self, hostname: str) -> HostMaintenance:
        """Close the host to launches when its turn comes."""
        host = self._read(hostname)
        if next_step(host) is not Step.CORDON:
            return host
        begun = self._maintenance.admit(self.cluster, self.unavailable_max(), time.time_ns())
        self._apply_changes(begun)
        return next((one for one in begun if one.hostname == hostname), host)

    def drain(self, hostname: str) -> HostMaintenance:
        """Run one round: asks pods to leave that have not been asked; the host is DRAINED once it is empty."""
        host = self._read(hostname)
        if next_step(host) is not Step.DRAIN:
            return host
        hosted_pods = who_leaves(host, self._hosted_pods.of(host.hostname))
        if not hosted_pods and self._is_empty(host):
            now_ns = time.time_ns()
            if self._maintenance.move(self.cluster, hostname, HostState.DRAINING, HostState.DRAINED, now_ns):
                log.info("host %s is drained", hostname)
            self._watch.watch(host.hostname)
            self._refresh()
            return self._read(hostname)
        progress = self._ask_to_leave(host, hosted_pods)
        if progress == host.progress:
            return host
        self._maintenance.note_drain(host, progress, time.time_ns())
        return replace(host, progress=progress)

    def take_down(self, hostname: str) -> HostMaintenance:
        host = self._read(hostname)
        if next_step(host) is not Step.TAKE_DOWN:
            return host
        self._notify_cluster(lambda: self._core.driver.take_down(_address(host)))
        self._maintenance.move(self.cluster, hostname, HostState.DRAINED, HostState.DOWN, time.time_ns())
        log.info("host %s is down for maintenance", hostname)
        self._refresh()
        return self._read(hostname)

    def relabel(self, hostname: str) -> HostMaintenance:
        host = self._read(hostname)
        if next_step(host) is not Step.RELABEL:
            return host
        if self._maintenance.relabel(self.cluster, hostname, time.time_ns()):
            log.info("host %s is in host pool %s", hostname, host.to_pool)
        self._core.read_host_pools()  # before it takes pods
        self._refresh()
        return self._read(hostname)

    def bring_up(self, hostname: str) -> HostMaintenance:
        """End the maintenance or move. The cluster is not notified of moves."""
        host = self._read(hostname)
        if next_step(host) is not Step.BRING_UP:
            return host
        if host.is_move:
            self._core.read_host_pools()
        else:
            self._notify_cluster(lambda: self._core.driver.bring_up(_address(host)))
        begun = self._maintenance.end(self.cluster, hostname, self.unavailable_max(), time.time_ns())
        log.info("%s of host %s ended", "move" if host.is_move else "maintenance", hostname)
        self._watch.watch(host.hostname)
        self._apply_changes(begun)
        return self._read(hostname)

    def _read(self, hostname: str) -> HostMaintenance:
        return self._maintenance.get(self.cluster, hostname) or make_in_service(self.cluster, hostname)

    def _with_turn(self, host: HostMaintenance, hosts: Collection[HostMaintenance]) -> HostMaintenance:
        if not host.waits_for_turn:
            return host
        return replace(host, progress=DrainProgress(waiting_for=turn_text(host, hosts, self.unavailable_max())))

    # Draining.

    def _is_empty(self, host: HostMaintenance) -> bool:
        """Return whether the host is empty; asks storage after the launches that had claimed the host have ended."""
        return self._cache.is_closed(host.hostname) and not who_leaves(
            host, self._hosted_pods.now_of([host.hostname])[host.hostname]
        )

    def _ask_to_leave(self, host: HostMaintenance, hosted_pods: Sequence[HostedPod]) -> DrainProgress:
        plan, now_ns = plan_drain(hosted_pods, host.is_forced), time.time_ns()
        asked: dict[JobId, Collection[int]] = {}
        blockers: list[Blocker] = []
        for job_id in plan.evict:
            asked[job_id] = self._pods.evict_from_host(job_id, host.hostname, now_ns, host.is_move)
        for job_id, instances in plan.disrupt.items():
            grant = self._ask_sla(host, job_id, instances, now_ns)
            asked[job_id] = frozenset(grant.granted)
            if grant.refusal:
                blockers.append(Blocker(job_id, len(grant.refused), sla_text(grant.refusal)))
        for job_id, leaving in asked.items():
            self._hosted_pods.note_leaving(host.hostname, job_id, leaving)
        jobs = {job_id for job_id, leaving in asked.items() if leaving}
        is_leaving = {pod.job_id for pod in hosted_pods if pod.is_leaving}
        self._watch.watch(host.hostname, jobs | is_leaving, [JobId(blocker.job_id) for blocker in blockers])
        self._jobs.jobs_changed(jobs, "the drain of a host asked pods to leave")
        self._core.kill_evicted(jobs)
        return drain_progress(plan, blockers)

    def _ask_sla(self, host: HostMaintenance, job_id: JobId, instances: tuple[int, ...], now_ns: int) -> Grant:
        """Ask the SLA for evictions. A refusal is cached until the job changes."""
        if not host.is_forced and (refusal := self._watch.refusal(job_id)):
            return Grant((), instances, refusal)
        grant = self._disrupts.disrupt(
            job_id,
            instances,
            reason=TerminationReason.KILLED_HOST_MAINTENANCE,
            message=f"{'move' if host.is_move else 'maintenance'} of host {host.hostname}",
            checks_sla=not host.is_forced,
            now_ns=now_ns,
            host=host.hostname,
        )
        if grant.refusal and not grant.granted:
            self._watch.note_refusal(job_id, grant.refusal)
        return grant

    # After a change of rows.

    def _apply_changes(self, hosts: Sequence[HostMaintenance]) -> None:
        self._refresh()
        self._wanted.set()
        self._wake(hosts)

    def _refresh(self) -> None:
        """Read and apply the rows under one lock, so that an older read never replaces a newer one."""
        with self._refreshing:
            self._cache.set_maintained(self._maintenance.all(self.cluster))

    def _wake(self, hosts: Iterable[HostMaintenance]) -> None:
        self._hosts.hosts_changed([host.hostname for host in hosts])

    def _wake_all(self) -> None:
        """Wake all maintenances with a step to take. Hosts that stay DOWN wait for an operator, whose call wakes
        them."""
        self._wake(host for host in self._maintenance.all(self.cluster) if next_step(host) is not Step.STAY)

    # Synchronisation of the cluster with the rows.

    def _notify_cluster(self, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as error:
            raise Unavailable(f"the cluster did not take it: {error}") from error

    def _run_background_tasks(self) -> None:
        woken_s = time.monotonic()
        with ticking("host maintenance", TASKS_PERIOD_S) as loop:
            while not self._stopping:
                self._wanted.wait(TASKS_PERIOD_S)
                loop.tick()
                self._wanted.clear()
                try:
                    if time.monotonic() - woken_s >= self._wake_period_s:
                        self._wake_all()
                        woken_s = time.monotonic()
                    self._announce()
                except Exception as error:
                    if not self._stopping:
                        log.warning("maintenance not announced to the cluster, retrying: %s", error)

    def _announce(self) -> None:
        if self._core.driver.is_connected:
            hosts = self._maintenance.all(self.cluster)
            self._core.driver.drain(
                [_address(h) for h in hosts if h.is_unavailable and h.goal is HostState.DOWN and not h.is_move]
            )


def _address(host: HostMaintenance) -> HostAddress:
    return HostAddress(host.hostname, host.ip)
