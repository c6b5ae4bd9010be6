"""Pods as their nodes write them: statuses, and the last step of a graceful deletion."""

from __future__ import annotations

from uuid import uuid4

from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.store import Entry, Store
from services.lab.kubernetes.times import stamp
from services.lab.shared.clock import Clock


class StoredPods:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def now(self) -> str:
        return stamp(self._clock.wall())

    def find(self, namespace: str, name: str, uid: str) -> Entry | None:
        """Return the pod; None when it was deleted, or when another pod has its name."""
        entry = self._store.get("pods", namespace, name)
        return entry if entry is not None and entry.body["metadata"]["uid"] == uid else None

    def node(self, name: str) -> Json:
        """Return the node; empty when it was deleted."""
        entry = self._store.get("nodes", "", name)
        return {} if entry is None else entry.body

    def warn(self, pod: Json, node: str, reason: str, message: str) -> None:
        """Record an event of the kubelet with a count of its repetitions."""
        metadata, now = pod["metadata"], self.now()
        about = {"kind": "Pod", "apiVersion": "v1", **{key: metadata[key] for key in ("namespace", "name", "uid")}}
        name = f"{metadata['name']}.{reason.lower()}"
        known = self._store.get("events", metadata["namespace"], name)
        if known is not None and known.body["involvedObject"]["uid"] == metadata["uid"]:
            self._store.update("events", {**known.body, "lastTimestamp": now, "count": known.body["count"] + 1})
            return
        if known is not None:
            self._store.delete("events", metadata["namespace"], name)
        made = {"name": name, "namespace": metadata["namespace"], "uid": str(uuid4()), "creationTimestamp": now}
        body: Json = {
            "metadata": made,
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": "Warning",
            "source": {"component": "kubelet", "host": node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._store.create("events", body)

    def write_status(self, entry: Entry, status: Json) -> None:
        self._store.update("pods", {**entry.body, "status": status})

    def remove(self, namespace: str, name: str, uid: str) -> None:
        """Remove a pod that has ended on its node, or leave it to its finalizers."""
        entry = self.find(namespace, name, uid)
        if entry is None:
            return
        metadata = entry.body["metadata"]
        if metadata.get("deletionGracePeriodSeconds") != 0:
            metadata = {**metadata, "deletionTimestamp": self.now(), "deletionGracePeriodSeconds": 0}
            self._store.update("pods", {**entry.body, "metadata": metadata})
        # A subscriber of the store may have deleted it already.
        if not metadata.get("finalizers") and self.find(namespace, name, uid) is not None:
            self._store.delete("pods", namespace, name)
