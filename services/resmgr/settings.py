"""Settings of the admission loop, of the mover of hosts, and of the recorder of time series."""

from __future__ import annotations

from dataclasses import dataclass, field

from peloton.scheduling.backfill import BACKFILL_MAX_S
from peloton.scheduling.mover import MoverPolicy
from services.settings import Settings


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Settings of the admission loop. Periods are in seconds, bounds in pods or rows."""

    cycle_period_s: float = 0.1  # minimum time between cycles
    quiet_period_s: float = 1.0  # time between reads of the log of ended pods while no gang waits
    entitlement_period_s: float = 5.0  # maximum time between cycles
    capacity_period_s: float = 5.0
    retry_period_s: float = 1.0  # delay after an error
    prune_period_s: float = 60.0
    admitted_pods_max: int = 5_000  # in one cycle
    enqueued_pods_max: int = 50_000  # in one call
    log_rows_max: int = 20_000  # in one read
    pruned_rows_max: int = 5_000  # of the log of ended pods, in one transaction
    preempts: bool = True
    preemption_period_s: float = 60.0  # between rounds of preemption
    sustained_over_count: int = 5  # consecutive rounds above its entitlement after which a pool is preempted
    evicted_pods_max: int = 10_000  # in one round
    checks_invariants: bool = False  # check them after each cycle
    backfill_s: int = BACKFILL_MAX_S  # seconds for which other gangs may pass a waiting gang; 0: never

    def log_poll_s(self, has_waiting: bool, is_busy: bool) -> float:
        """Return the seconds after which the log of ended pods is read, unless an event triggers it earlier."""
        if not is_busy:
            return self.entitlement_period_s
        return self.cycle_period_s if has_waiting else self.quiet_period_s


@dataclass(frozen=True, slots=True)
class MoverSettings:
    """Settings of the mover. A host that is not drained ``give_up_s`` after the decision to move it stays in its host
    pool."""

    policy: MoverPolicy = field(default_factory=MoverPolicy)
    period_s: float = 10.0
    give_up_s: float = 3_600.0


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """Settings of the recorder. ``period_s`` is the time between samples; 0 disables them."""

    period_s: int = 60


def mover_settings(settings: Settings) -> MoverSettings:
    """Convert the settings of the process to those of the mover."""
    policy = MoverPolicy(
        settings.mover_high_percent,
        settings.mover_target_percent,
        settings.mover_marked_percent,
        settings.mover_take_after_s,
        take_after_red_s=settings.mover_take_after_urgent_s,
        return_after_s=settings.mover_return_after_s,
        return_after_max_s=settings.mover_return_after_max_s,
        settle_s=settings.mover_settle_s,
        hosts_at_a_time=settings.mover_hosts_at_a_time,
        hosts_per_hour=settings.mover_hosts_per_hour,
    )
    return MoverSettings(policy, settings.mover_period_s, settings.mover_give_up_s)
