"""What a task uses, as it was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Cpu seconds since the start of a task, its resident bytes, and the moment (unix seconds) of the look."""

    user_s: float
    system_s: float
    memory: int
    at_s: float

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


class CpuCount:
    """Cpu seconds of a session that never fall: what a process used that ended unseen stays counted."""

    __slots__ = ("_last", "_total")

    def __init__(self) -> None:
        self._last = (0.0, 0.0)
        self._total = (0.0, 0.0)

    def add(self, now: tuple[float, float]) -> tuple[float, float]:
        """``now`` is (user, system) of the processes that live, with the children they have waited for."""
        user, system = (max(new - old, 0.0) for new, old in zip(now, self._last, strict=True))
        self._last = now
        self._total = (self._total[0] + user, self._total[1] + system)
        return self._total
