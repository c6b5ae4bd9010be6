"""Status of disruption budgets, as the disruption controller computes it.

Controllers of pods are not implemented: a budget whose number depends on their scale (a percentage, or maxUnavailable)
allows no disruption, as a real one does for pods without a controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import BUDGETS, Json
from services.lab.kubernetes.selectors import by_requirements
from services.lab.kubernetes.store import DELETED, Event
from services.lab.kubernetes.times import stamp


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


class Budgets:
    """Controller of disruption budgets. Statuses follow the pods in the next turn of the loop; `of` returns current
    ones.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._stale: set[str] = set()  # namespaces
        self._claimed: dict[tuple[str, str], set[str]] = {}  # namespace and name -> uids of pods that are being evicted
        self._has_budgets: set[str] = {body["metadata"]["namespace"] for body in self._store.values(BUDGETS.plural)}
        self._soon: Callable[[Callable[[], None]], object] = lambda call: call()
        self._store.watch("pods", self._pod_changed)
        self._store.watch(BUDGETS.plural, self._budget_changed)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._soon = loop.call_soon
        for namespace in self._has_budgets:
            self._mark(namespace)

    def _pod_changed(self, event: Event) -> None:
        namespace = event.body["metadata"]["namespace"]
        if namespace in self._has_budgets:
            self._mark(namespace)

    def _budget_changed(self, event: Event) -> None:
        metadata = event.body["metadata"]
        self._has_budgets.add(metadata["namespace"])
        if event.kind == DELETED:
            self._claimed.pop((metadata["namespace"], metadata["name"]), None)
        else:
            self._mark(metadata["namespace"])

    def _mark(self, namespace: str) -> None:
        if not self._stale:
            self._stale.add(namespace)
            self._soon(self._refresh_all)
        self._stale.add(namespace)

    def _refresh_all(self) -> None:
        stale, self._stale = self._stale, set()
        for namespace in stale:
            self._refresh(namespace)

    def _refresh(self, namespace: str) -> None:
        entries = self._store.entries(BUDGETS.plural, namespace)
        if not entries:
            self._has_budgets.discard(namespace)
            return
        pods = [entry.body for entry in self._store.entries("pods", namespace)]
        for entry in entries:
            body = entry.body
            status = self._status(body, pods)
            self._registry.set_status(BUDGETS, namespace, body["metadata"]["name"], status)

    def _status(self, budget: Json, pods: list[Json]) -> Json:
        metadata, spec, old = budget["metadata"], budget["spec"], budget.get("status") or {}
        matches = by_requirements(spec.get("selector"))
        chosen = [pod for pod in pods if matches(pod)]
        key = (metadata["namespace"], metadata["name"])
        alive = {pod["metadata"]["uid"] for pod in chosen if "deletionTimestamp" not in pod["metadata"]}
        claimed = self._claimed.get(key, set()) & alive
        self._claimed[key] = claimed
        healthy = sum(
            is_ready(pod) and pod["metadata"]["uid"] in alive and pod["metadata"]["uid"] not in claimed
            for pod in chosen
        )
        wanted = spec.get("minAvailable")
        is_known = isinstance(wanted, int)
        desired = wanted if isinstance(wanted, int) else len(chosen)
        allowed = max(0, healthy - desired) if is_known and chosen else 0
        reason = "SyncFailed" if not is_known and chosen else "SufficientPods" if allowed else "InsufficientPods"
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "observedGeneration": metadata.get("generation", 1),
            "lastTransitionTime": stamp(),
            "reason": reason,
            "message": "" if reason != "SyncFailed" else "found no controller ref for a pod",
        }
        for before in old.get("conditions") or ():
            if before["status"] == condition["status"]:
                condition["lastTransitionTime"] = before["lastTransitionTime"]
        return {
            "observedGeneration": metadata.get("generation", 1),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": len(chosen),
            "conditions": [condition],
        }

    def of(self, pod: Json) -> list[Json]:
        """Return the budgets of a pod, with current statuses."""
        namespace = pod["metadata"]["namespace"]
        if namespace not in self._has_budgets:
            return []
        self._refresh(namespace)
        bodies = (entry.body for entry in self._store.entries(BUDGETS.plural, namespace))
        return [body for body in bodies if by_requirements(body["spec"].get("selector"))(pod)]

    def claim(self, budget: Json, pod: Json) -> None:
        """Count one healthy pod less from now on."""
        metadata = budget["metadata"]
        self._claimed.setdefault((metadata["namespace"], metadata["name"]), set()).add(pod["metadata"]["uid"])
        self._mark(metadata["namespace"])
