"""Shared fate of a gang, which runs and ends as a whole: effects of one member's end or restart on the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from peloton.lifecycle.gang import Member, Members, member_of
from peloton.model.pod import (
    ENDING_GOALS,
    ON_HOST,
    TERMINAL,
    NextRun,
    PodRecord,
    PodState,
    Termination,
    TerminationReason,
)

RESTART_REASON = "REASON_GANG_RESTARTED"


class Fate(StrEnum):
    NONE = "none"
    RESTART = "restart"  # a member is restarted, so all are
    END = "end"  # a member has failed or is stopped, so all end


def fate(members: Members) -> Fate:
    if any(is_cause_of_end(member) for member in members):
        return Fate.END
    return Fate.RESTART if any(is_cause_of_restart(member) for member in members) else Fate.NONE


def is_cause_of_end(member: Member) -> bool:
    """Return whether the member will never succeed, so that the gang fails."""
    if member.state is PodState.SUCCEEDED:
        return False
    return member.is_to_end or (member.state in TERMINAL and member.next_run is NextRun.NONE)


def is_cause_of_restart(member: Member) -> bool:
    """Return whether the member is restarted or will be, or waits to be queued, which a gang does as a whole."""
    if member.state in TERMINAL:
        return member.next_run is not NextRun.NONE
    return member.state is PodState.INITIALIZED or (member.state in ON_HOST and member.wants_newer)


def is_affected(member: Member, fate: Fate) -> bool:
    """Return whether the member has to be changed to share the gang's fate. READY and PENDING members of a gang that
    restarts are requeued by the resource manager."""
    rests = member.state in TERMINAL and member.next_run is NextRun.NONE
    if member.is_to_end or fate is Fate.NONE:
        return False
    if fate is Fate.END:
        return not rests
    return rests or (member.state in ON_HOST and not member.wants_newer)


def has_failed_finally(state: PodState, runs_again: bool) -> bool:
    """Return whether the member has failed without another run, so that its gang has failed."""
    return state in (PodState.FAILED, PodState.LOST) and not runs_again


@dataclass(frozen=True, slots=True)
class SharedFate:
    """Fate of ``instances``, with the message and reason of the member that caused it."""

    fate: Fate
    instances: list[int]
    message: str
    reason: str
    why: Termination
    more: bool = False  # more members share it


def decide_fate(pods: Sequence[PodRecord], allowed: int) -> SharedFate | None:
    """Return the fate of at most ``allowed`` members of a gang, given all of them; None if no member has to change."""
    members = [member_of(pod) for pod in pods]
    what = fate(Counter(members))
    affected = [pod.instance_id for pod, member in zip(pods, members, strict=True) if is_affected(member, what)]
    if not affected:
        return None
    is_cause = is_cause_of_end if what is Fate.END else is_cause_of_restart
    cause = next(pod for pod, member in zip(pods, members, strict=True) if is_cause(member))
    expected = "to be killed" if cause.goal in ENDING_GOALS else cause.state.value
    end = f"instance {cause.instance_id} is {expected}"
    words = " ".join(f"{cause.message} {cause.reason}".split())
    more = len(affected) > allowed
    if what is Fate.END:
        why = Termination(cause.termination.reason if cause.termination else TerminationReason.FAILED)
        return SharedFate(what, affected[:allowed], f"Gang ends: {end}, {words}", f"Gang ends: {end}", why, more)
    why = Termination(TerminationReason.KILLED_FOR_RESTART)
    return SharedFate(what, affected[:allowed], f"Gang restarted: {end}, {words}", RESTART_REASON, why, more)
