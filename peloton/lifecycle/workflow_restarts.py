"""Back-off of workflows that failed: each restart waits longer, while failures follow each other."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.lifecycle.backoff import Backoff
from peloton.model.times import NS_PER_S

RESTARTS = Backoff(initial_s=30, max_s=600)
COUNTED_S = 3_600
"""Failed runs count for so long. A workflow that lived for an hour between two failures begins with the first wait."""


@dataclass(frozen=True, slots=True)
class FailedRuns:
    """The runs of one workflow that failed within the last COUNTED_S, and when the last one ended."""

    count: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Restart:
    """``is_due``: the workflow may be started now."""

    is_due: bool
    due_ns: int
    reason: str
    failed: FailedRuns


def evaluate_restart(failed: FailedRuns, now_ns: int) -> Restart:
    """Decide whether a workflow without a run under way is started."""
    if not failed.count:
        return Restart(True, now_ns, "no run of it has failed lately", failed)
    due_ns = failed.ended_ns + RESTARTS.delay_ns(failed.count)
    times = "once" if failed.count == 1 else f"{failed.count} times"
    said = f"it failed {times} within {COUNTED_S // 60} min"
    if due_ns <= now_ns:
        waited_s = RESTARTS.delay_ns(failed.count) // NS_PER_S
        return Restart(True, due_ns, f"{said}, and has waited for {waited_s} s", failed)
    left_s = -(-(due_ns - now_ns) // NS_PER_S)
    return Restart(False, due_ns, f"{said}, and is started again in {left_s} s", failed)


def restart_wait_s(failed_count: int) -> float:
    """Return how long a workflow waits that has failed so many times in a row."""
    return RESTARTS.delay_ns(failed_count) / NS_PER_S
