"""Placements that wait for hosts with gpus: other pods avoid these hosts meanwhile."""

from __future__ import annotations

from peloton.hosts.announced import Holder

GPU_WAIT_S = 60.0
"""Seconds for which a placement that found too few hosts with gpus counts: longer than until its next attempt."""
GPU_WAITS_MAX = 10_000
"""Limit of waiting placements; further ones do not count."""


class GpuWaits:
    def __init__(self) -> None:
        self._until_s: dict[Holder, float] = {}

    def note(self, holder: Holder, is_waiting: bool, now_s: float) -> None:
        self._until_s.pop(holder, None)
        if is_waiting and len(self._until_s) < GPU_WAITS_MAX:
            self._until_s[holder] = now_s + GPU_WAIT_S

    def keep_from(self, holder: Holder, now_s: float) -> bool:
        """Return whether another placement waits."""
        for late in [each for each, until_s in self._until_s.items() if until_s <= now_s]:
            del self._until_s[late]
        return bool(self._until_s.keys() - {holder})
