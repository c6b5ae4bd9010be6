"""Scheduler of pods that name no other: each goes to that emulated node with the fewest pods which takes it."""

from __future__ import annotations

from services.lab.kubernetes.nodes.node import Node
from services.lab.kubernetes.nodes.nodes import Nodes
from services.lab.kubernetes.pod_requests import bind
from services.lab.kubernetes.pods import SCHEDULER, node_of, tolerates, with_condition
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.store import DELETED, Event
from services.lab.kubernetes.times import stamp
from services.lab.shared.clock import Clock

RETRY_S = 1.0
"""Seconds until pods that no node takes are tried again."""


class Scheduler:
    def __init__(self, registry: Registry, nodes: Nodes, clock: Clock) -> None:
        self._registry = registry
        self._nodes = nodes
        self._clock = clock
        self._waiting: dict[tuple[str, str], None] = {}  # in the order of their creation
        self._is_due = False

    def start(self) -> None:
        self._registry.store.watch("pods", self._on_change)
        for body in self._registry.store.values("pods"):
            self._check(body)

    def _on_change(self, event: Event) -> None:
        if event.kind != DELETED:
            self._check(event.body)

    def _check(self, pod: Json) -> None:
        spec, metadata = pod["spec"], pod["metadata"]
        if spec.get("schedulerName") == SCHEDULER and not node_of(pod) and not spec.get("schedulingGates"):
            self._waiting.setdefault((metadata["namespace"], metadata["name"]))
            self._schedule(0.0)

    def _schedule(self, delay_s: float) -> None:
        if not self._is_due:
            self._is_due = True
            self._clock.call_later(delay_s, self._place)

    def _place(self) -> None:
        """Bind the first waiting pod that a node takes. The others follow when the node has admitted it."""
        self._is_due = False
        for namespace, name in list(self._waiting):
            entry = self._registry.store.get("pods", namespace, name)
            if entry is None or node_of(entry.body) or "deletionTimestamp" in entry.body["metadata"]:
                del self._waiting[namespace, name]
                continue
            nodes = [node for node in self._nodes.by_name.values() if self._takes(node, entry.body)]
            if nodes:
                del self._waiting[namespace, name]
                bind(self._registry, entry.body, min(nodes, key=lambda node: len(node.pods)).spec.name, {})
                self._schedule(0.0)
                return
            self._report(entry.body)
        if self._waiting:
            self._schedule(RETRY_S)

    def _takes(self, node: Node, pod: Json) -> bool:
        spec = node.stored.node(node.spec.name).get("spec", {})
        tolerations = pod["spec"].get("tolerations") or ()
        repelling = [one for one in spec.get("taints") or () if one["effect"] in ("NoSchedule", "NoExecute")]
        is_open = node.is_up and not spec.get("unschedulable")
        is_tolerated = all(any(tolerates(one, taint) for one in tolerations) for taint in repelling)
        return is_open and is_tolerated and node.refusal(pod) is None

    def _report(self, pod: Json) -> None:
        why = f"0/{len(self._nodes.by_name)} nodes are available: each lacks resources, is cordoned, or has a taint"
        row = {"type": "PodScheduled", "status": "False", "lastTransitionTime": stamp(), "reason": "Unschedulable"}
        known = [one for one in pod["status"].get("conditions") or () if one["type"] == "PodScheduled"]
        if not known:
            self._registry.store.update(
                "pods", {**pod, "status": with_condition(pod["status"], {**row, "message": why})}
            )
