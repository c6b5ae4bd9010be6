"""Garbage collector: deletes objects after the last of their owners.

Only owners whose deletion was seen count: an owner of a kind that is not served here is assumed to exist.
"""

from __future__ import annotations

from functools import partial

from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import BY_PLURAL, RESOURCES, Json
from services.lab.kubernetes.store import DELETED, Event, Key, key_of
from services.lab.shared.clock import Clock


class Owners:
    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._owned: dict[str, set[tuple[str, Key]]] = {}  # uid of the owner -> resource and key of what it owns

    def start(self) -> None:
        for resource in RESOURCES:
            self._store.watch(resource.plural, partial(self._on_change, resource.plural))
            for body in self._store.values(resource.plural):
                self._note(resource.plural, body)

    def _note(self, plural: str, body: Json) -> None:
        for owner in body["metadata"].get("ownerReferences") or ():
            self._owned.setdefault(owner["uid"], set()).add((plural, key_of(body)))

    def _on_change(self, plural: str, event: Event) -> None:
        metadata = event.body["metadata"]
        if event.kind != DELETED:
            if "ownerReferences" in metadata:
                self._note(plural, event.body)
            return
        for owner in metadata.get("ownerReferences") or ():
            owned = self._owned.get(owner["uid"])
            if owned is not None:
                owned.discard((plural, key_of(event.body)))
                if not owned:
                    del self._owned[owner["uid"]]
        if metadata["uid"] in self._owned:
            self._clock.call_later(0.0, self._collect, metadata["uid"])

    def _collect(self, uid: str) -> None:
        for plural, (namespace, name) in sorted(self._owned.pop(uid, set())):
            entry = self._store.get(plural, namespace, name)
            if entry is None or "deletionTimestamp" in entry.body["metadata"]:
                continue
            metadata = entry.body["metadata"]
            owners = metadata.get("ownerReferences") or []
            others = [one for one in owners if one["uid"] != uid]
            if len(others) == len(owners):
                continue
            if others:
                self._store.update(plural, {**entry.body, "metadata": {**metadata, "ownerReferences": others}})
            else:
                self._registry.delete(BY_PLURAL[plural], namespace, name)
