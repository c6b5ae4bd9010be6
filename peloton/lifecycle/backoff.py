"""How long an instance that fails waits before its next run."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.times import NS_PER_S


@dataclass(frozen=True, slots=True)
class Backoff:
    """``initial_s * 2^(failures-1)``, at most ``max_s``: 30 s, 1 m, 2 m ... 60 m by default."""

    initial_s: int = 30
    max_s: int = 3600

    @property
    def waits(self) -> bool:
        return self.initial_s > 0

    def delay_ns(self, failure_count: int) -> int:
        """Nanoseconds to wait after so many failures; none after none."""
        if failure_count <= 0:
            return 0
        doublings = min(failure_count - 1, 62)  # more would only leave the cap further behind
        return min(self.initial_s << doublings, self.max_s) * NS_PER_S

    def delay_after_ns(self, failure_count: int, took_ns: int) -> int:
        """The same, and no less than the last try took, as far as that is within the cap."""
        return max(self.delay_ns(failure_count), min(took_ns, self.max_s * NS_PER_S))


DEFAULT_BACKOFF = Backoff()
"""Of services."""
NO_BACKOFF = Backoff(initial_s=0)

BATCH_GRID_NS = 5 * NS_PER_S
"""Batch pods become due at multiples of this: however many of a job wait, it has few moments to wake for."""


def batch_due_ns(backoff: Backoff, wait_count: int, started_ns: int, ended_ns: int) -> int:
    """Return when a batch pod runs again that waits for the ``wait_count``-th time, or 0 for at once. The wait counts
    from the start of the run that failed, or from its end if it never started, so that what ran long waits no more."""
    delay_ns = backoff.delay_ns(wait_count)
    due_ns = (started_ns or ended_ns) + delay_ns
    if not delay_ns or due_ns <= ended_ns:
        return 0
    return -(-due_ns // BATCH_GRID_NS) * BATCH_GRID_NS
