"""What a settle does: from a job and its pods, counted by all that matters of them, to a plan.

Storage counts, applies the plan and counts again; so does whatever stands in for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from peloton.lifecycle import deadline
from peloton.lifecycle.gang_fate import Fate, SharedFate, failed_for_good
from peloton.lifecycle.guards import Condition, In
from peloton.lifecycle.job import admit_count, has_started, is_ending, roll_up
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import (
    DUE,
    ENDS,
    GONE,
    INITIALIZED,
    LATER,
    MISSED,
    NEWER,
    ON_REQUEST,
    QUEUED,
    READY,
    RESTS,
    STALE,
    STAYS,
    TIMED,
    UNQUEUED_END,
    UNTHROTTLED,
    UNWANTED,
    VANISHES,
    WAITS,
    state,
)
from peloton.model.job import JOB_TERMINAL, JobProgress, JobRecord, JobState, JobType
from peloton.model.pod import PodRecord, PodState
from peloton.model.times import NS_PER_S

SETTLE_PODS_MAX = 1_000
"""Pods that one settle changes."""
STOP_MESSAGE = "Task stop API request"
FLAGS = (ENDS, VANISHES, NEWER, STALE, RESTS, LATER)
"""What matters of a pod beside its state."""

_NEEDS_PLACE = INITIALIZED & STAYS  # in a queue
_NEEDS_HOST = (INITIALIZED | READY) & STAYS  # of a daemon, which has no queue
_ON_ITS_WAY = STAYS & (READY | (state(PodState.LAUNCHED, PodState.STARTING) & ~NEWER))  # from admission to running
_SERVES = state(PodState.RUNNING, PodState.SUCCEEDED) & ~NEWER
_LEAVES_QUEUE = QUEUED & (ENDS | STALE)


# -- what is counted -----------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """Pods alike in all that settling looks at."""

    state: PodState
    in_gang: bool  # of several
    flags: frozenset[Condition]  # those of FLAGS that hold

    def meets(self, condition: Condition) -> bool:
        return condition.judge(self._holds)

    def _holds(self, leaf: Condition) -> bool:
        if isinstance(leaf, In) and leaf.column == "state":
            return self.state in leaf.values
        assert leaf in FLAGS, f"pods are not counted by {leaf}"
        return leaf in self.flags


@dataclass(frozen=True, slots=True)
class Counted:
    """Pods of one kind. Times are 0 where no pod has one."""

    kind: Kind
    count: int
    first_start_ns: int
    last_end_ns: int
    first_due_ns: int
    run_seconds: float
    first_run: int  # of instance 0, when it is one of them


@dataclass(frozen=True, slots=True)
class PodCounts:
    """All pods of a job at one moment. Times are 0 where no pod has one."""

    kinds: Mapping[Kind, int]
    oldest_start_ns: int = 0  # of RUNNING pods that are not to end
    first_start_ns: int = 0
    last_end_ns: int = 0
    next_due_ns: int = 0  # of later runs
    run_seconds: float = 0.0
    first_run: int = 0  # of instance 0
    controller: PodState | None = None  # of instance 0, in a job that has one

    @classmethod
    def of(cls, counted: Iterable[Counted], controller: PodState | None = None) -> PodCounts:
        rows = list(counted)
        return cls(
            kinds={row.kind: row.count for row in rows},
            oldest_start_ns=_first(row.first_start_ns for row in rows if row.kind.meets(TIMED)),
            first_start_ns=_first(row.first_start_ns for row in rows),
            last_end_ns=max((row.last_end_ns for row in rows), default=0),
            next_due_ns=_first(row.first_due_ns for row in rows if row.kind.meets(WAITS)),
            run_seconds=sum(row.run_seconds for row in rows),
            first_run=max((row.first_run for row in rows), default=0),
            controller=controller,
        )

    def has(self, condition: Condition) -> bool:
        return any(kind.meets(condition) for kind in self.kinds)

    def count(self, condition: Condition, in_gang: bool | None = None) -> int:
        """Pods that meet it; ``in_gang`` None: members or not."""
        kinds = self.kinds.items()
        return sum(n for kind, n in kinds if kind.meets(condition) and in_gang in (None, kind.in_gang))

    def with_times_of(self, before: PodCounts) -> PodCounts:
        """A pod that begins its next run forgets when the last one began and ended; the job does not."""
        first_start_ns = _first((before.first_start_ns, self.first_start_ns))
        return replace(self, first_start_ns=first_start_ns, last_end_ns=max(before.last_end_ns, self.last_end_ns))


def _first(times_ns: Iterable[int]) -> int:
    return min((time_ns for time_ns in times_ns if time_ns), default=0)


def kind_of(pod: PodRecord, gang_size: int, now_ns: int) -> Kind:
    flags = frozenset(flag for flag in FLAGS if flag.holds(pod, {"now_ns": now_ns}))
    return Kind(pod.state, pod.instance_id < gang_size > 1, flags)


class UpdateView(NamedTuple):
    """What the job's workflow has to know of the update that is under way."""

    update_id: str = ""
    version: int = 0
    moves: bool = False
    is_creation: bool = False  # settles of the job roll it out, while the job has not ended


@dataclass(frozen=True, slots=True)
class SettleView:
    """One moment of a job."""

    job: JobRecord
    pods: PodCounts
    update: UpdateView


# -- what is done --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodAction:
    """An event for the pods that meet a condition."""

    event: Event
    condition: Condition
    given: Mapping[str, Any] = field(default_factory=dict)  # parameters of the event
    started_before_ns: int = 0  # only for those; 0: for all


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """``actions`` come first, in this order. ``job`` and ``progress`` are what holds when none is left to do."""

    actions: tuple[PodAction, ...]
    job: JobRecord
    progress: JobProgress
    needs_another: bool = False  # the others of a gang end with those that are overdue, in the next settle


def plan_settle(view: SettleView, now_ns: int) -> SettlePlan:
    job = _rolled_up(view, now_ns)
    actions = tuple(_actions(view, now_ns))
    is_overdue = any(action.event is Event.EXCEED_DEADLINE for action in actions)
    return SettlePlan(actions, job, _progress(view, job, now_ns), is_overdue and job.gang_size > 1)


def _actions(view: SettleView, now_ns: int) -> Iterator[PodAction]:
    job, pods = view.job, view.pods
    for event, condition in (
        (Event.BEGIN_NEXT_RUN, DUE),
        (Event.END_UNQUEUED, UNQUEUED_END),
        (Event.FORGET, GONE),
    ):
        if pods.has(condition):
            yield PodAction(event, condition)
    if is_ending(job) and pods.has(MISSED):  # by a call that was interrupted
        yield PodAction(Event.STOP, MISSED, {"message": STOP_MESSAGE, "reason": "", "why": ON_REQUEST})
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
    """What one settle changes, in this order: SETTLE_PODS_MAX pods at most."""

    changes: tuple[PodChange, ...]
    more: bool


def find_work(
    plan: SettlePlan,
    find: Callable[[PodAction, int], list[int]],
    find_shared_fate: Callable[[int], SharedFate | None],
) -> SettleWork:
    """``find``: the first instances, rising, that an action is for; it is asked for one more than there is room for,
    which tells whether more are left. ``find_shared_fate``: at most so many members of the gang."""
    room, more = SETTLE_PODS_MAX, plan.needs_another
    changes: list[PodChange] = []
    for action in plan.actions:
        instances = find(action, room + 1)
        more |= len(instances) > room
        changes.append(PodChange(action.event, instances[:room], action.given))
        room -= len(changes[-1].instances)
    if shared := find_shared_fate(max(room, 1)):
        more |= shared.more
        changes = [_without(change, shared) for change in changes]
        words = {"message": shared.message, "reason": shared.reason, "why": shared.why}
        event = Event.STOP if shared.fate is Fate.END else Event.RERUN_WITH_GANG
        changes.insert(0, PodChange(event, shared.instances, words))
    return SettleWork(tuple(change for change in changes if change.instances), more)


def _without(change: PodChange, shared: SharedFate) -> PodChange:
    """Members that end with their gang have no further run."""
    if change.event is not Event.BEGIN_NEXT_RUN or shared.fate is not Fate.END:
        return change
    ending = set(shared.instances)
    return replace(change, instances=[i for i in change.instances if i not in ending])


def _rolled_up(view: SettleView, now_ns: int) -> JobRecord:
    job, pods = view.job, view.pods
    counts: Counter[PodState] = Counter()
    resting: Counter[PodState] = Counter()
    gang_failed = job.goal is not JobState.KILLED and any(map(_is_failed_member, pods.kinds))
    for kind, count in pods.kinds.items():
        counts[kind.state] += count
        if gang_failed and kind.in_gang and kind.state is PodState.KILLED:
            resting[PodState.FAILED] += count  # it was killed for the sake of a member that failed
        else:
            resting[kind.state if kind.meets(RESTS) else PodState.INITIALIZED] += count
    state = roll_up(job, resting, pods.controller)
    unmarked = is_ending(job) and pods.has(MISSED)
    started_ns = job.started_ns
    if not started_ns and has_started(counts):
        # Pods may end before a report says that they run; then the job starts no later than they end. Clusters have
        # clocks of their own, and Kubernetes tells whole seconds; still it starts no sooner than it was created.
        started_ns = max(pods.first_start_ns or pods.last_end_ns or now_ns, job.created_ns)
    return replace(
        job,
        state=state,
        pod_counts=dict(counts),
        state_version=job.state_version if unmarked else job.desired_state_version,
        started_ns=started_ns,
        completed_ns=max(pods.last_end_ns or now_ns, started_ns) if state in JOB_TERMINAL else 0,
        run_seconds=pods.run_seconds,
        gang_requeue_count=0 if _runs_whole(pods) else job.gang_requeue_count,
    )


def _is_failed_member(kind: Kind) -> bool:
    return kind.in_gang and failed_for_good(kind.state, not kind.meets(RESTS))


def _runs_whole(pods: PodCounts) -> bool:
    members = [kind for kind in pods.kinds if kind.in_gang]
    return bool(members) and all(kind.meets(_SERVES) for kind in members)


def ended_progress(job: JobRecord, update: UpdateView) -> JobProgress:
    """Of a job in a terminal state."""
    return JobProgress(
        job.state,
        _texts(job),
        is_unwanted=job.goal is JobState.DELETED,
        update_id=update.update_id,
        update_version=update.version,
        update_moves=update.moves,
    )


def _progress(view: SettleView, job: JobRecord, now_ns: int) -> JobProgress:
    if job.state in JOB_TERMINAL:
        return ended_progress(job, view.update)
    pods, counts, is_daemon = view.pods, _texts(job), job.type is JobType.DAEMON
    update = UpdateView() if view.update.is_creation else view.update
    return JobProgress(
        state=job.state,
        counts=counts,
        missing_count=0 if job.update_id else max(0, job.instance_count - sum(counts.values())),
        admit_count=admit_count(job, job.pod_counts, pods.count(_NEEDS_PLACE), pods.count(_NEEDS_PLACE, in_gang=True)),
        ready_count=0 if is_daemon else pods.count(READY & STAYS, in_gang=False),
        kill_count=pods.count(_LEAVES_QUEUE | UNWANTED),
        queued_kill_count=pods.count(_LEAVES_QUEUE),
        update_id=update.update_id,
        update_version=update.version,
        update_moves=update.moves,
        deadline_s=_wait_s(view, now_ns),
        gang_run=pods.first_run if pods.count(_ON_ITS_WAY, in_gang=True) else 0,
        follows_hosts=is_daemon and not is_ending(job),
        hosts_wait=is_daemon and bool(pods.count(_NEEDS_HOST)),
        creation_id=view.update.update_id if view.update.is_creation else "",
    )


def _texts(job: JobRecord) -> dict[str, int]:
    return {state.value: count for state, count in job.pod_counts.items()}


def _wait_s(view: SettleView, now_ns: int) -> float:
    waits = [deadline.wait_s(view.job, view.pods.oldest_start_ns, now_ns)]
    if view.pods.next_due_ns:
        waits.append(max((view.pods.next_due_ns - now_ns) / NS_PER_S, 0.001))
    return min((wait for wait in waits if wait > 0), default=0.0)
