"""Pods whose end is stored, until they are deleted: their output can be read meanwhile.

Nothing of this is stored. A successor sees the same pods again, reports their ends again, and counts from their ends.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import orjson

from services.hostmgr.kubernetes.apiserver.wire import Request

BATCH_MAX = 1_000
"""Deletions at a time."""
KEPT_MAX = 10_000
"""Ended pods that are kept: Kubernetes itself deletes the oldest beyond 12,500."""


class Removal(NamedTuple):
    due_s: float  # since the epoch
    name: str
    uid: str
    is_forced: bool = False  # nobody on its node can confirm that it has ended


class Removals:
    """Not safe for threads: its owner has a lock."""

    def __init__(self) -> None:
        self._heap: list[Removal] = []

    def add(self, removal: Removal) -> None:
        heapq.heappush(self._heap, removal)

    def take(self, now_s: float) -> list[Removal]:
        """Those that are due, or too many, the oldest first."""
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
    """With the grace of the pod, unless it is forced."""
    options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if uid:
        options["preconditions"] = {"uid": uid}
    if is_forced:
        options["gracePeriodSeconds"] = 0
    return Request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", orjson.dumps(options))
