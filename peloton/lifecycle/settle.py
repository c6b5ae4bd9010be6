"""Settling of a job: from the job and its pods, counted by all relevant fields, to a plan.

Storage counts the pods, applies the plan and counts again; doubles of storage do the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from peloton.lifecycle import deadline
from peloton.lifecycle.gang_fate import Fate, SharedFate, has_failed_finally
from peloton.lifecycle.guards import Condition, In
from peloton.lifecycle.job import admit_count, has_started, is_ending, roll_up
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import (
    CONFIG_OUTDATED,
    DUE,
    GOAL_ALIVE,
    GOAL_DELETED,
    GOAL_ENDED,
    GONE,
    HAS_NO_NEXT_RUN,
    INITIALIZED,
    MISSED,
    NOT_DUE,
    ON_REQUEST,
    QUEUED,
    READY,
    RUN_SUPERSEDED,
    TIMED,
    UNQUEUED_END,
    UNTHROTTLED,
    UNWANTED,
    WAITS,
    state,
)
from peloton.model.job import JOB_TERMINAL, JobProgress, JobRecord, JobState, JobType
from peloton.model.pod import PodRecord, PodState
from peloton.model.times import NS_PER_S

SETTLE_PODS_MAX = 1_000
"""Maximum pods that one settle changes."""
STOP_MESSAGE = "Task stop API request"
FLAGS = (GOAL_ENDED, GOAL_DELETED, RUN_SUPERSEDED, CONFIG_OUTDATED, HAS_NO_NEXT_RUN, NOT_DUE)
"""Conditions on a pod that settling uses in addition to the state."""

_NEEDS_PLACE = INITIALIZED & GOAL_ALIVE  # a position in a queue
_NEEDS_HOST = (INITIALIZED | READY) & GOAL_ALIVE  # daemons, which have no queue
_ON_ITS_WAY = GOAL_ALIVE & (
    READY | (state(PodState.LAUNCHED, PodState.STARTING) & ~RUN_SUPERSEDED)
)  # between admission and running
_SERVES = state(PodState.RUNNING, PodState.SUCCEEDED) & ~RUN_SUPERSEDED
_LEAVES_QUEUE = QUEUED & (GOAL_ENDED | CONFIG_OUTDATED)


# -- counts --------------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """Pods that are equal in all fields that settling uses."""

    state: PodState
    in_gang: bool  # members of a gang of several
    flags: frozenset[Condition]  # true conditions of FLAGS

    def meets(self, condition: Condition) -> bool:
        return condition.evaluate(self._holds)

    def _holds(self, leaf: Condition) -> bool:
        if isinstance(leaf, In) and leaf.column == "state":
            return self.state in leaf.values
        assert leaf in FLAGS, f"pods are not counted by {leaf}"
        return leaf in self.flags


@dataclass(frozen=True, slots=True)
class Counted:
    """Pods of one kind. Times are 0 if no pod has one."""

    kind: Kind
    count: int
    first_start_ns: int
    last_end_ns: int
    first_due_ns: int
    run_seconds: float
    first_run: int  # run of instance 0, if it is included


@dataclass(frozen=True, slots=True)
class PodCounts:
    """All pods of a job at one moment. Times are 0 if no pod has one."""

    kinds: Mapping[Kind, int]
    oldest_start_ns: int = 0  # start of the oldest RUNNING pod without an ending goal
    first_start_ns: int = 0
    last_end_ns: int = 0
    next_due_ns: int = 0  # earliest next run of an ended pod
    run_seconds: float = 0.0
    first_run: int = 0  # run of instance 0
    controller: PodState | None = None  # state of instance 0 in a controller job

    @classmethod
    def of(cls, counted: Iterable[Counted], controller: PodState | None = None) -> PodCounts:
        rows = list(counted)
        return cls(
            kinds={row.kind: row.count for row in rows},
            oldest_start_ns=_earliest(row.first_start_ns for row in rows if row.kind.meets(TIMED)),
            first_start_ns=_earliest(row.first_start_ns for row in rows),
            last_end_ns=max((row.last_end_ns for row in rows), default=0),
            next_due_ns=_earliest(row.first_due_ns for row in rows if row.kind.meets(WAITS)),
            run_seconds=sum(row.run_seconds for row in rows),
            first_run=max((row.first_run for row in rows), default=0),
            controller=controller,
        )

    def has(self, condition: Condition) -> bool:
        return any(kind.meets(condition) for kind in self.kinds)

    def count(self, condition: Condition, in_gang: bool | None = None) -> int:
        """Count the pods that meet the condition; ``in_gang`` None: members or not."""
        kinds = self.kinds.items()
        return sum(n for kind, n in kinds if kind.meets(condition) and in_gang in (None, kind.in_gang))

    def with_times_of(self, before: PodCounts) -> PodCounts:
        """Return the counts with the job's first start and last end, which pods drop when their next run begins."""
        first_start_ns = _earliest((before.first_start_ns, self.first_start_ns))
        return replace(self, first_start_ns=first_start_ns, last_end_ns=max(before.last_end_ns, self.last_end_ns))


def _earliest(times_ns: Iterable[int]) -> int:
    return min((time_ns for time_ns in times_ns if time_ns), default=0)


def kind_of(pod: PodRecord, gang_size: int, now_ns: int) -> Kind:
    flags = frozenset(flag for flag in FLAGS if flag.holds(pod, {"now_ns": now_ns}))
    return Kind(pod.state, pod.instance_id < gang_size > 1, flags)


class UpdateView(NamedTuple):
    """State of the update under way that the job's workflow needs."""

    update_id: str = ""
    version: int = 0
    moves: bool = False
    is_creation: bool = False  # settles roll it out while the job has not ended


@dataclass(frozen=True, slots=True)
class SettleView:
    """A job, its pods and its update at one moment."""

    job: JobRecord
    pods: PodCounts
    update: UpdateView


# -- actions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodAction:
    """An event for all pods that meet a condition."""

    event: Event
    condition: Condition
    given: Mapping[str, Any] = field(default_factory=dict)  # parameters of the event
    started_before_ns: int = 0  # only pods started earlier; 0: all pods


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """``actions`` are applied first, in this order. ``job`` and ``progress`` apply when no action is left."""

    actions: tuple[PodAction, ...]
    job: JobRecord
    progress: JobProgress
    needs_another: bool = False  # the next settle ends the rest of the gang of overdue pods

    @property
    def has_ended(self) -> bool:
        return self.job.state in JOB_TERMINAL


def plan_settle(view: SettleView, now_ns: int) -> SettlePlan:
    job = _roll_up_job(view, now_ns)
    actions = tuple(_plan_actions(view, now_ns))
    is_overdue = any(action.event is Event.EXCEED_DEADLINE for action in actions)
    return SettlePlan(actions, job, _progress(view, job, now_ns), is_overdue and job.gang_size > 1)


def _plan_actions(view: SettleView, now_ns: int) -> Iterator[PodAction]:
    job, pods = view.job, view.pods
    for event, condition in (
        (Event.BEGIN_NEXT_RUN, DUE),
        (Event.END_UNQUEUED, UNQUEUED_END),
        (Event.FORGET, GONE),
    ):
        if pods.has(condition):
            yield PodAction(event, condition)
    if is_ending(job) and pods.has(MISSED):  # after an interrupted call
        yield PodAction(Event.STOP, MISSED, {"message": STOP_MESSAGE, "reason": "", "why": ON_REQUEST, "by": ""})
    cutoff_ns = deadline.cutoff_ns(job, now_ns)
    if cutoff_ns is not None and 0 < pods.oldest_start_ns < cutoff_ns:
        yield PodAction(Event.EXCEED_DEADLINE, TIMED, started_before_ns=cutoff_ns)
    if job.type.is_rolled_out and pods.has(WAITS):  # a batch pod keeps the message of its failure
        yield PodAction(Event.THROTTLE, UNTHROTTLED)


@dataclass(frozen=True, slots=True)
class PodChange:
    """An event for these instances."""

    event: Event
    instances: Sequence[int]
    given: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SettleWork:
    """Changes of one settle in their order, at most SETTLE_PODS_MAX pods."""

    changes: tuple[PodChange, ...]
    more: bool


def find_work(
    plan: SettlePlan,
    find: Callable[[PodAction, int], list[int]],
    find_shared_fate: Callable[[int], SharedFate | None],
) -> SettleWork:
    """Find the instances of the plan's actions. ``find`` returns the first instances of an action, sorted; it is called
    with a limit one above the remaining bound to detect further ones. ``find_shared_fate`` returns at most this number
    of gang members."""
    allowed, more = SETTLE_PODS_MAX, plan.needs_another
    changes: list[PodChange] = []
    for action in plan.actions:
        instances = find(action, allowed + 1)
        more |= len(instances) > allowed
        changes.append(PodChange(action.event, instances[:allowed], action.given))
        allowed -= len(changes[-1].instances)
    if shared := find_shared_fate(max(allowed, 1)):
        more |= shared.more
        changes = [_drop_ending_members(change, shared) for change in changes]
        words: dict[str, Any] = {"message": shared.message, "reason": shared.reason, "why": shared.why}
        event = Event.RERUN_WITH_GANG
        if shared.fate is Fate.END:
            event, words["by"] = Event.STOP, ""
        changes.insert(0, PodChange(event, shared.instances, words))
    return SettleWork(tuple(change for change in changes if change.instances), more)


def _drop_ending_members(change: PodChange, shared: SharedFate) -> PodChange:
    """Return the change without members that end with their gang and have no next run."""
    if change.event is not Event.BEGIN_NEXT_RUN or shared.fate is not Fate.END:
        return change
    ending = set(shared.instances)
    return replace(change, instances=[i for i in change.instances if i not in ending])


def _roll_up_job(view: SettleView, now_ns: int) -> JobRecord:
    job, pods = view.job, view.pods
    counts: Counter[PodState] = Counter()
    resting: Counter[PodState] = Counter()
    gang_failed = job.goal is not JobState.KILLED and any(map(_is_failed_member, pods.kinds))
    for kind, count in pods.kinds.items():
        counts[kind.state] += count
        if gang_failed and kind.in_gang and kind.state is PodState.KILLED:
            resting[PodState.FAILED] += count  # it was killed because another member failed
        else:
            resting[kind.state if kind.meets(HAS_NO_NEXT_RUN) else PodState.INITIALIZED] += count
    state = roll_up(job, resting, pods.controller)
    unmarked = is_ending(job) and pods.has(MISSED)
    started_ns = job.started_ns
    if not started_ns and has_started(counts):
        # Pods may end before a report that they run; the job then starts no later than they end. Clusters have their
        # own clocks, and Kubernetes reports whole seconds, so the start is never before the creation.
        started_ns = max(pods.first_start_ns or pods.last_end_ns or now_ns, job.created_ns)
    return replace(
        job,
        state=state,
        pod_counts=dict(counts),
        state_version=job.state_version if unmarked else job.desired_state_version,
        started_ns=started_ns,
        completed_ns=max(pods.last_end_ns or now_ns, started_ns) if state in JOB_TERMINAL else 0,
        run_seconds=pods.run_seconds,
        gang_requeue_count=0 if _is_serving_whole(pods) else job.gang_requeue_count,
    )


def _is_failed_member(kind: Kind) -> bool:
    return kind.in_gang and has_failed_finally(kind.state, not kind.meets(HAS_NO_NEXT_RUN))


def _is_serving_whole(pods: PodCounts) -> bool:
    members = [kind for kind in pods.kinds if kind.in_gang]
    return bool(members) and all(kind.meets(_SERVES) for kind in members)


def end_progress(job: JobRecord, update: UpdateView) -> JobProgress:
    """Return the progress of a job in a terminal state."""
    return JobProgress(
        job.state,
        _counts_by_name(job),
        is_unwanted=job.goal is JobState.DELETED,
        update_id=update.update_id,
        update_version=update.version,
        update_moves=update.moves,
        revision=job.revision,
    )


def _progress(view: SettleView, job: JobRecord, now_ns: int) -> JobProgress:
    if job.state in JOB_TERMINAL:
        return end_progress(job, view.update)
    pods, counts, is_daemon = view.pods, _counts_by_name(job), job.type is JobType.DAEMON
    update = UpdateView() if view.update.is_creation else view.update
    return JobProgress(
        state=job.state,
        counts=counts,
        missing_count=0 if job.update_id else max(0, job.instance_count - sum(counts.values())),
        admit_count=admit_count(job, job.pod_counts, pods.count(_NEEDS_PLACE), pods.count(_NEEDS_PLACE, in_gang=True)),
        ready_count=0 if is_daemon else pods.count(READY & GOAL_ALIVE, in_gang=False),
        kill_count=pods.count(_LEAVES_QUEUE | UNWANTED),
        queued_kill_count=pods.count(_LEAVES_QUEUE),
        update_id=update.update_id,
        update_version=update.version,
        update_moves=update.moves,
        deadline_s=_next_wait_s(view, now_ns),
        gang_run=pods.first_run if pods.count(_ON_ITS_WAY, in_gang=True) else 0,
        follows_hosts=is_daemon and not is_ending(job),
        hosts_wait=is_daemon and bool(pods.count(_NEEDS_HOST)),
        creation_id=view.update.update_id if view.update.is_creation else "",
        revision=job.revision,
    )


def _counts_by_name(job: JobRecord) -> dict[str, int]:
    return {state.value: count for state, count in job.pod_counts.items()}


def _next_wait_s(view: SettleView, now_ns: int) -> float:
    waits = [deadline.wait_s(view.job, view.pods.oldest_start_ns, now_ns)]
    if view.pods.next_due_ns:
        waits.append(max((view.pods.next_due_ns - now_ns) / NS_PER_S, 0.001))
    return min((wait for wait in waits if wait > 0), default=0.0)
