"""The number of node managers that YARN's metrics ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

IDLE_S = 20.0
"""Seconds for which fewer node managers must have been enough before one of them goes."""


@dataclass
class Scale:
    """The decision on the number of node managers. It remembers since when fewer have been enough."""

    least: int
    most: int
    node_mib: int
    idle_since_s: float | None = None

    def wanted(self, metrics: Mapping[str, Any], present: int, now_s: float) -> int:
        """Return the number: more at once, fewer one at a time after ``IDLE_S``."""
        needed = math.ceil((metrics["allocatedMB"] + metrics["pendingMB"]) / self.node_mib)
        if metrics["appsPending"]:
            needed = max(needed, 1)
        needed = min(max(needed, self.least), self.most)
        if needed >= present:
            self.idle_since_s = None
            return needed
        if metrics["activeNodes"] < present:  # a resource manager that has restarted does not know all of them yet
            self.idle_since_s = None
            return present
        self.idle_since_s = now_s if self.idle_since_s is None else self.idle_since_s
        if now_s - self.idle_since_s < IDLE_S:
            return present
        self.idle_since_s = None
        return present - 1
