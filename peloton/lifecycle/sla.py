"""SLA of a service: decides whether an instance may be taken down now.

Maintenance, preemption, rebalancing, and restarts and updates under the SLA call ``grant`` in the transaction that
takes the pod down, so that two of them never use the same spare instance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from peloton.model.pod import ENDING_GOALS, HealthState, PodRecord, PodState, TerminationReason
from peloton.model.reason import SlaRefusal

TAKEN_DOWN = frozenset(
    {TerminationReason.KILLED_HOST_MAINTENANCE, TerminationReason.KILLED_FOR_UPDATE, TerminationReason.FAILED}
)
HEALTHY_ENOUGH = frozenset({HealthState.HEALTHY, HealthState.DISABLED})


class Availability(StrEnum):
    """Availability of an instance. Values are the wire's."""

    INVALID = "INVALID"  # there is no such pod
    AVAILABLE = "AVAILABLE"
    UNAVAILABLE = "UNAVAILABLE"
    KILLED = "KILLED"
    DELETED = "DELETED"


def availability(pod: PodRecord | None) -> Availability:
    """Return the availability of a pod; the first rule that applies decides."""
    if pod is None:
        return Availability.INVALID
    if pod.goal is PodState.DELETED:
        return Availability.DELETED
    if pod.goal is PodState.KILLED:
        return Availability.KILLED
    if pod.termination is not None:
        return Availability.UNAVAILABLE if pod.termination.reason in TAKEN_DOWN else Availability.KILLED
    if pod.desired_run_id > pod.run_id or pod.desired_config_version != pod.config_version:
        return Availability.KILLED
    is_up = pod.state is PodState.RUNNING and pod.goal is PodState.RUNNING and pod.health in HEALTHY_ENOUGH
    return Availability.AVAILABLE if is_up else Availability.UNAVAILABLE


def is_missing(pod: PodRecord) -> bool:
    """Return whether the pod is wanted and does not serve, for any reason, and so counts against the SLA.

    The rule is stricter than ``availability``, in which an instance that is being restarted is KILLED.
    """
    return pod.goal not in ENDING_GOALS and availability(pod) is not Availability.AVAILABLE


@dataclass(frozen=True, slots=True)
class Grant:
    """Wanted instances that may be taken down now; ``refusal`` says why the others may not."""

    granted: tuple[int, ...]
    refused: tuple[int, ...] = ()
    refusal: SlaRefusal | None = None


def grant(maximum: int, missing: Collection[int], wanted: Collection[int], missing_count: int | None = None) -> Grant:
    """Return the instances that may be taken down. ``maximum``: instances of the job that may be missing at a time, 0 =
    any number. ``missing``: all missing instances, or the missing ones of the wanted with the number of all.

    An instance that is already missing may always be taken down.
    """
    away = len(missing) if missing_count is None else missing_count
    order = sorted(wanted)
    if maximum == 0:
        return Grant(tuple(order))
    allowed = max(maximum - away, 0)
    granted, refused = [], []
    for instance in order:
        if instance in missing:
            granted.append(instance)
        elif allowed > 0:
            granted.append(instance)
            allowed -= 1
        else:
            refused.append(instance)
    refusal = refuse(maximum, away, len(refused)) if refused else None
    return Grant(tuple(granted), tuple(refused), refusal)


def refuse(maximum: int, missing: int, refused: int) -> SlaRefusal:
    """Return the refusal of ``refused`` instances; they are counted only while others may still be taken down."""
    return SlaRefusal(maximum, missing, refused if missing < maximum else 0)


def available_min(maximum: int, here: int, missing_elsewhere: int) -> int:
    """Return how many of the ``here`` wanted instances in a cluster must stay available during evictions by others;
    instances missing elsewhere use up a part of the ``maximum``."""
    return here - min(max(maximum - missing_elsewhere, 0), here)


def missing_of(pods: Mapping[int, PodRecord]) -> frozenset[int]:
    return frozenset(instance for instance, pod in pods.items() if is_missing(pod))
