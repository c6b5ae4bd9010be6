"""Backoff after failures: the delay before the next run of an instance, or before the next attempt of a call."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.times import NS_PER_S


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delay ``initial_s * 2^(failures-1)``, at most ``max_s``: 30 s, 1 m, 2 m ... 60 m by default."""

    initial_s: float = 30
    max_s: float = 3600

    @property
    def waits(self) -> bool:
        return self.initial_s > 0

    def delay_ns(self, failure_count: int) -> int:
        """Return the delay in nanoseconds after this number of failures; 0 without failures."""
        if failure_count <= 0:
            return 0
        doublings = min(failure_count - 1, 62)  # more doublings would exceed any cap
        return min(int(self.initial_s * NS_PER_S) << doublings, int(self.max_s * NS_PER_S))

    def delay_s(self, failure_count: int) -> float:
        """Return the delay in seconds after this number of failures; 0 without failures."""
        return self.delay_ns(failure_count) / NS_PER_S

    def delay_after_ns(self, failure_count: int, took_ns: int) -> int:
        """Return the delay, and no less than the duration of the last attempt within the cap."""
        return max(self.delay_ns(failure_count), min(took_ns, int(self.max_s * NS_PER_S)))


DEFAULT_BACKOFF = Backoff()
"""Backoff of services."""
NO_BACKOFF = Backoff(initial_s=0)

BATCH_GRID_NS = 5 * NS_PER_S
"""Grid of the times at which batch pods become due, which bounds the number of wake-ups of a job."""


def batch_due_ns(backoff: Backoff, wait_count: int, started_ns: int, ended_ns: int) -> int:
    """Return the time of the next run of a batch pod that waits for the ``wait_count``-th time, or 0 for at once. The
    delay counts from the start of the failed run, or from its end if it never started, so that a long run is not
    delayed."""
    delay_ns = backoff.delay_ns(wait_count)
    due_ns = (started_ns or ended_ns) + delay_ns
    if not delay_ns or due_ns <= ended_ns:
        return 0
    return -(-due_ns // BATCH_GRID_NS) * BATCH_GRID_NS
