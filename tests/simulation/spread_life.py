"""Life of services that spread over racks under a hard bound, which every launch keeps after any failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peloton.model.host import HostState, LaunchResult, Placement
from peloton.model.ids import JobId, PodId
from tests.simulation.service_life import HOSTS, ServiceLife
from tests.simulation.services import Service

RACKS = dict(zip(HOSTS, "aaaabbcc", strict=True))
MAX_SKEW = 1


class SpreadLife(ServiceLife):
    def __init__(self, seed: int, template: Path, folder: Path) -> None:
        super().__init__(seed, template, folder)
        for name, host in self.cluster.hosts.items():
            host.labels = {"rack": RACKS[name]}
        self.died = self.spread = 0  # host managers in the middle of a launch, and pods that were bound

    def _service(self, count: int, cpu: float, per_host: int = 0, in_place: bool = False, **sla: Any) -> Service:
        service = super()._service(count, cpu, per_host, in_place, **sla)
        service.max_skew = MAX_SKEW
        return service

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        self._check_skew(job_id, placements)
        if self.random.random() > 0.1:
            return super().launch(job_id, lease_id, placements)
        self._break(PodId(job_id, pod.instance_id, pod.run_id) for placed in placements for pod in placed.pods)
        self.died += 1
        return self._launch_and_die(job_id, lease_id, placements)

    def _check_skew(self, job_id: JobId, placements: Sequence[Placement]) -> None:
        """Check that no rack with an available host exceeds the lowest one by more than the bound. Pods that return to
        their hosts count, and may exceed it; pods on unavailable hosts do not count.
        """
        hosts = {host.hostname: host.state for host in self.core.cache.hosts()}
        places = {pod.instance_id: placement.hostname for placement in placements for pod in placement.pods}
        pods = Counter[str]()
        for host, count in self.storage.pods.preferred_hosts(job_id, "local", list(places)).items():
            if host in hosts:
                pods[RACKS[host]] += count
        bound: set[str] = set()
        for instance, host in places.items():
            pods[RACKS[host]] += 1
            pod = self.storage.pods.get(job_id, instance)
            assert pod is not None
            if pod.desired_host != host:
                bound.add(RACKS[host])
                self.spread += 1
        lowest = min(pods[RACKS[host]] for host, state in hosts.items() if state is HostState.UP)
        above = {rack: pods[rack] for rack in sorted(bound) if pods[rack] > lowest + MAX_SKEW}
        assert not above, f"{above} pods of {job_id} where another rack has {lowest}"
