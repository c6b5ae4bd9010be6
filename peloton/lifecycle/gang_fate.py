"""A gang runs whole and ends whole: what a member's end, or its wish for another run, makes of the others."""

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

RESTART_REASON = "REASON_GANG_RUNS_ANEW"


class Fate(StrEnum):
    NONE = "none"
    RESTART = "restart"  # one member runs anew, so all do
    END = "end"  # one member has failed or is stopped, so all end


def fate(members: Members) -> Fate:
    if any(fails_gang(member) for member in members):
        return Fate.END
    return Fate.RESTART if any(restarts_gang(member) for member in members) else Fate.NONE


def fails_gang(member: Member) -> bool:
    """It will never succeed: the gang neither."""
    if member.state is PodState.SUCCEEDED:
        return False
    return member.is_to_end or (member.state in TERMINAL and member.next_run is NextRun.NONE)


def restarts_gang(member: Member) -> bool:
    """It has begun, or is about, to run anew; or it waits to be queued, which a gang does whole."""
    if member.state in TERMINAL:
        return member.next_run is not NextRun.NONE
    return member.state is PodState.INITIALIZED or (member.state in ON_HOST and member.wants_newer)


def is_affected(member: Member, fate: Fate) -> bool:
    """Is something to be written of this member, so that it shares the gang's fate? READY and PENDING members of a gang
    that runs anew are the resource manager's to send back."""
    rests = member.state in TERMINAL and member.next_run is NextRun.NONE
    if member.is_to_end or fate is Fate.NONE:
        return False
    if fate is Fate.END:
        return not rests
    return rests or (member.state in ON_HOST and not member.wants_newer)


def failed_for_good(state: PodState, runs_again: bool) -> bool:
    """What one member must be for its gang to have failed."""
    return state in (PodState.FAILED, PodState.LOST) and not runs_again


@dataclass(frozen=True, slots=True)
class SharedFate:
    """``instances`` end or run anew, in the words of the member that it is for."""

    fate: Fate
    instances: list[int]
    message: str
    reason: str
    why: Termination
    more: bool = False  # others share it too


def shared_fate(pods: Sequence[PodRecord], room: int) -> SharedFate | None:
    """Of all members of a gang, at most ``room``; None when every one goes its way already."""
    members = [member_of(pod) for pod in pods]
    what = fate(Counter(members))
    affected = [pod.instance_id for pod, member in zip(pods, members, strict=True) if is_affected(member, what)]
    if not affected:
        return None
    is_cause = fails_gang if what is Fate.END else restarts_gang
    cause = next(pod for pod, member in zip(pods, members, strict=True) if is_cause(member))
    is_told = "to be killed" if cause.goal in ENDING_GOALS else cause.state.value
    end = f"instance {cause.instance_id} is {is_told}"
    words = " ".join(f"{cause.message} {cause.reason}".split())
    more = len(affected) > room
    if what is Fate.END:
        why = Termination(cause.termination.reason if cause.termination else TerminationReason.FAILED)
        return SharedFate(what, affected[:room], f"Gang ends: {end}, {words}", f"Gang ends: {end}", why, more)
    why = Termination(TerminationReason.KILLED_FOR_RESTART)
    return SharedFate(what, affected[:room], f"Gang runs anew: {end}, {words}", RESTART_REASON, why, more)
