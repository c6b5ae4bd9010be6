"""Deletion of namespaces: all objects in them are deleted, with their grace, and then the namespaces."""

from __future__ import annotations

from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import RESOURCES, Json
from services.lab.kubernetes.store import DELETED, Event
from services.lab.shared.clock import Clock

_NAMESPACED = [resource for resource in RESOURCES if resource.namespaced]


class Namespaces:
    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._going: set[str] = set()

    def start(self) -> None:
        self._store.watch("namespaces", self._on_change)
        for resource in _NAMESPACED:
            self._store.watch(resource.plural, self._content_changed)
        for body in self._store.values("namespaces"):
            self._check(body)

    def _on_change(self, event: Event) -> None:
        if event.kind == DELETED:
            self._going.discard(event.body["metadata"]["name"])
        else:
            self._check(event.body)

    def _check(self, body: Json) -> None:
        name = body["metadata"]["name"]
        if "deletionTimestamp" in body["metadata"]:
            is_new = name not in self._going
            self._going.add(name)
            self._clock.call_later(0.0, self._empty if is_new else self._end, name)

    def _content_changed(self, event: Event) -> None:
        namespace = event.body["metadata"]["namespace"]
        if event.kind == DELETED and namespace in self._going:
            self._clock.call_later(0.0, self._end, namespace)

    def _empty(self, name: str) -> None:
        for resource in _NAMESPACED:
            for entry in self._store.entries(resource.plural, name):
                metadata = entry.body["metadata"]
                is_there = self._store.get(resource.plural, name, metadata["name"]) is not None  # after earlier ones
                if is_there and "deletionTimestamp" not in metadata:
                    self._registry.delete(resource, name, metadata["name"])
        self._end(name)

    def _end(self, name: str) -> None:
        entry = self._store.get("namespaces", "", name)
        is_held = entry is None or name not in self._going or entry.body["metadata"].get("finalizers")
        if not is_held and not any(self._store.entries(resource.plural, name) for resource in _NAMESPACED):
            self._store.delete("namespaces", "", name)
