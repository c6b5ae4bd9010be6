"""One host: the room that the cluster lets us use there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from peloton.lifecycle.constraints import HOSTNAME_LABEL
from peloton.model.host import LeasedHost
from peloton.model.ids import Hostname
from peloton.model.pod import Label
from peloton.model.resources import Resources
from peloton.scheduling.fit import HostView
from services.hostmgr.driver import NOTHING, Ports, Room

Kind = tuple[bool, Resources, int, int, bool, int, tuple[tuple[str, str], ...]]
"""All that decides whether a pod fits, except the host's name: see ``HostRoom.kind``."""


@dataclass(slots=True)
class HostRoom:
    hostname: Hostname
    host_id: str
    labels: dict[str, str]
    order: int = 0  # in which hosts came: earlier ones are filled first
    rooms: dict[str, Room] = field(default_factory=dict)
    lease_id: str = ""
    free: Resources = NOTHING
    revocable: Resources = NOTHING
    ports: Ports = ()
    pod_slots: int = 0
    goes_ns: int = 0  # when the cluster takes the host away for maintenance; 0 = not
    kind_labels: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        name = (HOSTNAME_LABEL, self.hostname)
        self.kind_labels = tuple(sorted(label for label in self.labels.items() if label != name))

    def recount(self) -> None:
        rooms = self.rooms.values()
        if len(rooms) == 1:
            (only,) = rooms
            self.free, self.revocable, self.ports, self.goes_ns = only.free, only.revocable, only.ports, only.goes_ns
            self.pod_slots = only.pod_slots
        else:
            self.free = sum((room.free for room in rooms), NOTHING)
            self.revocable = sum((room.revocable for room in rooms), NOTHING)
            self.ports = tuple(sorted(ports for room in rooms for ports in room.ports))
            self.goes_ns = min((room.goes_ns for room in rooms if room.goes_ns), default=0)
            self.pod_slots = sum(room.pod_slots for room in rooms)

    @property
    def kind(self) -> Kind:
        """Each pod takes one slot, so that their number decides nothing as long as there is one."""
        amounts = self.free, self.revocable.cpu_milli, self.port_count, self.pod_slots > 0
        return bool(self.rooms), *amounts, self.goes_ns, self.kind_labels

    @property
    def view(self) -> HostView:
        return self._view(self.labels, self.pod_slots)

    @property
    def view_of_kind(self) -> HostView:
        """Without the name, as all hosts of its kind look; the least that they have in slots."""
        return self._view(dict(self.kind_labels), min(self.pod_slots, 1))

    def _view(self, labels: dict[str, str], pod_slots: int) -> HostView:
        return HostView(labels, self.free, self.revocable.cpu_milli, self.port_count, bool(self.rooms), pod_slots)

    @property
    def port_count(self) -> int:
        return sum(end - begin + 1 for begin, end in self.ports)

    def without(self, held: Resources, pod_count: int) -> HostRoom:
        """The host with this much less free room, for so many pods."""
        if not pod_count:
            return self
        free = Resources(*(max(have - kept, 0) for have, kept in zip(self.free, held, strict=True)))
        return replace(self, free=free, pod_slots=max(self.pod_slots - pod_count, 0))


PodCounts = tuple[tuple[Label, int], ...]
"""Labels of pods on a host -> how many pods carry them."""


def leased_host(
    host: HostRoom, is_closed: bool, pods: PodCounts, capacity: Resources, is_shunned: bool = False
) -> LeasedHost:
    revocable = Resources() if is_closed else host.revocable
    labels = tuple(sorted(host.labels.items()))
    amounts = host.free, revocable, host.ports
    return LeasedHost(host.hostname, *amounts, labels, pods, capacity, is_shunned, host.pod_slots)
