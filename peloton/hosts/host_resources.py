"""One host with the resources that the cluster offers on it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from peloton.hosts.announced import NOTHING, FreeResources, Ports
from peloton.lifecycle.constraints import HOSTNAME_LABEL, Labels, label_pairs
from peloton.lifecycle.volumes import volume_label
from peloton.model.host import LeasedHost
from peloton.model.ids import Hostname
from peloton.model.pod import Label
from peloton.model.ranges import ranges_without
from peloton.model.resources import Resources
from peloton.model.volume import HERE
from peloton.scheduling.fit import HostView


@dataclass(slots=True)
class HostResources:
    hostname: Hostname
    host_id: str
    fixed_labels: Labels
    order: int = 0  # order of arrival: earlier hosts are filled first
    free_resources: dict[str, FreeResources] = field(default_factory=dict)
    lease_id: str = ""
    free: Resources = NOTHING
    revocable: Resources = NOTHING
    ports: Ports = ()
    pod_slots: int = 0
    kept: Resources = NOTHING  # reserved for daemons; neither these resources nor their slots are free
    kept_pods: int = 0
    goes_ns: int = 0  # when the cluster takes the host down for maintenance, 0 = never
    volumes: frozenset[str] = frozenset()
    labels: Labels = field(init=False)
    label_pairs: tuple[Label, ...] = field(init=False)
    kind_labels: tuple[Label, ...] = field(init=False)  # without its name

    def __post_init__(self) -> None:
        name = (HOSTNAME_LABEL, self.hostname)
        self.labels = self.fixed_labels
        if self.volumes:
            self.labels = {**self.labels, **{volume_label(one): HERE for one in self.volumes}}
        self.label_pairs = label_pairs(self.labels)
        self.kind_labels = tuple(label for label in self.label_pairs if label != name)

    def recount(self) -> None:
        free_resources = self.free_resources.values()
        if len(free_resources) == 1:
            (only,) = free_resources
            self.free, self.revocable, self.ports, self.goes_ns = only.free, only.revocable, only.ports, only.goes_ns
            self.pod_slots, volumes = only.pod_slots, only.volumes
        else:
            self.free = sum((part.free for part in free_resources), NOTHING)
            self.revocable = sum((part.revocable for part in free_resources), NOTHING)
            self.ports = tuple(sorted(ports for part in free_resources for ports in part.ports))
            self.goes_ns = min((part.goes_ns for part in free_resources if part.goes_ns), default=0)
            self.pod_slots = sum(part.pod_slots for part in free_resources)
            volumes = frozenset().union(*(part.volumes for part in free_resources))
        if volumes != self.volumes:
            self.volumes = volumes
            self.__post_init__()

    @property
    def view(self) -> HostView:
        amounts = self.free, self.revocable.cpu_milli, self.port_count
        return HostView(self.labels, *amounts, bool(self.free_resources), self.pod_slots)

    @property
    def port_count(self) -> int:
        return sum(end - begin + 1 for begin, end in self.ports)

    def without(self, held: Resources, pod_count: int) -> HostResources:
        """Return the host with its free resources and pod slots reduced by these amounts."""
        if not pod_count and held == NOTHING:  # amounts without a slot are reserved where no slot is left
            return self
        return replace(self, free=self.free.without(held), pod_slots=max(self.pod_slots - pod_count, 0))

    @property
    def announced(self) -> Resources:
        """Return all offered resources, including the reserved ones."""
        return sum((part.free for part in self.free_resources.values()), NOTHING)

    def keep(self) -> None:
        """Subtract reserved resources from the free ones."""
        if self.kept_pods:
            self.free = self.free.without(self.kept)
            self.pod_slots = max(self.pod_slots - self.kept_pods, 0)


PodCounts = tuple[tuple[Label, int], ...]
"""Labels of pods on a host -> number of pods with the label."""


def make_leased_host(
    host: HostResources,
    is_closed: bool,
    pods: PodCounts,
    capacity: Resources,
    is_deprioritized: bool = False,
    ports_in_use: Collection[int] = (),
    load_beyond: tuple[int, int] = (0, 0),
) -> LeasedHost:
    """Return the leased host. ``ports_in_use`` are ports that may not be assigned, even if the cluster offers them."""
    revocable = Resources() if is_closed else host.revocable
    return LeasedHost(
        host.hostname,
        host.free,
        revocable,
        ranges_without(host.ports, ports_in_use),
        labels=host.label_pairs,
        pod_labels=pods,
        capacity=capacity,
        is_deprioritized=is_deprioritized,
        pod_slots=host.pod_slots,
        load_beyond=load_beyond,
    )
