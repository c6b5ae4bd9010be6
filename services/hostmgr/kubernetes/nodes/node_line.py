"""A node with its pods: their resources, the free resources, and the node as a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from peloton.lifecycle.volumes import volume_label
from peloton.model.resources import Resources
from peloton.model.volume import HERE
from services.hostmgr.driver import NOTHING, FreeResources, RegisteredHost
from services.hostmgr.kubernetes.nodes import node_volumes
from services.hostmgr.kubernetes.nodes.node_volumes import NodeVolume
from services.hostmgr.kubernetes.nodes.nodes import DOWN, Node


class Demand(NamedTuple):
    """Resources that a pod takes of its node."""

    held: Resources
    slack_milli: int = 0  # of revocable cpu
    ports: tuple[int, ...] = ()
    is_foreign: bool = False  # the pod is external
    volume: str = ""  # id of its volume


def less(have: Resources, held: Resources) -> Resources:
    """Return the difference, at least 0: external pods may exceed a node's resources."""
    return have.without(held)


@dataclass(slots=True)
class Line:
    """A node with its pods."""

    node: Node | None = None  # None: the node of these pods is unknown or not selected
    demands: dict[str, Demand] = field(default_factory=dict)
    held: Resources = NOTHING
    foreign: Resources = NOTHING  # the external part of held
    slack_held_milli: int = 0
    slack_milli: int | None = None  # measured; None: unknown
    announced: FreeResources | None = None  # the open offer
    former: list[str] = field(default_factory=list)  # earlier offers, since which only pods have changed
    goes_ns: int = 0
    host: RegisteredHost | None = None  # as listed last, until a change
    is_lost: bool = False
    being_made: dict[str, int] = field(default_factory=dict)  # volumes that the node does not show yet: id -> MiB

    def count(self, demand: Demand, sign: int) -> None:
        self.host = None
        self.held += demand.held * sign
        self.slack_held_milli += demand.slack_milli * sign
        if demand.is_foreign:
            self.foreign += demand.held * sign

    @property
    def free(self) -> Resources:
        assert self.node is not None
        return less(self.node.capacity, self.held + self.kept)

    @property
    def volumes(self) -> Mapping[str, NodeVolume]:
        return self.node.volumes if self.node is not None else {}

    @property
    def kept(self) -> Resources:
        """Return the disk of volumes."""
        return node_volumes.disk(self.volumes, self.being_made)

    def user_of(self, volume_id: str) -> str:
        """Return the pod that uses the volume, or ""."""
        return next((pod for pod, demand in self.demands.items() if demand.volume == volume_id), "")

    @property
    def slack_total_milli(self) -> int:
        """Return the total slack. While it is unknown, revocable pods stay and no more are placed."""
        return self.slack_held_milli if self.slack_milli is None else self.slack_milli

    @property
    def slack_free_milli(self) -> int:
        return max(self.slack_total_milli - self.slack_held_milli, 0)

    @property
    def slots(self) -> int:
        """Return the number of pods that the node still accepts."""
        return max(self.node.pods_max - len(self.demands), 0) if self.node is not None else 0

    @property
    def is_open(self) -> bool:
        node = self.node
        return node is not None and node.is_ready and node.maintenance != DOWN and not node.withdrawn


def host_of(line: Line) -> RegisteredHost:
    node = line.node
    assert node is not None
    if line.host is None:
        slack, slack_held = Resources(cpu_milli=line.slack_total_milli), Resources(cpu_milli=line.slack_held_milli)
        capacity = less(node.capacity, line.foreign)  # pools share the part that external pods leave
        managed = line.held - line.foreign
        volumes = node_volumes.find_usable(node.volumes)
        labels = node.labels | {volume_label(one): HERE for one in sorted(volumes)} if volumes else node.labels
        amounts = capacity, slack, labels, slack_held
        line.host = RegisteredHost(
            *(node.uid, node.name, node.ip, *amounts),
            withdrawn=node.withdrawn,
            held=managed + line.kept,
            held_by_others=node.capacity - capacity,
            volumes=volumes,
            volumes_begun=frozenset(node.volumes) - volumes,
            volumes_mib=line.kept.disk_mib,
        )
    return line.host
