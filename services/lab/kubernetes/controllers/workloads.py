"""Common part of the controllers of Jobs and Deployments: an object owns pods of its template."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod

from services.lab.kubernetes.errors import ApiError
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import PODS, Json, Resource
from services.lab.kubernetes.store import DELETED, Event
from services.lab.shared.clock import Clock

log = logging.getLogger(__name__)

REFUSED_RETRY_S = 10.0
"""Seconds until an object whose pods were rejected is synchronized again."""
CREATED_MAX = 500
"""Pods that one object creates in one turn of the loop."""


class Workloads(ABC):
    """Controller of one kind. An object is synchronized after each event of it or of its pods."""

    def __init__(self, registry: Registry, clock: Clock, resource: Resource, retry_s: float) -> None:
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._resource = resource
        self._retry_s = retry_s
        self._stale: set[tuple[str, str]] = set()

    def start(self) -> None:
        self._store.watch(self._resource.plural, self._on_change)
        self._store.watch("pods", self._pod_changed)
        for body in self._store.values(self._resource.plural):
            self._mark(body["metadata"]["namespace"], body["metadata"]["name"])

    def _on_change(self, event: Event) -> None:
        if event.kind != DELETED:
            self._mark(event.body["metadata"]["namespace"], event.body["metadata"]["name"])

    def _pod_changed(self, event: Event) -> None:
        metadata = event.body["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") == self._resource.kind:
                # A pod that fails at once must not be replaced at once, without end.
                has_failed = event.body["status"].get("phase") == "Failed"
                self._mark(metadata["namespace"], owner["name"], self._retry_s if has_failed else 0.0)

    def _mark(self, namespace: str, name: str, delay_s: float = 0.0) -> None:
        if (namespace, name) not in self._stale:
            self._stale.add((namespace, name))
            self._clock.call_later(delay_s, self._sync, namespace, name)

    def _sync(self, namespace: str, name: str) -> None:
        self._stale.discard((namespace, name))
        entry = self._store.get(self._resource.plural, namespace, name)
        if entry is None or "deletionTimestamp" in entry.body["metadata"]:
            return
        uid = entry.body["metadata"]["uid"]
        pods = [
            pod.body
            for pod in self._store.entries("pods", namespace)
            if any(owner["uid"] == uid for owner in pod.body["metadata"].get("ownerReferences") or ())
        ]
        try:
            status = self.synchronize(entry.body, pods)
        except ApiError as error:
            log.warning("%s %s/%s: %s", self._resource.kind, namespace, name, error)
            self._mark(namespace, name, REFUSED_RETRY_S)
            return
        # Its pods may have changed the object.
        now = self._store.get(self._resource.plural, namespace, name)
        if now is not None:
            self._store.update(self._resource.plural, {**now.body, "status": status})

    @abstractmethod
    def synchronize(self, body: Json, pods: list[Json]) -> Json:
        """Create and delete pods of the object, and return its status."""

    def create_pods(self, body: Json, count: int, labels: Json) -> int:
        """Create pods of the template, and return their number."""
        metadata, template = body["metadata"], body["spec"]["template"]
        head = template.get("metadata") or {}
        owner = {**self._resource.head, "name": metadata["name"], "uid": metadata["uid"], "controller": True}
        made = {
            "generateName": f"{metadata['name']}-",
            "labels": {**(head.get("labels") or {}), **labels},
            "annotations": head.get("annotations"),
            "ownerReferences": [owner],
        }
        for _ in range(min(count, CREATED_MAX)):
            self._registry.create(PODS, metadata["namespace"], {"metadata": made, "spec": template["spec"]})
        return min(max(count, 0), CREATED_MAX)

    def delete_pods(self, pods: list[Json]) -> None:
        for pod in pods:
            self._registry.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
