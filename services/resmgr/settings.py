"""The pace and the bounds of the admission loop, and of the mover of host pools."""

from __future__ import annotations

from dataclasses import dataclass, field

from peloton.errors import InvalidArgument
from peloton.scheduling.backfill import BACKFILL_MAX_S
from peloton.scheduling.mover import MoverPolicy
from services.settings import Settings

MOVED_PER_HOUR_MAX = 1_000
MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The settings of the loop: periods in seconds, bounds in pods or rows. Raises InvalidArgument for a negative
    backfill."""

    cycle_period_s: float = 0.1  # at most one cycle in this time
    quiet_period_s: float = 1.0  # between reads of the log of ended pods, while no gang waits
    entitlement_period_s: float = 5.0  # at least one cycle in this time
    capacity_period_s: float = 5.0
    retry_period_s: float = 1.0  # after an error
    prune_period_s: float = 60.0
    admitted_pods_max: int = 5_000  # in one cycle
    enqueued_pods_max: int = 50_000  # in one call
    log_rows_max: int = 20_000  # in one read
    preempts: bool = True
    preemption_period_s: float = 60.0  # between rounds of preemption
    sustained_over_count: int = 5  # rounds in a row above its entitlement after which pods of a pool are preempted
    evicted_pods_max: int = 10_000  # in one round
    checks_invariants: bool = False  # after each cycle
    backfill_s: int = BACKFILL_MAX_S  # seconds for which a waiting gang may be passed; 0: never

    def log_poll_s(self, has_waiting: bool, is_busy: bool) -> float:
        """Return the seconds until the log of ended pods is read, if nothing has it read before."""
        if not is_busy:
            return self.entitlement_period_s
        return self.cycle_period_s if has_waiting else self.quiet_period_s

    def __post_init__(self) -> None:
        if self.backfill_s < 0:
            raise InvalidArgument(f"PELOTON_BACKFILL_S={self.backfill_s}: want at least 0")


@dataclass(frozen=True, slots=True)
class MoverSettings:
    """The settings of the mover. A host that is not empty ``give_up_s`` after its decision stays in its host pool.

    Raises InvalidArgument for contradictory numbers; NaN fails every comparison.
    """

    policy: MoverPolicy = field(default_factory=MoverPolicy)
    period_s: float = 10.0
    give_up_s: float = 3_600.0

    def __post_init__(self) -> None:
        policy, forever = self.policy, float("inf")
        target, high, marked = policy.target_percent, policy.high_percent, policy.hot_share_percent
        urgent, take, settle = policy.take_after_red_s, policy.take_after_s, policy.settle_s
        back, back_max = policy.return_after_s, policy.return_after_max_s
        at_a_time, an_hour = policy.hosts_at_a_time, policy.hosts_per_hour
        for is_meant, numbers, wanted in (
            (0 < target < high <= 100, {"TARGET_PERCENT": target, "HIGH_PERCENT": high}, "0 < target < high <= 100"),
            (0 <= marked <= 100, {"MARKED_PERCENT": marked}, "0 to 100"),
            (
                0 <= urgent <= take < forever,
                {"TAKE_AFTER_URGENT_S": urgent, "TAKE_AFTER_S": take},
                "at least 0, and the first no more than the second",
            ),
            (
                0 < back <= back_max < forever,
                {"RETURN_AFTER_S": back, "RETURN_AFTER_MAX_S": back_max},
                "more than 0, and the first no more than the second",
            ),
            (0 <= settle < forever, {"SETTLE_S": settle}, "at least 0"),
            (
                1 <= at_a_time <= an_hour <= MOVED_PER_HOUR_MAX,
                {"HOSTS_AT_A_TIME": at_a_time, "HOSTS_PER_HOUR": an_hour},
                f"1 to {MOVED_PER_HOUR_MAX}, and the first no more than the second",
            ),
            (0 < self.period_s < forever, {"PERIOD_S": self.period_s}, "more than 0"),
            (0 < self.give_up_s < forever, {"GIVE_UP_S": self.give_up_s}, "more than 0"),
        ):
            if not is_meant:
                found = ", ".join(f"PELOTON_MOVER_{name}={number:g}" for name, number in numbers.items())
                raise InvalidArgument(f"{found}: want {wanted}")


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """The settings of the recorder. ``period_s``: between samples; 0: there are none. Raises InvalidArgument."""

    period_s: int = 60

    def __post_init__(self) -> None:
        if self.period_s < 0 or (self.period_s and MINUTE_S % self.period_s):
            raise InvalidArgument(
                f"PELOTON_HISTORY_PERIOD_S={self.period_s}: want 0, or seconds that divide a minute, such as 60 or 15"
            )


def mover_settings(settings: Settings) -> MoverSettings:
    """Return the settings of the mover. Raises InvalidArgument."""
    policy = MoverPolicy(
        settings.mover_high_percent,
        settings.mover_target_percent,
        settings.mover_marked_percent,
        settings.mover_take_after_s,
        settings.mover_take_after_urgent_s,
        settings.mover_return_after_s,
        settings.mover_return_after_max_s,
        settings.mover_settle_s,
        settings.mover_hosts_at_a_time,
        settings.mover_hosts_per_hour,
    )
    return MoverSettings(policy, settings.mover_period_s, settings.mover_give_up_s)
