"""The pace and the bounds of the admission loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Periods in seconds; bounds in pods or rows."""

    cycle_period_s: float = 0.1  # at most one cycle in this time
    entitlement_period_s: float = 5.0  # at least one cycle in this time
    capacity_period_s: float = 5.0
    retry_period_s: float = 1.0  # after an error
    prune_period_s: float = 60.0
    admitted_pods_max: int = 5_000  # in one cycle
    enqueued_pods_max: int = 50_000  # in one call
    log_rows_max: int = 20_000  # in one read
    preempts: bool = True
    preemption_period_s: float = 60.0  # between rounds of preemption
    sustained_over_count: int = 5  # rounds in a row above its entitlement after which a pool gives back
    evicted_pods_max: int = 10_000  # in one round
    checks_invariants: bool = False  # after each cycle
