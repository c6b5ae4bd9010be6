"""The ramp of a new version of the workers: steps by percent of the workflows, passed after tasks without failure.

A version is measured by what its workers report in their heartbeats: tasks that they processed and tasks that failed,
since they started. A worker that crashes takes its counts along, so that a version whose workers do not stay up never
passes a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum

from peloton.lifecycle.worker_versions import UNVERSIONED


class Promotion(StrEnum):
    """The setting: Peloton passes steps by itself, or a person does."""

    AUTO = "auto"
    MANUAL = "manual"


@dataclass(frozen=True)
class Step:
    """A share of the workflows, and the bounds at which a version leaves it for the next step."""

    percent: int
    tasks: int  # done by workers that are up, since they started
    up_s: float  # of the worker that is up longest, within this step


STEPS = (Step(5, 20, 60.0), Step(25, 200, 120.0))
"""Shares of a version while it proves itself; after the last one it is current."""
QUIET_S = 600.0
"""Seconds within a step after which a version passes that had fewer tasks, and no failure."""
CRASHES_MAX = 3
"""Crashes of its workers within ``CRASH_WINDOW_S`` of their start with which a version is given up."""
CRASH_WINDOW_S = 3600.0
UNHEARD_S = 20.0
"""Seconds after its start within which a worker may not have sent a heartbeat yet."""
FAILED_WORKFLOW_TASKS_MAX = 5
"""Failed workflow tasks that a version may have before it is given up, if they are more than ``FAILED_SHARE`` of all. A
workflow task fails by faults of code, and never by those of what activities call."""
FAILED_SHARE = 0.01
EXTRA_FAILED_SHARE = 0.1
"""Share by which the failed activities of a version may exceed those of the current one; beyond it the step is held."""


@dataclass(frozen=True)
class Tasks:
    """Tasks of one kind since the workers that are up started."""

    done: int = 0
    failed: int = 0

    @property
    def failed_share(self) -> float:
        return self.failed / max(self.done + self.failed, 1)


@dataclass(frozen=True)
class Version:
    """A version of the workers. Times are unix seconds, and 0 where they are not known."""

    build: str
    created_s: float  # when the server saw it first
    since_s: float = 0.0  # in its present state
    is_draining: bool = False
    workers: int = 0  # processes that are up
    up_since_s: float = 0.0  # of the worker that is up longest
    workflow_tasks: Tasks = field(default_factory=Tasks)
    activities: Tasks = field(default_factory=Tasks)
    crashes: int = 0
    verdict: str = ""  # the reason why it was given up

    @property
    def done(self) -> int:
        return self.workflow_tasks.done + self.activities.done

    @property
    def failed(self) -> int:
        return self.workflow_tasks.failed + self.activities.failed


@dataclass(frozen=True)
class Fleet:
    """All versions, and which of them workflows run on."""

    current: str
    at_work: Set[str]  # versions with a worker
    versions: Mapping[str, Version] = field(default_factory=dict)  # all that are at work, current or ramping
    ramping: str = UNVERSIONED
    percent: float = 0.0
    step_since_s: float = 0.0
    token: bytes = b""  # of this state: an act on another one is refused

    @property
    def given_up(self) -> Set[str]:
        return {build for build, one in self.versions.items() if one.verdict}

    @property
    def is_served(self) -> bool:
        return self.current != UNVERSIONED and self.current in self.at_work

    def version(self, build: str) -> Version:
        return self.versions.get(build) or Version(build, 0.0)

    def oldest_first(self, builds: Set[str]) -> list[str]:
        """Return versions in the order in which the server saw them first."""
        return sorted(builds, key=lambda build: (self.version(build).created_s, build))

    def newer_than(self, build: str) -> list[str]:
        """Return versions with workers that the server saw later, the oldest first."""
        ordered = self.oldest_first((self.at_work | {build}) - {UNVERSIONED})
        return ordered[ordered.index(build) + 1 :]


class Act(StrEnum):
    HOLD = "hold"
    RAMP = "ramp"
    MAKE_CURRENT = "make current"
    STOP_RAMP = "stop ramp"
    GIVE_UP = "give up"


class State(StrEnum):
    """States of a version, as people see them."""

    CURRENT = "CURRENT"
    RAMPING = "RAMPING"
    WAITING = "WAITING"  # has workers that run nothing new
    GIVEN_UP = "GIVEN_UP"
    DRAINING = "DRAINING"  # still has workflows
    IDLE = "IDLE"  # has neither


@dataclass(frozen=True)
class Decision:
    act: Act
    build: str
    reason: str
    percent: float = 0.0


@dataclass(frozen=True)
class Outlook:
    """The fleet, and what happens to it next."""

    fleet: Fleet
    decision: Decision
    promotion: Promotion

    def reason_of(self, build: str) -> str:
        """Return what a version waits for, or why it was given up; "" where neither holds."""
        verdict = self.fleet.version(build).verdict
        return verdict or (self.decision.reason if build == self.decision.build else "")

    def percent_of(self, build: str) -> float:
        """Return the share of the workflows that a version runs."""
        if build == self.fleet.ramping:
            return self.fleet.percent
        return 100.0 - self.fleet.percent if build == self.fleet.current else 0.0


BY_HAND = "waits for `peloton admin worker promote`"


def decide(
    fleet: Fleet, now_s: float, promotion: Promotion = Promotion.AUTO, steps: Sequence[Step] = STEPS
) -> Decision:
    """Decide the next step of the fleet. A version that is given up is chosen only where no other one has workers. With
    manual promotion only the first version of all becomes current by itself."""
    if not fleet.is_served:
        up = fleet.at_work - {UNVERSIONED}
        if successors := fleet.oldest_first(up - fleet.given_up) or fleet.oldest_first(up):
            gone = f"version {fleet.current} has no worker" if fleet.current else "no version is current"
            if fleet.current and promotion is Promotion.MANUAL:
                return Decision(Act.HOLD, successors[-1], f"{gone}; {BY_HAND}")
            return Decision(Act.MAKE_CURRENT, successors[-1], gone)
        return Decision(Act.HOLD, fleet.current, "no version has a worker")
    newer = [build for build in fleet.newer_than(fleet.current) if build not in fleet.given_up]
    sound = fleet.oldest_first(fleet.at_work - fleet.given_up - {UNVERSIONED})
    if fleet.current in fleet.given_up and sound and not fleet.ramping:
        return Decision(Act.MAKE_CURRENT, sound[-1], f"version {fleet.current} was given up")
    if fleet.ramping:
        return _stop_of_ramp(fleet, newer) or _next_step(fleet, now_s, promotion, steps)
    if not newer:
        return Decision(Act.HOLD, fleet.current, "")
    newest = newer[-1]
    if fault := _fault(fleet.version(newest)):
        return Decision(Act.GIVE_UP, newest, fault)
    if promotion is Promotion.MANUAL:
        return Decision(Act.HOLD, newest, BY_HAND)
    return Decision(Act.RAMP, newest, f"newer than version {fleet.current}", steps[0].percent)


def state_of(fleet: Fleet, build: str) -> State:
    """Return the state of a version."""
    version = fleet.version(build)
    if build == fleet.current:
        return State.CURRENT
    if build == fleet.ramping:
        return State.RAMPING
    if version.verdict:
        return State.GIVEN_UP
    if version.is_draining:
        return State.DRAINING
    return State.WAITING if build in fleet.at_work else State.IDLE


def rollback(fleet: Fleet) -> Decision:
    """Decide what a rollback does: it gives the ramping version up, or goes back from the current one to the newest
    older one that has workers. Raises ValueError where there is none."""
    if fleet.ramping:
        return Decision(Act.GIVE_UP, fleet.ramping, "rolled back by a person")
    if not fleet.current:
        raise ValueError("no version of the workers is current: there is nothing to roll back")
    newer = {fleet.current, UNVERSIONED, *fleet.newer_than(fleet.current)}
    older = fleet.oldest_first(fleet.at_work - newer - fleet.given_up)
    if not older:
        raise ValueError(
            f"no version older than the current one, {fleet.current}, has a worker: start workers of the "
            "release before, then roll back"
        )
    return Decision(Act.MAKE_CURRENT, older[-1], f"version {fleet.current} was rolled back by a person")


def promote(fleet: Fleet, build: str, percent: float = 0.0) -> Decision:
    """Decide what a person's promotion does: the version runs ``percent`` of the workflows, or all at 0. Raises
    ValueError for a version that cannot."""
    if build not in fleet.at_work or build == UNVERSIONED:
        up = ", ".join(fleet.oldest_first(fleet.at_work - {UNVERSIONED})) or "none"
        raise ValueError(f"version {build} has no worker; versions that have: {up}")
    if build == fleet.current and percent:
        raise ValueError(f"version {build} is current: only another version can run {percent:g} % of the workflows")
    act = Act.RAMP if percent else Act.MAKE_CURRENT
    return Decision(act, build, "promoted by a person", percent)


def count_crashes(starts: Iterable[tuple[str, float]], up: Set[str], now_s: float) -> int:
    """Count the workers that crashed within ``CRASH_WINDOW_S`` of their start: those that vanished on a host on which
    others did so as well. One alone may have gone with its machine, as may those of many hosts at the same time.

    ``starts`` are identities, which begin with role and host, and unix seconds, without those that stopped in order;
    ``up`` are the identities that send heartbeats. Of one identity only the latest start can be up."""
    starts = sorted(starts, key=lambda start: start[1])
    newest, since_s = dict(starts), now_s - CRASH_WINDOW_S
    vanished = Counter(
        host_of(who)
        for who, at_s in starts
        if since_s < at_s and (at_s < newest[who] or (who not in up and at_s < now_s - UNHEARD_S))
    )
    return sum(count for count in vanished.values() if count > 1)


def host_of(identity: str) -> str:
    """Return role and host of ``worker@host/process``."""
    return identity.partition("/")[0]


def _fault(version: Version) -> str:
    """Return why the version is given up; "" when it is not."""
    tasks = version.workflow_tasks
    if version.crashes >= CRASHES_MAX:
        return f"{version.crashes} of its workers crashed within {CRASH_WINDOW_S / 60:.0f} min of their start"
    if tasks.failed >= FAILED_WORKFLOW_TASKS_MAX and tasks.failed_share > FAILED_SHARE:
        return f"{tasks.failed} of {tasks.done + tasks.failed} workflow tasks failed"
    return ""


def _stop_of_ramp(fleet: Fleet, newer: Sequence[str]) -> Decision | None:
    """Decide to end the ramp that is under way; None while nothing speaks against it."""
    version = fleet.version(fleet.ramping)
    if version.verdict:
        return Decision(Act.STOP_RAMP, fleet.ramping, f"given up: {version.verdict}")
    if fault := _fault(version):
        return Decision(Act.GIVE_UP, fleet.ramping, fault)
    if fleet.ramping not in fleet.at_work:
        return Decision(Act.STOP_RAMP, fleet.ramping, "it has no worker")
    if newer and newer[-1] != fleet.ramping:
        return Decision(Act.STOP_RAMP, fleet.ramping, f"version {newer[-1]} is newer")
    return None


def _next_step(fleet: Fleet, now_s: float, promotion: Promotion, steps: Sequence[Step]) -> Decision:
    version = fleet.version(fleet.ramping)
    if promotion is Promotion.MANUAL:
        return Decision(Act.HOLD, fleet.ramping, BY_HAND, fleet.percent)
    step = ([steps[0], *(step for step in steps if step.percent <= fleet.percent)])[-1]
    if lacking := _lacking(fleet, version, step, now_s):
        return Decision(Act.HOLD, fleet.ramping, lacking, fleet.percent)
    proof = f"{version.done} tasks done, {version.failed} failed"
    if further := [step.percent for step in steps if step.percent > fleet.percent]:
        return Decision(Act.RAMP, fleet.ramping, proof, further[0])
    return Decision(Act.MAKE_CURRENT, fleet.ramping, proof)


def _lacking(fleet: Fleet, version: Version, step: Step, now_s: float) -> str:
    """Return what the version lacks to leave the step; "" when it may."""
    up_s = now_s - max(version.up_since_s, fleet.step_since_s)
    tasks, activities = version.workflow_tasks, version.activities
    usual = fleet.version(fleet.current).activities.failed_share
    if not version.up_since_s:
        return "none of its workers has reported yet"
    if tasks.failed_share > FAILED_SHARE:
        return f"{tasks.failed} of {tasks.done + tasks.failed} workflow tasks failed"
    if activities.failed_share > usual + EXTRA_FAILED_SHARE:
        total = activities.done + activities.failed
        return f"{activities.failed} of {total} activities failed, {usual:.0%} on version {fleet.current}"
    if up_s < step.up_s:
        return f"up for {max(up_s, 0.0):.0f} of {step.up_s:.0f} s"
    if version.done < step.tasks and up_s < QUIET_S:
        return f"{version.done} of {step.tasks} tasks done, or {QUIET_S / 60:.0f} min without trouble"
    return ""
