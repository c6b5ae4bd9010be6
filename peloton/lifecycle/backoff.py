"""How long a failing service instance waits before its next run."""

from __future__ import annotations

from dataclasses import dataclass

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """``initial_s * 2^(failures-1)``, at most ``max_s``: 30 s, 1 m, 2 m ... 60 m by default."""

    initial_s: int = 30
    max_s: int = 3600

    def delay_ns(self, failure_count: int) -> int:
        """Nanoseconds to wait after so many failures; none after none."""
        if failure_count <= 0:
            return 0
        doublings = min(failure_count - 1, 62)  # more would only leave the cap further behind
        return min(self.initial_s << doublings, self.max_s) * _NS


DEFAULT_BACKOFF = Backoff()
