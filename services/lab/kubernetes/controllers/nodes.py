"""Node controller: conditions of nodes whose leases are not renewed become Unknown, lost and cordoned nodes have
taints, and pods that do not tolerate a NoExecute taint are deleted.
"""

from __future__ import annotations

from services.lab.kubernetes.pods import NOT_READY, UNREACHABLE, is_over, is_ready, node_of, tolerates, with_condition
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import NODE_LEASES, PODS, Json
from services.lab.kubernetes.store import ADDED, DELETED, Event
from services.lab.kubernetes.times import stamp
from services.lab.shared.clock import Clock

CORDONED = "node.kubernetes.io/unschedulable"
_OURS = (NOT_READY, UNREACHABLE, CORDONED)
REASON, MESSAGE = "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"


class NodeController:
    """Controller of nodes. A renewed lease, or a posted status, shows that a node is alive."""

    def __init__(self, registry: Registry, clock: Clock, grace_s: float, period_s: float) -> None:
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._grace_s = grace_s
        self._period_s = period_s
        self._heard_at: dict[str, float] = {}

    def start(self) -> None:
        self._store.watch("nodes", self._node_changed)
        self._store.watch("leases", self._on_renewal)
        self._store.watch("pods", self._pod_changed)
        for body in self._store.values("nodes"):
            self._heard_at[body["metadata"]["name"]] = self._clock.now()
            self._set_taints(body["metadata"]["name"])
        self._clock.call_later(self._period_s, self._check_nodes)

    def _on_renewal(self, event: Event) -> None:
        metadata = event.body["metadata"]
        if metadata["namespace"] == NODE_LEASES and event.kind != DELETED:
            self._heard_at[metadata["name"]] = self._clock.now()

    def _node_changed(self, event: Event) -> None:
        name = event.body["metadata"]["name"]
        if event.kind == DELETED:
            self._heard_at.pop(name, None)
            return
        before = event.previous or {}
        if _ready(event.body) != "Unknown" and event.body.get("status") != before.get("status"):
            self._heard_at[name] = self._clock.now()
        self._heard_at.setdefault(name, self._clock.now())
        if _taints_to_set(event.body) != _own_taints(event.body):
            self._clock.call_later(0.0, self._set_taints, name)
        if (taints := _evicting(event.body)) and taints != _evicting(before):
            for pod in self._store.values("pods"):
                if node_of(pod) == name:
                    self._schedule(pod, taints)

    # Taints

    def _set_taints(self, name: str) -> None:
        entry = self._store.get("nodes", "", name)
        if entry is None:
            return
        spec = entry.body["spec"]
        wanted, found = _taints_to_set(entry.body), _own_taints(entry.body)
        outdated, missing = found - wanted, sorted(wanted - found, reverse=True)
        kept = [one for one in spec.get("taints") or () if (one["key"], one["effect"]) not in outdated]
        added = [{"key": key, "effect": effect, "timeAdded": stamp()} for key, effect in missing]
        others = {key: value for key, value in spec.items() if key != "taints"}
        taints = {"taints": [*kept, *added]} if kept or added else {}
        self._store.update("nodes", {**entry.body, "spec": {**others, **taints}})

    def _check_nodes(self) -> None:
        self._clock.call_later(self._period_s, self._check_nodes)
        oldest = self._clock.now() - self._grace_s
        for name, heard_at in list(self._heard_at.items()):
            if self._grace_s and heard_at < oldest:
                self._lose(name)

    def _lose(self, name: str) -> None:
        entry = self._store.get("nodes", "", name)
        if entry is None or _ready(entry.body) == "Unknown":
            return
        status = entry.body.get("status") or {}
        unknown = {"status": "Unknown", "lastTransitionTime": stamp(), "reason": "NodeStatusUnknown"}
        for one in [{"type": "Ready"}, *(status.get("conditions") or ())]:
            status = with_condition(status, {**one, **unknown, "message": "Kubelet stopped posting node status."})
        self._store.update("nodes", {**entry.body, "status": status})
        for pod in self._store.values("pods"):
            if node_of(pod) == name and is_ready(pod):
                lost = {"type": "Ready", "status": "False", "lastTransitionTime": stamp()}
                self._store.update("pods", {**pod, "status": with_condition(pod["status"], lost)})

    # Evictions

    def _pod_changed(self, event: Event) -> None:
        is_new = event.kind == ADDED or (event.previous is not None and not node_of(event.previous))
        if is_new and (name := node_of(event.body)) and (node := self._store.get("nodes", "", name)) is not None:
            self._schedule(event.body, _evicting(node.body))

    def _schedule(self, pod: Json, taints: list[Json]) -> None:
        """Evict a pod after the time for which it tolerates the taints of its node."""
        stay_s = _stay_s(pod, taints)
        if stay_s is not None:
            metadata = pod["metadata"]
            arguments = (metadata["namespace"], metadata["name"], metadata["uid"])
            self._clock.call_later(stay_s, self._evict, *arguments)

    def _evict(self, namespace: str, name: str, uid: str) -> None:
        """Delete the pod, unless the taint is gone."""
        entry = self._store.get("pods", namespace, name)
        if entry is None or entry.body["metadata"]["uid"] != uid or "deletionTimestamp" in entry.body["metadata"]:
            return
        pod = entry.body
        node = self._store.get("nodes", "", node_of(pod))
        if node is None or is_over(pod) or _stay_s(pod, _evicting(node.body)) is None:
            return
        self._registry.disrupt(pod, REASON, MESSAGE)
        self._registry.delete(PODS, namespace, name)


def _ready(node: Json) -> str:
    """Return the status of the condition Ready; empty without one."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(one["status"]) for one in conditions if one["type"] == "Ready"), "")


def _own_taints(node: Json) -> set[tuple[str, str]]:
    """Return key and effect of the taints that this controller manages."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return {(one["key"], one["effect"]) for one in taints if one["key"] in _OURS}


def _taints_to_set(node: Json) -> set[tuple[str, str]]:
    status = _ready(node)
    wanted: set[tuple[str, str]] = set()
    if status != "True":
        key = UNREACHABLE if status == "Unknown" else NOT_READY
        wanted |= {(key, "NoSchedule"), (key, "NoExecute")}
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.add((CORDONED, "NoSchedule"))
    return wanted


def _evicting(node: Json) -> list[Json]:
    """Return the taints that evict pods, without their times."""
    taints = (node.get("spec") or {}).get("taints") or ()
    names = ("key", "value", "effect")
    return [{name: one.get(name) for name in names} for one in taints if one["effect"] == "NoExecute"]


def _stay_s(pod: Json, taints: list[Json]) -> float | None:
    """Return the seconds that a pod may stay: None for ever, 0 for a taint without a toleration."""
    shortest: float | None = None
    for taint in taints:
        found = [one for one in pod["spec"].get("tolerations") or () if tolerates(one, taint)]
        if not found:
            return 0.0
        times = [float(one["tolerationSeconds"]) for one in found if one.get("tolerationSeconds") is not None]
        shortest = min([*times, *([] if shortest is None else [shortest])], default=None)
    return None if shortest is None else max(shortest, 0.0)
