"""Launch of a gang, which starts as a whole: its progress and failure, from counts of equal members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.failed_placements import placement_timeout_s
from peloton.model.job import GangProgress
from peloton.model.pod import ENDING_GOALS, ON_HOST, QUEUED, TERMINAL, AllOf, NextRun, PodRecord, PodShape, PodState
from peloton.model.reason import RequeueReason, RequeueRule
from peloton.model.resources import Resources

REQUEUE_BACKOFF = Backoff(initial_s=30, max_s=600)
"""Backoff between failed launches of a gang and its next admission."""


class Member(NamedTuple):
    """Members that are equal in all fields relevant to the gang."""

    state: PodState
    is_to_end: bool = False  # its goal is KILLED
    wants_newer: bool = False  # a newer run is wanted
    next_run: NextRun = NextRun.NONE  # reason for the next run of an ended member


Members = Mapping[Member, int]


def member_of(pod: PodRecord) -> Member:
    return Member(pod.state, pod.goal in ENDING_GOALS, pod.desired_run_id > pod.run_id, pod.next_run)


# -- the launch ----------------------------------------------------------------------------------------------------


class Stage(StrEnum):
    """Progress of a member between admission and running."""

    QUEUED = "queued"
    READY = "ready"
    STARTING = "starting"  # committed to a host
    RUNNING = "running"
    DONE = "done"  # succeeded
    REFUSED = "refused"  # ended before it started: no host took it
    LEAVING = "leaving"  # asked to end
    ENDED = "ended"


def stage(member: Member) -> Stage:
    state = member.state
    if state in TERMINAL:
        if member.next_run is NextRun.RELAUNCH:
            return Stage.REFUSED
        return Stage.DONE if state is PodState.SUCCEEDED and member.next_run is NextRun.NONE else Stage.ENDED
    if state in QUEUED:
        return Stage.QUEUED
    is_ending = state in (PodState.KILLING, PodState.PREEMPTING) or (member.wants_newer and state in ON_HOST)
    if member.is_to_end or is_ending:
        return Stage.LEAVING
    if state is PodState.READY:
        return Stage.READY
    return Stage.RUNNING if state is PodState.RUNNING else Stage.STARTING


def progress_of(size: int, members: Members, vain_count: int = 0) -> GangProgress:
    stages: Counter[str] = Counter()
    for member, count in members.items():
        stages[stage(member).value] += count
    return GangProgress(size, dict(sorted(stages.items())), vain_count)


class Step(StrEnum):
    """Next step of a gang's launch. Values are in histories of workflows."""

    PLACE = "place"  # find hosts for all members
    START = "start"  # wait until all members run
    RUNNING = "together"  # all members run, or have succeeded: the launch is over
    REQUEUE = "requeue"  # failed: return the whole gang to the queue
    SUPERSEDED = "over"  # another decision ends or restarts the gang


@dataclass(frozen=True, slots=True)
class Verdict:
    step: Step
    reason: RequeueReason | None = None  # for a requeue

    @property
    def is_waiting(self) -> bool:
        return self.step in (Step.PLACE, Step.START)


def evaluate(gang: GangProgress, waited_s: float = 0.0, placement_s: float = 1.0, launch_s: float = 1.0) -> Verdict:
    """Return the next step of the launch, which has been at its step for ``waited_s``. Placement may take
    ``placement_s``, less after failed launches, and the start ``launch_s``."""
    verdict = _choose_step(gang)
    timeout_s = placement_timeout_s(placement_s, gang.vain_count)
    if verdict.step is Step.PLACE and waited_s >= timeout_s:
        return _requeue(gang, RequeueRule.NO_GANG_HOSTS_IN_TIME, gang.size, timeout_s)
    if verdict.step is Step.START and waited_s >= launch_s:
        runs = _count(gang, Stage.RUNNING, Stage.DONE)
        return _requeue(gang, RequeueRule.NOT_RUNNING_IN_TIME, runs, launch_s)
    return verdict


def _choose_step(gang: GangProgress) -> Verdict:
    ready = _count(gang, Stage.READY)
    refused = _count(gang, Stage.REFUSED)
    well = _count(gang, Stage.STARTING, Stage.RUNNING, Stage.DONE)
    if gang.size and ready == gang.size:
        return Verdict(Step.PLACE)
    if gang.size and well == gang.size:
        return Verdict(Step.START if _count(gang, Stage.STARTING) else Step.RUNNING)
    if refused:
        return _requeue(gang, RequeueRule.NOT_LAUNCHED, refused)
    if ready:
        return _requeue(gang, RequeueRule.LEFT_BEHIND, ready)
    return Verdict(Step.SUPERSEDED)


def _requeue(gang: GangProgress, rule: RequeueRule, count: int, seconds: float = 0.0) -> Verdict:
    return Verdict(Step.REQUEUE, RequeueReason(rule, count, gang.size, seconds))


def _count(gang: GangProgress, *stages: Stage) -> int:
    return sum(gang.stages.get(stage.value, 0) for stage in stages)


# Shapes.


def outside_gang(shape: PodShape) -> PodShape:
    """Return the shape of a pod outside the gang."""
    return replace(shape, layout=shape.layout.apart) if shape.layout else shape


def enough_for_both(a: PodShape, b: PodShape) -> PodShape:
    """Return a shape whose host suits a pod of either shape."""
    if a == b:
        return a
    rules = [rule for rule in dict.fromkeys((a.constraint, b.constraint)) if rule is not None]
    return PodShape(
        resources=Resources.each(max, a.resources, b.resources),
        port_count=max(a.port_count, b.port_count),
        revocable=a.revocable and b.revocable,
        preemptible=a.preemptible and b.preemptible,
        controller=a.controller or b.controller,
        strategy=a.strategy,
        layout=a.layout,
        preferences=a.preferences,
        constraint=None if not rules else rules[0] if len(rules) == 1 else AllOf(tuple(rules)),
    )
