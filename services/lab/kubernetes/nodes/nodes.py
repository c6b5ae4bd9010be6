"""All emulated nodes: they register, keep their leases, and run the pods that are bound to them."""

from __future__ import annotations

import uuid
from functools import partial

from services.lab.kubernetes.nodes.node import Node
from services.lab.kubernetes.nodes.node_objects import lease_body, node_body
from services.lab.kubernetes.nodes.pods import NodePod
from services.lab.kubernetes.nodes.runtime import Runtime
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.kubernetes.nodes.stored_pods import StoredPods
from services.lab.kubernetes.resources import NODE_LEASES, Json
from services.lab.kubernetes.store import DELETED, Event, Store, Subscription
from services.lab.kubernetes.times import stamp
from services.lab.shared.clock import Clock

HEARTBEATS_MAX = 250
"""Leases renewed in one turn of the loop: thousands of nodes take turns."""


class UnknownNode(Exception):
    """Raised for a name without an emulated node."""


class Nodes:
    """``start`` once the store is loaded; ``close`` leaves no process behind."""

    def __init__(self, settings: NodeSettings, store: Store, clock: Clock) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self.runtime = Runtime(settings, store, clock)
        self._stored = StoredPods(store, clock)
        self._subscription: Subscription | None = None
        shared_ports: dict[int, str] = {}
        self.by_name = {
            spec.name: Node(spec, clock, self._stored, self.runtime, {} if settings.simulate else shared_ports)
            for spec in settings.hosts
        }
        self._names = list(self.by_name)

    async def start(self) -> None:
        await self.runtime.start()
        for node in self.by_name.values():
            self._register(node)
        self._subscription = self._store.watch("pods", self._on_change)
        for body in self._store.values("pods"):
            if (bound := self._node_of(body)) is not None:
                bound.resume(body)
        self._heartbeat(0)

    async def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
        for node in self.by_name.values():
            node.stop()
        await self.runtime.close()

    def pod(self, node_name: str, uid: str) -> NodePod | None:
        """Return the pod; None when it does not run on this node."""
        node = self.by_name.get(node_name)
        return None if node is None else node.pods.get(uid)

    # Pods

    def _node_of(self, body: Json) -> Node | None:
        return self.by_name.get(body["spec"].get("nodeName", ""))

    def _on_change(self, event: Event) -> None:
        node = self._node_of(event.body)
        if node is None:
            return
        if event.kind == DELETED:
            node.on_removal(event.body["metadata"]["uid"])
        else:
            node.saw(event.body)

    # Nodes

    def _register(self, node: Node) -> None:
        name = node.spec.name
        entry = self._store.get("nodes", "", name)
        before = None if entry is None else entry.body
        new_uid, shares_machine = str(uuid.uuid4()), not self._settings.simulate
        now = self._stored.now()
        body = node_body(node.spec, self._settings.pods_max, now, before, new_uid, shares_machine)
        if before is None:
            self._store.create("nodes", body)
        else:
            self._store.update("nodes", {**before, **body})
        self._renew(name)

    def _renew(self, name: str) -> None:
        if self._store.get("nodes", "", name) is None:
            return  # it was deleted: a kubelet continues
        entry = self._store.get("leases", NODE_LEASES, name)
        now_s = self._clock.wall()
        renewed = f"{stamp(now_s)[:-1]}.{int(now_s % 1 * 1e6):06d}Z"
        before = None if entry is None else entry.body
        body = lease_body(name, renewed, before, str(uuid.uuid4()))
        if before is None:
            self._store.create("leases", body)
        else:
            self._store.update("leases", {**before, **body})

    def _heartbeat(self, first: int) -> None:
        """Renew the leases of the next nodes, and schedule the renewal of the following ones."""
        names = self._names[first : first + HEARTBEATS_MAX]
        for name in names:
            if self.by_name[name].is_up:
                self._renew(name)
        following = first + len(names)
        turns = -(-len(self._names) // HEARTBEATS_MAX)
        again = partial(self._heartbeat, following if following < len(self._names) else 0)
        self._clock.call_later(self._settings.heartbeat_s / max(turns, 1), again)

    # Drills

    def _find(self, name: str) -> Node:
        if name not in self.by_name:
            raise UnknownNode(f"there is no node {name!r}; there are {', '.join(self._names[:10])}")
        return self.by_name[name]

    def stop(self, name: str) -> None:
        """Stop a node: its lease and status are not renewed, and its containers end."""
        self._find(name).stop()

    def boot(self, name: str) -> None:
        """Start a stopped node, which resumes the pods that are still bound to it."""
        node = self._find(name)
        if node.is_up:
            return
        node.is_up = True
        self._register(node)
        for body in self._store.values("pods"):
            if self._node_of(body) is node:
                node.resume(body)

    def table(self) -> list[Json]:
        """Return each node and the number of its running pods, for drills."""
        return [
            {"name": name, "is_up": node.is_up, "pods": sum(not pod.has_ended for pod in node.pods.values())}
            for name, node in self.by_name.items()
        ]
