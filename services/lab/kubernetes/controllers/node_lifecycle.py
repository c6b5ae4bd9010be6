"""Node lifecycle: conditions of nodes whose leases are not renewed become Unknown, and lost or cordoned nodes have
taints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.lab.kubernetes.pods import NOT_READY, UNREACHABLE, node_of, with_condition
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import NODE_LEASES, Json
from services.lab.kubernetes.store import DELETED, Event
from services.lab.kubernetes.times import stamp
from services.lab.shared.clock import Clock

CORDONED = "node.kubernetes.io/unschedulable"
_OF_NODES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_PRESSURE_TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OURS = frozenset({NOT_READY, UNREACHABLE, CORDONED, *_PRESSURE_TAINTS.values()})


class NodeLifecycle:
    """Controller of nodes. A renewed lease, or a posted status, shows that a node is alive."""

    def __init__(self, registry: Registry, clock: Clock, grace_s: float, period_s: float) -> None:
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._grace_s = grace_s
        self._period_s = period_s
        self._heard_at: dict[str, float] = {}
        self._soon: Callable[..., object] = lambda call, *args: call(*args)
        self._store.watch("nodes", self._node_changed)
        self._store.watch("leases", self._lease_changed)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._soon = loop.call_soon
        for body in self._store.values("nodes"):
            self._heard_at[body["metadata"]["name"]] = self._clock.now()
            self._set_taints(body["metadata"]["name"])
        self._clock.call_later(self._period_s, self._look)

    def _lease_changed(self, event: Event) -> None:
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
        if _wanted_taints(event.body) != _own_taints(event.body):
            self._soon(self._set_taints, name)

    def _set_taints(self, name: str) -> None:
        entry = self._store.get("nodes", "", name)
        if entry is None:
            return
        body = entry.body
        wanted, found = _wanted_taints(body), _own_taints(body)
        if wanted == found:
            return
        others = [one for one in body["spec"].get("taints") or () if (one["key"], one["effect"]) not in found]
        kept = [one for one in body["spec"].get("taints") or () if (one["key"], one["effect"]) in found & wanted]
        now = stamp()
        added = [{"key": key, "effect": effect, "timeAdded": now} for key, effect in sorted(wanted - found)[::-1]]
        spec = {key: value for key, value in body["spec"].items() if key != "taints"}
        taints = [*others, *kept, *added]
        self._store.update("nodes", {**body, "spec": {**spec, "taints": taints} if taints else spec})

    def _look(self) -> None:
        self._clock.call_later(self._period_s, self._look)
        if not self._grace_s:
            return
        oldest = self._clock.now() - self._grace_s
        for name, heard_at in list(self._heard_at.items()):
            if heard_at < oldest:
                self._lose(name)

    def _lose(self, name: str) -> None:
        entry = self._store.get("nodes", "", name)
        if entry is None or _ready(entry.body) == "Unknown":
            return
        status = entry.body.get("status") or {}
        known = {one["type"]: one for one in status.get("conditions") or ()}
        now = stamp()
        for kind in ("Ready", *_OF_NODES):
            never = "lastHeartbeatTime" not in known.get(kind, {})
            status = with_condition(
                status,
                {
                    **known.get(kind, {"type": kind, "lastHeartbeatTime": entry.body["metadata"]["creationTimestamp"]}),
                    "status": "Unknown",
                    "lastTransitionTime": now,
                    "reason": "NodeStatusNeverUpdated" if never else "NodeStatusUnknown",
                    "message": f"Kubelet {'never posted' if never else 'stopped posting'} node status.",
                },
            )
        self._store.update("nodes", {**entry.body, "status": status})
        for pod in self._store.values("pods"):
            if node_of(pod) == name:
                self._unready(pod)

    def _unready(self, pod: Json) -> None:
        found = [one for one in pod["status"].get("conditions") or () if one["type"] == "Ready"]
        if found and found[0]["status"] == "True":
            lost = {**found[0], "status": "False", "lastTransitionTime": stamp()}
            self._store.update("pods", {**pod, "status": with_condition(pod["status"], lost)})


def _ready(node: Json) -> str:
    """Return the status of the condition Ready; empty without one."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(one["status"]) for one in conditions if one["type"] == "Ready"), "")


def _own_taints(node: Json) -> set[tuple[str, str]]:
    """Return key and effect of the taints that this controller manages."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return {(one["key"], one["effect"]) for one in taints if one["key"] in _OURS}


def _wanted_taints(node: Json) -> set[tuple[str, str]]:
    status = _ready(node)
    wanted: set[tuple[str, str]] = set()
    if status == "Unknown":
        wanted |= {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
    elif status != "True":
        wanted |= {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.add((CORDONED, "NoSchedule"))
    for one in (node.get("status") or {}).get("conditions") or ():
        if one["status"] == "True" and one["type"] in _PRESSURE_TAINTS:
            wanted.add((_PRESSURE_TAINTS[one["type"]], "NoSchedule"))
    return wanted
