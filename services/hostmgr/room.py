"""One host: the room that the cluster lets us use there, and which pods fit in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from peloton.lifecycle.constraints import (
    EXCLUSIVE_LABEL,
    HOSTNAME_LABEL,
    accepts,
    conjuncts,
    describe,
    matches,
)
from peloton.model.host import LeasedHost
from peloton.model.ids import Hostname
from peloton.model.pod import Label, PodShape
from peloton.model.resources import RESOURCE_KINDS, Resources
from services.hostmgr.driver import NOTHING, Ports, Room, needed

Kind = tuple[bool, Resources, int, int, int, tuple[tuple[str, str], ...]]
"""All that decides whether a pod fits, whatever host it is: see ``HostRoom.kind``."""


@dataclass(slots=True)
class HostRoom:
    hostname: Hostname
    host_id: str
    labels: dict[str, str]
    order: int = 0  # of hosts, as they came: the earlier is filled first
    rooms: dict[str, Room] = field(default_factory=dict)
    lease_id: str = ""
    free: Resources = NOTHING
    revocable: Resources = NOTHING
    ports: Ports = ()
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
        else:
            self.free = sum((room.free for room in rooms), NOTHING)
            self.revocable = sum((room.revocable for room in rooms), NOTHING)
            self.ports = tuple(sorted(ports for room in rooms for ports in room.ports))
            self.goes_ns = min((room.goes_ns for room in rooms if room.goes_ns), default=0)

    @property
    def kind(self) -> Kind:
        amounts = self.free, self.revocable.cpu_milli, self.port_count
        return bool(self.rooms), *amounts, self.goes_ns, self.kind_labels

    def nameless(self) -> HostRoom:
        """As those hosts of its kind look whose name nobody asks for."""
        return replace(self, labels=dict(self.kind_labels))

    @property
    def port_count(self) -> int:
        return sum(end - begin + 1 for begin, end in self.ports)

    def without(self, held: Resources) -> HostRoom:
        """As it looks when this much of it is not to be had."""
        if not any(held):
            return self
        free = Resources(*(max(have - kept, 0) for have, kept in zip(self.free, held, strict=True)))
        return replace(self, free=free)


PodCounts = tuple[tuple[Label, int], ...]
"""Labels of pods on a host -> how many pods carry them."""


def by_key(pods: PodCounts) -> dict[str, dict[str, int]]:
    """In the form that rules of constraints want."""
    return {key: {v: n for (k, v), n in pods if k == key} for (key, _), _ in pods}


def leased_host(
    host: HostRoom, is_closed: bool, pods: PodCounts, capacity: Resources, is_shunned: bool = False
) -> LeasedHost:
    revocable = Resources() if is_closed else host.revocable
    labels = tuple(sorted(host.labels.items()))
    return LeasedHost(host.hostname, host.free, revocable, host.ports, labels, pods, capacity, is_shunned)


def _usable(host: HostRoom, shape: PodShape) -> Resources:
    """What this kind of pod may use: revocable pods take revocable cpu and ordinary memory, disk and gpu."""
    if not shape.revocable:
        return host.free
    return Resources(host.revocable.cpu_milli, host.free.memory_mib, host.free.disk_mib, host.free.gpu_milli)


def unfit(host: HostRoom, shape: PodShape, pods: PodCounts = ()) -> str:
    """The first rule that keeps the pod off the host; empty: it fits. ``pods``: of the labels that it names."""
    return lack_of_room(host, shape) or broken_rule(host, shape, pods)


def lack_of_room(host: HostRoom, shape: PodShape) -> str:
    if not needed(shape.resources).fits_in(_usable(host, shape)):
        return _lack(_usable(host, shape), shape)
    if shape.port_count and host.port_count < shape.port_count:
        return "not enough ports"
    return ""


def broken_rule(host: HostRoom, shape: PodShape, pods: PodCounts = ()) -> str:
    counts = by_key(pods)
    if not accepts(host.labels, shape.constraint, counts):
        broken = [rule for rule in conjuncts(shape.constraint) if not matches(rule, host.labels, counts)]
        return f"{describe(broken[0])} not met" if broken else f"kept for pods that ask for {EXCLUSIVE_LABEL}"
    return ""


def _lack(usable: Resources, shape: PodShape) -> str:
    """The first kind that is short. What is free differs from host to host, so that it is not told: reasons count."""
    kinds = zip(RESOURCE_KINDS, needed(shape.resources), usable, strict=True)
    kind, wanted = next((kind, wanted) for kind, wanted, have in kinds if wanted > have)
    amount = f"{wanted / 1000:g}" if kind in ("cpu", "gpu") else f"{wanted} MiB"
    return f"less than {amount} {'revocable ' if shape.revocable and kind == 'cpu' else ''}{kind} free"


def room_for(host: HostRoom, shape: PodShape) -> int:
    """How many pods of the shape fit; at least one, as it has been found fit."""
    usable = _usable(host, shape)
    rooms = [have // need for have, need in zip(usable, needed(shape.resources), strict=True) if need > 0]
    if shape.port_count:
        rooms.append(host.port_count // shape.port_count)
    return min(rooms, default=1_000_000)
