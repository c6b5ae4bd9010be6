"""Taint evictions: deletes pods on nodes with a NoExecute taint at once, or after their toleration time."""

from __future__ import annotations

from services.lab.kubernetes.pods import is_over, node_of
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import PODS, Json
from services.lab.kubernetes.store import ADDED, DELETED, Event
from services.lab.shared.clock import Clock, Timer

REASON = "DeletionByTaintManager"
MESSAGE = "Taint manager: deleting due to NoExecute taint"


class TaintEvictions:
    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._taints: dict[str, list[Json]] = {}  # of nodes that have any with NoExecute
        self._timers: dict[str, Timer] = {}  # by uid of the pod
        self._store.watch("nodes", self._node_changed)
        self._store.watch("pods", self._pod_changed)

    def start(self) -> None:
        for body in self._store.values("nodes"):
            self._look_at(body)

    def _node_changed(self, event: Event) -> None:
        if event.kind == DELETED:
            self._taints.pop(event.body["metadata"]["name"], None)
        else:
            self._look_at(event.body)

    def _look_at(self, node: Json) -> None:
        name = node["metadata"]["name"]
        taints = [one for one in (node.get("spec") or {}).get("taints") or () if one["effect"] == "NoExecute"]
        if _keys(taints) == _keys(self._taints.get(name, [])):
            return
        if taints:
            self._taints[name] = taints
        else:
            del self._taints[name]
        for pod in self._store.values("pods"):
            if node_of(pod) == name:
                self._judge(pod, taints)

    def _pod_changed(self, event: Event) -> None:
        uid = event.body["metadata"]["uid"]
        if event.kind == DELETED:
            if uid in self._timers:
                self._timers.pop(uid).cancel()
            return
        if not self._taints:
            return
        taints = self._taints.get(node_of(event.body))
        if taints and (event.kind == ADDED or event.previous is None or not node_of(event.previous)):
            self._judge(event.body, taints)

    def _judge(self, pod: Json, taints: list[Json]) -> None:
        metadata = pod["metadata"]
        if metadata["uid"] in self._timers:
            self._timers.pop(metadata["uid"]).cancel()
        if not taints or is_over(pod):
            return
        patience_s = _patience_s(pod["spec"].get("tolerations") or [], taints)
        if patience_s is not None:
            arguments = (metadata["namespace"], metadata["name"], metadata["uid"])
            self._timers[metadata["uid"]] = self._clock.call_later(patience_s, self._evict, *arguments)

    def _evict(self, namespace: str, name: str, uid: str) -> None:
        self._timers.pop(uid, None)
        entry = self._store.get("pods", namespace, name)
        if entry is None or entry.body["metadata"]["uid"] != uid or "deletionTimestamp" in entry.body["metadata"]:
            return
        self._registry.disrupt(entry.body, REASON, MESSAGE)
        self._registry.delete(PODS, namespace, name)


def _keys(taints: list[Json]) -> list[tuple[str, str]]:
    return [(one["key"], str(one.get("value") or "")) for one in taints]


def _patience_s(tolerations: list[Json], taints: list[Json]) -> float | None:
    """Return the seconds that a pod may stay: None for ever, 0 for a taint without a toleration."""
    shortest: float | None = None
    for taint in taints:
        found = [one for one in tolerations if _tolerates(one, taint)]
        if not found:
            return 0.0
        for one in found:
            if one.get("tolerationSeconds") is not None:
                seconds = max(0.0, float(one["tolerationSeconds"]))
                shortest = seconds if shortest is None else min(shortest, seconds)
    return shortest


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key = toleration.get("key") or ""
    if key not in ("", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")
