"""One host: the agent that is registered for it, what Mesos offers of it, and which pods fit there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from peloton.lifecycle.constraints import (
    CLUSTER_LABEL,
    EXCLUSIVE_LABEL,
    HOSTNAME_LABEL,
    accepts,
    conjuncts,
    describe,
    matches,
)
from peloton.model.host import HostState, LeasedHost
from peloton.model.ids import Hostname
from peloton.model.pod import Label, PodShape
from peloton.model.resources import RESOURCE_KINDS, Resources
from services.hostmgr.mesos.resources import Json, Offered, OfferedResources, Ports, needed

NOTHING = Resources()


@dataclass(slots=True)
class RegisteredHost:
    """A registered Mesos agent: totals and address, whatever is on offer."""

    agent_id: str
    hostname: Hostname
    address: str  # ip:port of its own HTTP endpoints
    capacity: Resources
    revocable: Resources
    labels: dict[str, str]
    process: str = "slave(1)"  # its name at the address
    revocable_held: Resources = NOTHING
    state: HostState = HostState.UP
    withdrawn: str = ""  # why it offers nothing: what an operator of Mesos did
    held: Resources = NOTHING  # by pods of whichever framework

    @property
    def free(self) -> Resources:
        return Resources(*(max(have - held, 0) for have, held in zip(self.capacity, self.held, strict=True)))

    @property
    def ip(self) -> str:
        return self.address.rpartition(":")[0]


Kind = tuple[bool, Resources, int, int, int, tuple[tuple[str, str], ...]]
"""All that decides whether a pod fits, whatever host it is: see ``HostRoom.kind``."""


@dataclass(slots=True)
class HostRoom:
    hostname: Hostname
    agent_id: str
    labels: dict[str, str]
    order: int = 0  # of hosts, as they came: the earlier is filled first
    offers: dict[str, tuple[Offered, int]] = field(default_factory=dict)  # -> contents, when the host goes
    lease_id: str = ""
    free: Resources = NOTHING
    revocable: Resources = NOTHING
    ports: Ports = ()
    unavailable_from_ns: int = 0  # as Mesos's schedule of maintenance says; 0 = not
    kind_labels: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        name = (HOSTNAME_LABEL, self.hostname)
        self.kind_labels = tuple(sorted(label for label in self.labels.items() if label != name))

    def add(self, offer_id: str, offered: Offered, unavailability: Json | None) -> None:
        self.offers[offer_id] = (offered, max(int(unavailability["start"]["nanoseconds"]), 1) if unavailability else 0)
        self.recount()

    def recount(self) -> None:
        self.unavailable_from_ns = min((start_ns for _, start_ns in self.offers.values() if start_ns), default=0)
        if len(self.offers) == 1:
            ((only, _),) = self.offers.values()
            self.free, self.revocable, self.ports = only.free, only.revocable, only.ports
        else:
            pot = self.pot()
            self.free, self.revocable, self.ports = pot.total(revocable=False), pot.total(revocable=True), pot.ports()

    @property
    def kind(self) -> Kind:
        amounts = self.free, self.revocable.cpu_milli, self.port_count
        return bool(self.offers), *amounts, self.unavailable_from_ns, self.kind_labels

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

    def pot(self) -> OfferedResources:
        pot = OfferedResources()
        for offered, _ in self.offers.values():
            pot.scalars += offered.scalars
            pot.port_entries += offered.port_entries
        return pot


@dataclass(frozen=True, slots=True)
class Claim:
    """What a launch takes from a leased host: all of its offers."""

    hostname: Hostname
    agent_id: str
    offer_ids: tuple[str, ...]
    pot: OfferedResources


def labels_of(hostname: str, attributes: Iterable[Json], cluster: str = "") -> dict[str, str]:
    """Host labels: ``hostname``, the cluster, and every attribute as text (a set's items are joined by commas)."""
    labels = {"hostname": hostname}
    for attribute in attributes:
        name, kind = attribute["name"], attribute["type"]
        if kind == "TEXT":
            labels[name] = attribute["text"]["value"]
        elif kind == "SCALAR":
            labels[name] = f"{attribute['scalar']['value']:.6f}"
        elif kind == "SET":
            labels[name] = ",".join(attribute["set"].get("item", []))
    if cluster:
        labels[CLUSTER_LABEL] = cluster
    return labels


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


def _offered(host: HostRoom, shape: PodShape) -> Resources:
    """What this kind of pod may use: revocable pods take revocable cpu and ordinary memory, disk and gpu."""
    if not shape.revocable:
        return host.free
    return Resources(host.revocable.cpu_milli, host.free.memory_mib, host.free.disk_mib, host.free.gpu_milli)


def unfit(host: HostRoom, shape: PodShape, pods: PodCounts = ()) -> str:
    """The first rule that keeps the pod off the host; empty: it fits. ``pods``: of the labels that it names."""
    return lack_of_room(host, shape) or broken_rule(host, shape, pods)


def lack_of_room(host: HostRoom, shape: PodShape) -> str:
    if not needed(shape.resources).fits_in(_offered(host, shape)):
        return _lack(_offered(host, shape), shape)  # also without offers: had it more free, they had been asked for
    if not host.offers:
        return "nothing on offer"
    if shape.port_count and host.port_count < shape.port_count:
        return "not enough ports"
    return ""


def broken_rule(host: HostRoom, shape: PodShape, pods: PodCounts = ()) -> str:
    counts = by_key(pods)
    if not accepts(host.labels, shape.constraint, counts):
        broken = [rule for rule in conjuncts(shape.constraint) if not matches(rule, host.labels, counts)]
        return f"{describe(broken[0])} not met" if broken else f"kept for pods that ask for {EXCLUSIVE_LABEL}"
    return ""


def _lack(offered: Resources, shape: PodShape) -> str:
    """The first kind that is short. What is free differs from host to host, so that it is not told: reasons count."""
    kinds = zip(RESOURCE_KINDS, needed(shape.resources), offered, strict=True)
    kind, wanted = next((kind, wanted) for kind, wanted, have in kinds if wanted > have)
    amount = f"{wanted / 1000:g}" if kind in ("cpu", "gpu") else f"{wanted} MiB"
    return f"less than {amount} {'revocable ' if shape.revocable and kind == 'cpu' else ''}{kind} free"


def room_for(host: HostRoom, shape: PodShape) -> int:
    """How many pods of the shape fit; at least one, as it has been found fit."""
    offered = _offered(host, shape)
    rooms = [have // need for have, need in zip(offered, needed(shape.resources), strict=True) if need > 0]
    if shape.port_count:
        rooms.append(host.port_count // shape.port_count)
    return min(rooms, default=1_000_000)
