"""Conditions that an update waits for, in words."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.model.aurora_update import aurora_update
from peloton.model.reason import SlaRefusal
from peloton.model.update import UpdateRecord, UpdateState, UpdateType

TO_RESUME = "an operator to resume it"
_NAMED_MAX = 3


def update_wait_text(update: UpdateRecord) -> str:
    """Describe the condition that an update waits for since its last step, without durations that change during the
    wait; empty for an ended update."""
    if not update.is_active:
        return ""
    if update.state is UpdateState.PAUSED:
        aurora = aurora_update(update.opaque_data)
        return f"the first pulse of Aurora's update {aurora.update_id}" if aurora and aurora.awaits_pulse else TO_RESUME
    if update.refusal is not None:
        return f"the SLA: {sla_text(update.refusal)}"
    texts = [in_flight_text(update)]
    if update.awaits_pulse:
        texts.append(f"a pulse: none has come for {update.spec.pulse_s} s" if update.pulsed_ns else "its first pulse")
    return " and for ".join(filter(None, texts))


def in_flight_text(update: UpdateRecord) -> str:
    """Describe the goal of the instances in flight; empty if there are none."""
    goal = "to end" if update.type is UpdateType.STOP else "to run and be healthy"
    parts = (update.current - update.removed, goal), (update.current & update.removed, "to end")
    return " and for ".join(f"{instances_text(instances)} {verb}" for instances, verb in parts if instances)


def sla_text(refusal: SlaRefusal) -> str:
    missing, maximum = refusal.missing, refusal.maximum
    if missing >= maximum:
        return f"{missing} of at most {maximum} instances are unavailable already"
    return f"no more than {maximum} instances may be unavailable, {missing} are, {refusal.refused} must wait"


def instances_text(instances: Iterable[int]) -> str:
    """Return the first few instances as inclusive ranges, and the number of the others."""
    ranges: list[list[int]] = []
    for instance in sorted(instances):
        if ranges and ranges[-1][1] + 1 == instance:
            ranges[-1][1] = instance
        else:
            ranges.append([instance, instance])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_NAMED_MAX]]
    more = sum(last - first + 1 for first, last in ranges[_NAMED_MAX:])
    is_single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"instance{'' if is_single else 's'} {', '.join(texts)}" + (f" and {more} more" if more else "")
