"""Who waits for hosts with gpus: other pods keep off them meanwhile."""

from __future__ import annotations

from services.hostmgr.driver import Holder

GPU_WAIT_S = 60.0
"""A placement that found too few hosts with gpus counts for so long: longer than it takes until it looks again."""
GPU_WAITS_MAX = 10_000
"""Further ones do not count."""


class GpuWaits:
    def __init__(self) -> None:
        self._until_s: dict[Holder, float] = {}

    def note(self, holder: Holder, is_waiting: bool, now_s: float) -> None:
        self._until_s.pop(holder, None)
        if is_waiting and len(self._until_s) < GPU_WAITS_MAX:
            self._until_s[holder] = now_s + GPU_WAIT_S

    def keep_from(self, holder: Holder, now_s: float) -> bool:
        """Whether anybody else waits."""
        for late in [each for each, until_s in self._until_s.items() if until_s <= now_s]:
            del self._until_s[late]
        return bool(self._until_s.keys() - {holder})
