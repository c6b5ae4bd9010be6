"""Free resources of nodes: allocatable, less the requests of all live pods, less unseen launches.

Other users may create pods at any time: the ledger has the free resources by the last events. A node has one offer with
an id, which is consumed whole by a launch and replaced when a change concerns it. A launch that names a replaced offer
gets the resources free at that time, unless the node itself has changed. The module has no threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from peloton.model.ranges import ranges_without
from peloton.model.resources import Resources
from peloton.model.volume import VolumeRecord
from services.hostmgr.driver import Claim, FreeResources, RegisteredHost
from services.hostmgr.kubernetes.nodes import node_volumes
from services.hostmgr.kubernetes.nodes.node_line import Demand, Line, host_of
from services.hostmgr.kubernetes.nodes.node_volumes import NodeVolume
from services.hostmgr.kubernetes.nodes.nodes import DOWN, Node, Taints

NO_VOLUMES: Mapping[str, VolumeRecord] = MappingProxyType({})
FORMER_MAX = 8
"""Limit of replaced offers of a node that a launch may still name."""


class ResourceChanges(NamedTuple):
    withdrawn: list[str]
    announced: list[FreeResources]


class Ledger:
    """The state of all nodes. Not thread-safe: its owner has a lock."""

    def __init__(self, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self._lines: dict[str, Line] = {}
        self._node_of: dict[str, str] = {}  # pod -> node
        self._expected: set[str] = set()  # pods that are launched, and not seen yet
        self._by_resources: dict[str, str] = {}  # offer that a launch may use -> node
        self._dirty: set[str] = set()
        self._announced_count = 0
        self.nodes_version = 0  # changes with every node
        self._session = f"{clock_ns():x}"  # distinguishes offers from the ones of earlier processes

    # Events of the watches.

    def put_node(self, node: Node) -> None:
        line = self._lines.setdefault(node.name, Line())
        if line.node == node:
            return
        if line.node is None or line.node.uid != node.uid:
            line.slack_milli, line.is_lost = None, False
        if line.node is None or replace(line.node, volumes=node.volumes) != node:
            self._end_former(line)
        line.node, line.host = node, None
        for volume_id in line.being_made.keys() & node.volumes.keys():
            del line.being_made[volume_id]
        self.nodes_version += 1
        if node.is_ready:
            line.is_lost = False
        line.goes_ns = (line.goes_ns or self._clock_ns()) if node.maintenance else 0
        self._dirty.add(node.name)

    def drop_node(self, name: str) -> None:
        if (line := self._lines.get(name)) is not None and line.node is not None:
            self.nodes_version += 1
            line.node, line.host, line.slack_milli, line.goes_ns, line.is_lost = None, None, None, 0, False
            self._end_former(line)
            line.being_made.clear()
            self._note_change(name)

    def lose_node(self, name: str) -> None:
        """Mark a node as lost after it was unreachable for too long: it is no host until it is ready."""
        if (line := self._lines.get(name)) is not None and not line.is_lost:
            line.is_lost = True
            self.nodes_version += 1

    def set_slack(self, name: str, milli: int | None) -> None:
        """Set the measured cpu of the node that its ordinary pods do not use; None: unknown."""
        line = self._lines.get(name)
        if line is not None and line.node is not None and line.slack_milli != milli:
            line.slack_milli, line.host = milli, None
            self._dirty.add(name)

    def put_pod(self, pod: str, node: str, demand: Demand) -> None:
        """Record a live pod of any owner; ``pod`` is its namespace and name."""
        self._expected.discard(pod)
        line = self._lines.get(node)
        if line is not None and line.demands.get(pod) == demand:
            return
        self.drop_pod(pod)
        self._add(pod, node, demand)

    def expect(self, pod: str, node: str, demand: Demand) -> None:
        """Reserve resources on the node for a pod that is not bound yet, unless the pod is known already."""
        if pod not in self._node_of:
            self._add(pod, node, demand)
            self._expected.add(pod)

    def drop_pod(self, pod: str) -> None:
        """Remove a pod that has ended, is gone, or was certainly not created."""
        self._expected.discard(pod)
        name = self._node_of.pop(pod, None)
        if name is None:
            return
        line = self._lines[name]
        line.count(line.demands.pop(pod), -1)
        self._note_change(name)

    def _add(self, pod: str, node: str, demand: Demand) -> None:
        line = self._lines.setdefault(node, Line())
        line.demands[pod] = demand
        line.count(demand, 1)
        self._node_of[pod] = node
        self._dirty.add(node)

    def _note_change(self, name: str) -> None:
        line = self._lines[name]
        if line.node is None and not line.demands and line.announced is None:
            del self._lines[name]
            self._dirty.discard(name)
        else:
            self._dirty.add(name)

    def keep_pods(self, present: Collection[str]) -> set[str]:
        """Remove all pods except these and the expected ones; return the expected ones that are absent."""
        absent = self._expected.difference(present)
        for pod in self._node_of.keys() - absent - set(present):
            self.drop_pod(pod)
        return absent

    def keep_nodes(self, present: Collection[str]) -> None:
        """Remove all other nodes."""
        for name in [name for name in self._lines if name not in present]:
            self.drop_node(name)

    # Queries.

    def node(self, name: str) -> Node | None:
        line = self._lines.get(name)
        return line.node if line is not None else None

    def taints(self) -> frozenset[Taints]:
        """Return the different taints of the nodes, those that keep pods away apart from soft ones."""
        nodes = (line.node for line in self._lines.values())
        return frozenset(each for node in nodes if node is not None for each in (node.taints, node.soft_taints) if each)

    def pods_on(self, name: str) -> list[str]:
        """Return all known live pods on the node."""
        line = self._lines.get(name)
        return list(line.demands) if line is not None else []

    def demands_on(self, name: str) -> Mapping[str, Demand]:
        """Return the demands of live pods on the node, by namespace and name."""
        line = self._lines.get(name)
        return line.demands if line is not None else {}

    def slack_of(self, name: str) -> int | None:
        """Return the slack measured last."""
        line = self._lines.get(name)
        return line.slack_milli if line is not None else None

    def lenders(self) -> list[str]:
        """Return the names of nodes whose slack is measured: pods there request cpu, or revocable pods hold or may get
        slack."""
        lines = self._lines.items()
        return sorted(name for name, line in lines if line.node and (line.held.cpu_milli or line.slack_total_milli))

    def is_lost(self, name: str) -> bool:
        line = self._lines.get(name)
        return line is not None and line.is_lost

    def is_expected(self, pod: str) -> bool:
        """Return whether the pod is launched and not seen yet."""
        return pod in self._expected

    def volume(self, node: str, volume_id: str) -> NodeVolume | None:
        """Return the volume as annotated on the node."""
        line = self._lines.get(node)
        return line.volumes.get(volume_id) if line is not None else None

    def is_being_made(self, node: str, volume_id: str) -> bool:
        """Return whether a launch is creating the volume and the node does not show it yet."""
        line = self._lines.get(node)
        return line is not None and volume_id in line.being_made

    def forget_new_volume(self, node: str, volume_id: str) -> None:
        """Remove a volume that was certainly not created."""
        if (line := self._lines.get(node)) is not None and line.being_made.pop(volume_id, None) is not None:
            line.host = None
            self._dirty.add(node)

    def user_of(self, node: str, volume_id: str) -> str:
        """Return the live pod that uses the volume, or ""."""
        line = self._lines.get(node)
        return line.user_of(volume_id) if line is not None else ""

    @property
    def is_dirty(self) -> bool:
        return bool(self._dirty)

    # Offers.

    def hosts(self) -> list[RegisteredHost]:
        """Return all nodes that are hosts; unchanged ones are the same objects."""
        return [
            host_of(line)
            for line in self._lines.values()
            if line.node is not None and line.node.maintenance != DOWN and not line.is_lost
        ]

    def void_resources(self) -> None:
        """Void all offers at the end of the session; the next session makes new ones."""
        for line in self._lines.values():
            line.announced = None
            line.former.clear()
        self._by_resources.clear()
        self._dirty.update(self._lines)

    def changes(self) -> ResourceChanges:
        """Return the new offers, and the offers that they replace."""
        withdrawn, announced = [], []
        for name in sorted(self._dirty):
            line = self._lines[name]
            fresh = self._resources_of(line)
            old = line.announced
            if old is not None and fresh is not None and _is_same(old, fresh):
                continue
            if old is not None:
                withdrawn.append(old.resources_id)
                if fresh is not None and _is_of_same_node(old, fresh):
                    line.former.append(old.resources_id)
                else:
                    del self._by_resources[old.resources_id]
                if len(line.former) > FORMER_MAX:
                    self._by_resources.pop(line.former.pop(0), None)
            line.announced = fresh
            if fresh is not None:
                announced.append(fresh)
                self._by_resources[fresh.resources_id] = name
            elif line.node is None and not line.demands:
                del self._lines[name]
        self._dirty.clear()
        return ResourceChanges(withdrawn, announced)

    def _resources_of(self, line: Line) -> FreeResources | None:
        node = line.node
        if node is None or not line.is_open:
            return None
        free, slack_milli = line.free, line.slack_free_milli
        if not free.cpu_milli and not slack_milli:
            return None
        self._announced_count += 1
        resources_id = f"{self._session}-{self._announced_count}"
        taken = {port for demand in line.demands.values() for port in demand.ports}
        ports = ranges_without(node.ports, taken)
        slack = Resources(cpu_milli=slack_milli)
        volumes = node_volumes.find_usable(node.volumes)
        if volumes:
            volumes -= {demand.volume for demand in line.demands.values()}
        return FreeResources(
            resources_id,
            node.name,
            node.uid,
            free,
            revocable=slack,
            ports=ports,
            labels=node.labels,
            goes_ns=line.goes_ns,
            pod_slots=line.slots,
            volumes=volumes,
        )

    def give_back(self, resources_ids: Sequence[str]) -> None:
        """Return claimed, unused offers to the ledger, which makes new ones."""
        for resources_id in resources_ids:
            self._take(resources_id)

    def _take(self, resources_id: str) -> Line | None:
        name = self._by_resources.pop(resources_id, None)
        if name is None:
            return None
        line = self._lines[name]
        if line.announced is not None and line.announced.resources_id == resources_id:
            line.announced = None
        self._dirty.add(name)
        return line

    def _end_former(self, line: Line) -> None:
        for resources_id in line.former:
            self._by_resources.pop(resources_id, None)
        line.former.clear()

    def use(
        self, claim: Claim, pods: Sequence[tuple[str, Demand]], volumes: Mapping[str, VolumeRecord] = NO_VOLUMES
    ) -> Mapping[str, str]:
        """Consume the claimed offers; the pods that fit are expected on the node from now on, with their ``volumes``.
        Returns the other pods, with the reason."""
        lines = [line for resources_id in claim.resources_ids if (line := self._take(resources_id)) is not None]
        line = next((line for line in lines if line.node is not None and line.node.uid == claim.host_id), None)
        if line is None or not line.is_open or line.is_lost:
            why = f"the claim on {claim.hostname} is stale: the node or its pods have changed since"
            return {pod: why for pod, _ in pods}
        refused = {}
        for pod, demand in pods:
            volume = volumes.get(pod)
            if why := self._misfit(line, pod, demand, volume):
                refused[pod] = why
            else:
                self.drop_pod(pod)  # of an earlier attempt, possibly on another node
                self._add(pod, claim.hostname, demand)
                if volume is not None and volume.volume_id not in line.volumes:
                    line.being_made[volume.volume_id] = volume.size_mib
                self._expected.add(pod)
        return refused

    def _misfit(self, line: Line, pod: str, demand: Demand, volume: VolumeRecord | None) -> str:
        assert line.node is not None
        name = line.node.name
        if not line.slots:
            return f"node {name} takes {line.node.pods_max} pods, and has them"
        if not demand.held.fits_in(line.free):
            return f"node {name} has too few free resources: {line.free} for {demand.held}"
        if demand.slack_milli > line.slack_free_milli:
            return f"node {name} has {line.slack_free_milli}m of revocable cpu left for {demand.slack_milli}m"
        taken = {port for other in line.demands.values() for port in other.ports}
        if busy := sorted(taken.intersection(demand.ports)):
            return f"ports {busy} of node {name} are taken"
        if volume is None:
            return ""
        own, user = volume.volume_id, line.user_of(volume.volume_id)
        left_mib = line.free.disk_mib - demand.held.disk_mib
        user = "" if user == pod else user
        return node_volumes.refusal(volume, line.volumes.get(own), own in line.being_made, user, left_mib)


def _is_same(old: FreeResources, new: FreeResources) -> bool:
    return replace(old, resources_id=new.resources_id) == new


def _is_of_same_node(old: FreeResources, new: FreeResources) -> bool:
    """Return whether the properties by which placement chose the node, other than free resources, are equal."""
    return (old.host_id, old.labels, old.goes_ns) == (new.host_id, new.labels, new.goes_ns)
