"""Invariants of pods that return to their hosts: resources reserved for them are there, and they are placed nowhere
else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from peloton.api.convert import KILL_GRACE_DEFAULT_S
from peloton.hosts.resource_holds import HOLD_S
from peloton.model.host import Placement
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodRecord, PodState
from services.storage.storage import Storage
from tests.doubles.hostmgr.cluster import MemoryCluster
from tests.simulation.clock import Clock
from tests.simulation.services import Service


class Homes:
    def __init__(self, storage: Storage, cluster: MemoryCluster, clock: Clock) -> None:
        self._storage, self._cluster, self._clock = storage, cluster, clock
        self._homes: dict[tuple[JobId, int], tuple[str, float]] = {}  # -> host, until when

    def clear(self) -> None:
        """Forget all reservations: another host manager has none."""
        self._homes.clear()

    def note(self, pods: Iterable[PodRecord]) -> None:
        """Record the running pods as they were before superseded ones were asked to end. Resources of other pods are
        already released.
        """
        until_s = self._clock.monotonic() + KILL_GRACE_DEFAULT_S + HOLD_S
        for pod in pods:
            is_told = pod.state is not PodState.KILLING
            if is_told and pod.desired_host and pod.desired_run_id > pod.run_id:
                self._homes[pod.job_id, pod.instance_id] = pod.desired_host, until_s

    def check_placement(self, job_id: JobId, placements: Iterable[Placement]) -> None:
        for placement in placements:
            for placed in placement.pods:
                pod = self._storage.pods.get(job_id, placed.instance_id)
                host, _ = self._homes.pop((job_id, placed.instance_id), ("", 0.0))
                if host and pod is not None and pod.desired_host == host:
                    assert placement.hostname == host, f"{pod} was to come back and goes to {placement.hostname}"

    def check_free_resources(self, services: Iterable[Service], away_hosts: Collection[str]) -> None:
        """Check that reserved resources are still free, whatever was launched meanwhile."""
        running = {(pod_id.job_id, pod_id.instance_id) for pod_id in self._cluster.running()}
        for service in services:
            mine = [instance for job_id, instance in self._homes if job_id == service.job_id]
            still = {pod.instance_id for pod in self._storage.host_pods.coming_back(service.job_id, mine)}
            for instance in mine:
                host, until_s = self._homes[service.job_id, instance]
                machine = self._cluster.hosts[Hostname(host)]
                is_over = instance not in still or until_s < self._clock.monotonic()
                if is_over or host in away_hosts or not machine.is_up:
                    del self._homes[service.job_id, instance]
                elif (service.job_id, instance) not in running:
                    free_cpu = machine.free.cpu_milli
                    assert free_cpu >= service.cpu * 1000, (
                        f"{free_cpu} are left on {host} for {service.job_id}-{instance}"
                    )
