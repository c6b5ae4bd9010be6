"""A host book with pods on its hosts, and the reserver of hosts for waiting pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from peloton.lifecycle.reservation import waiting_pods
from peloton.model.daemon import Neighbour
from peloton.model.host import HostLease, PlacementBatch, ReadyGang
from peloton.model.host_event import HostEvent
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from peloton.scheduling.placement import place
from services.hostmgr.driver import FreeResources, RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.hosts.host_event_recorder import HostEventRecorder
from services.hostmgr.reserver import Reserver
from tests.unit.hostmgr.test_hosts import LEASE_S

AFTER_S, KEEP_S = 120.0, 1_800.0
NS = 10**9


class World:
    """Hosts with the given cpus. A pod is on a host from its launch until ``end``."""

    def __init__(self, **cpus: float) -> None:
        self.now_s = 0.0
        self.events: list[HostEvent] = []

        def wall_ns() -> int:
            return int(self.now_s * NS)

        recorder = HostEventRecorder("local", self.events.append, wall_ns)
        self.cache = HostCache(LEASE_S, wall_ns=wall_ns, clock=lambda: self.now_s, recorder=recorder)
        self.size = {Hostname(name): Resources.of(cpu, 10_000) for name, cpu in cpus.items()}
        self.pods: dict[PodId, tuple[Hostname, Resources]] = {}
        self.services: set[JobId] = set()
        self.leaving: set[PodId] = set()
        self.ready_s: dict[tuple[JobId, int], float] = {}
        self.reserver = Reserver("local", self, self.cache, AFTER_S, KEEP_S)
        self.register(self.size)
        for name in self.size:
            self.announce(name)

    def register(self, names: Collection[Hostname]) -> None:
        hosts = [RegisteredHost(f"{n}-S", n, "", self.size[n], Resources(), {"hostname": n}) for n in sorted(names)]
        self.cache.set_hosts(hosts)

    def announce(self, name: Hostname) -> None:
        """Replace the announced resources of a host by all that are free there."""
        free = self.size[name] - sum((held for host, held in self.pods.values() if host == name), Resources())
        self.cache.add_resources(
            [FreeResources(f"{name}-O", name, f"{name}-S", free, Resources(), (), {"hostname": name})]
        )

    def neighbours(self, cluster: str, hostnames: Collection[Hostname]) -> Mapping[Hostname, Sequence[Neighbour]]:
        return {
            name: [
                Neighbour(pod_id, 0, 0, held, True, pod_id in self.leaving, pod_id.job_id not in self.services)
                for pod_id, (host, held) in sorted(self.pods.items())
                if host == name
            ]
            for name in hostnames
        }

    def look(self, job: JobId, shapes: Sequence[PodShape], vain_count: int = 0) -> tuple[HostLease, PlacementBatch]:
        """Look for hosts for pods 0, 1, ... of a job, and launch the pods that find one."""
        gangs = []
        for instance, shape in enumerate(shapes):
            if all((pod.job_id, pod.instance_id) != (job, instance) for pod in self.pods):
                since_s = self.ready_s.setdefault((job, instance), self.now_s)
                gangs.append(ReadyGang(shape, ((instance, 1),), waited_s=self.now_s - since_s, vain_count=vain_count))
        waiting = waiting_pods(gangs)
        wanted = {gang.shape: sum(other.shape == gang.shape for other in gangs) for gang in gangs}
        lease = self.cache.acquire(job, list(wanted.items()), self.now_s, waiting=waiting)
        lease = self.reserver.reserve(job, lease, waiting, self.now_s)
        batch = place(job, gangs, lease)
        claims = self.cache.claim(lease.lease_id, [one.hostname for one in batch.placements])
        self.cache.release(lease.lease_id)
        for placement in batch.placements:
            if placement.hostname in claims:
                for pod in placement.pods:
                    self.put(job, pod.instance_id, placement.hostname, shapes[pod.instance_id].resources)
                self.announce(placement.hostname)
        return lease, batch

    def put(self, job: JobId, instance: int, host: str, amounts: Resources) -> PodId:
        pod_id = PodId(job, instance, 1)
        self.pods[pod_id] = (Hostname(host), amounts)
        self.ready_s.pop((job, instance), None)
        self.cache.pods_launched(job, [(instance, 1, host, ())])
        self.announce(Hostname(host))
        return pod_id

    def end(self, pod_id: PodId) -> None:
        host, _ = self.pods.pop(pod_id)
        self.cache.pods_ended([pod_id])
        self.announce(host)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.reserver.review(self.now_s)

    @property
    def reserved(self) -> dict[JobId, str]:
        table = self.cache._state.table
        return {one.job_id: one.hostname for one in table.reservations.all()}
