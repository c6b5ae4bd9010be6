"""Pod garbage collector: deletes pods of missing nodes, and the oldest ended pods above a limit."""

from __future__ import annotations

from services.lab.kubernetes.deletion import DeleteOptions
from services.lab.kubernetes.pods import is_over, node_of
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import PODS, Json
from services.lab.shared.clock import Clock

ENDED_MAX = 12_500
"""Ended pods that are kept, by the default of the controller manager."""
REASON = "DeletionByPodGC"
MESSAGE = "PodGC: node no longer exists"


class PodCollector:
    def __init__(self, registry: Registry, clock: Clock, quarantine_s: float, period_s: float) -> None:
        """Create the collector. ``quarantine_s``: seconds for which a node must be missing."""
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._quarantine_s = quarantine_s
        self._period_s = period_s
        self._missing_since: dict[str, float] = {}

    def start(self) -> None:
        self._clock.call_later(self._period_s, self._look)

    def _look(self) -> None:
        self._clock.call_later(self._period_s, self._look)
        pods, now = self._store.values("pods"), self._clock.now()
        missing = {name for pod in pods if (name := node_of(pod)) and self._store.get("nodes", "", name) is None}
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        gone = {name for name, since in self._missing_since.items() if now - since >= self._quarantine_s}
        for pod in pods:
            if gone and node_of(pod) in gone:
                self._collect(pod)
        ended = [pod for pod in pods if is_over(pod)]
        if len(ended) > ENDED_MAX:
            ended.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
            for pod in ended[: len(ended) - ENDED_MAX]:
                self._delete(pod)

    def _collect(self, pod: Json) -> None:
        if not is_over(pod):
            self._registry.disrupt(pod, REASON, MESSAGE, "Failed")
        self._delete(pod)

    def _delete(self, pod: Json) -> None:
        metadata = pod["metadata"]
        if self._store.get("pods", metadata["namespace"], metadata["name"]) is not None:
            self._registry.delete(PODS, metadata["namespace"], metadata["name"], DeleteOptions(grace_s=0))
