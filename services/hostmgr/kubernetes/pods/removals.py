"""Pods whose end is stored, until they are deleted: their output can be read meanwhile.

The state is in memory only. A new leader sees the same pods, reports their ends again, and counts from their ends.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import orjson

from services.hostmgr.kubernetes.apiserver.wire import Request

BATCH_MAX = 1_000
"""Limit of deletions at a time."""
KEPT_MAX = 10_000
"""Limit of ended pods that are kept: Kubernetes itself deletes the oldest beyond 12,500."""


class Removal(NamedTuple):
    due_s: float  # since the epoch
    name: str
    uid: str
    is_forced: bool = False  # its node cannot confirm that it has ended


class Removals:
    """Pods to delete. Not thread-safe: its owner has a lock."""

    def __init__(self) -> None:
        self._heap: list[Removal] = []

    def add(self, removal: Removal) -> None:
        heapq.heappush(self._heap, removal)

    def take(self, now_s: float) -> list[Removal]:
        """Return the removals that are due or exceed the limit, the oldest first."""
        taken: list[Removal] = []
        while self._heap and len(taken) < BATCH_MAX:
            if self._heap[0].due_s > now_s and len(self._heap) <= KEPT_MAX:
                break
            taken.append(heapq.heappop(self._heap))
        return taken

    def due_in_s(self, now_s: float) -> float:
        if len(self._heap) > KEPT_MAX:
            return 0.0
        return max(self._heap[0].due_s - now_s, 0.0) if self._heap else float("inf")


def delete_request(namespace: str, name: str, uid: str = "", is_forced: bool = False) -> Request:
    """Return a deletion with the pod's grace period, unless it is forced."""
    options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if uid:
        options["preconditions"] = {"uid": uid}
    if is_forced:
        options["gracePeriodSeconds"] = 0
    return Request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", orjson.dumps(options))
