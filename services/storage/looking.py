"""What a settle looks at: one moment of a job, its pods counted by all that matters, and those that need something."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.errors import NotFound
from peloton.lifecycle import deadline, rollout
from peloton.lifecycle.guards import Condition, In
from peloton.lifecycle.job import is_ending
from peloton.lifecycle.pod_terms import (
    DUE,
    ENDS,
    GONE,
    LATER,
    MISSED,
    NEWER,
    RESTS,
    STALE,
    TIMED,
    UNQUEUED_END,
    UNTHROTTLED,
    VANISHES,
    WAITS,
)
from peloton.model.job import JOB_TERMINAL, JobProgress, JobRecord, JobState, JobType
from peloton.model.pod import PodState
from services.storage.codec import job_record
from services.storage.gangs import GangWork, find_gang_work
from services.storage.instances import pods_of
from services.storage.pod_sql import where
from services.storage.tables import JOB, POD
from services.storage.update_rows import read_update

SETTLE_PODS_MAX = 1_000
"""Pods that one settle changes."""
FLAGS = (ENDS, VANISHES, NEWER, STALE, RESTS, LATER)
"""What matters of a pod beside its state."""
_STATE = 1 << len(FLAGS) + 1


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


class UpdateLook(NamedTuple):
    """What the job's workflow has to know of the update that is under way."""

    update_id: str = ""
    version: int = 0
    moves: bool = False

    def told(self, progress: JobProgress) -> JobProgress:
        update_id, version, moves = self
        return replace(progress, update_id=update_id, update_version=version, update_moves=moves)


NO_UPDATE = UpdateLook()


@dataclass(slots=True)
class Look:
    """One moment of a job that has not ended."""

    job: JobRecord
    kinds: Counter[Kind]
    oldest_start_ns: int  # of RUNNING pods that are not to end; 0 = none
    first_start_ns: int
    last_end_ns: int
    next_due_ns: int  # of later runs; 0 = none
    run_seconds: float
    controller: PodState | None
    due: list[int]
    throttled: list[int]
    unqueued_kills: list[int]
    gone: list[int]  # nothing is to be left of them
    unmarked_kills: list[int]  # of a job that is to be KILLED, missed by an interrupted call
    overdue: list[int]
    gang: GangWork | None = None
    first_run: int = 0  # of instance 0
    more: bool = False
    update: UpdateLook = NO_UPDATE

    @property
    def has_work(self) -> bool:
        kills = self.unqueued_kills or self.gone or self.unmarked_kills
        return any((self.due, self.throttled, kills, self.overdue, self.gang))

    def has(self, condition: Condition) -> bool:
        return any(kind.meets(condition) for kind in self.kinds)

    def count(self, condition: Condition, in_gang: bool | None = None) -> int:
        """Pods that meet it; ``in_gang`` None: members or not."""
        kinds = self.kinds.items()
        return sum(n for kind, n in kinds if kind.meets(condition) and in_gang in (None, kind.in_gang))


def look(conn: sa.Connection, job_id: str, now_ns: int) -> Look | JobProgress:
    row = conn.execute(sa.select(JOB).where(JOB.c.job_id == job_id)).one_or_none()
    if row is None:
        raise NotFound(f"job {job_id} not found")
    return look_at(conn, job_record(row), now_ns)


def look_at(conn: sa.Connection, job: JobRecord, now_ns: int) -> Look | JobProgress:
    if job.state in JOB_TERMINAL and not _has_rest(conn, job):
        counts = {state.value: count for state, count in job.pod_counts.items()}
        is_unwanted = job.goal is JobState.DELETED
        return look_at_update(conn, job, now_ns).told(JobProgress(job.state, counts, is_unwanted=is_unwanted))
    seen = count_pods(conn, job, now_ns)
    seen.update = look_at_update(conn, job, now_ns)
    if job.has_controller:
        seen.controller = controller_state(conn, job.job_id)
    _find_work(conn, seen, now_ns)
    return seen


def _has_rest(conn: sa.Connection, job: JobRecord) -> bool:
    """Whether an update has left pods of an ended service that are to go, or are not counted yet."""
    if job.type is JobType.BATCH:
        return False
    counting = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_flag(where(VANISHES))), 0))
    count, deleted = conn.execute(counting.where(POD.c.job_id == job.job_id)).one()
    return bool(deleted) or count != sum(job.pod_counts.values())


def look_at_update(conn: sa.Connection, job: JobRecord, now_ns: int) -> UpdateLook:
    update = read_update(conn, job.update_id)
    if update is None or not update.is_active:
        return NO_UPDATE
    moves = rollout.moves(update, pods_of(conn, job.job_id), rollout.sla_maximum(job), now_ns)
    return UpdateLook(update.update_id, job.workflow_version, moves)


def _flag(condition: sa.ColumnElement[bool]) -> sa.Case[int]:
    return sa.case((condition, 1), else_=0)


def _counting() -> sa.Select[Any]:
    """The one pass over all pods: kinds are counted by a number that packs what they are made of."""
    packed = POD.c.state * _STATE + _flag(POD.c.instance_id < sa.bindparam("members", type_=sa.BigInteger))
    for at, flag in enumerate(FLAGS, 1):
        packed += _flag(where(flag)) * (1 << at)
    first_run = sa.case((POD.c.instance_id == 0, POD.c.run_id), else_=0).label("first_run")
    columns = (POD.c.started_ns, POD.c.completed_ns, POD.c.due_ns, POD.c.run_seconds)
    pods = sa.select(packed.label("kind"), first_run, *columns).where(POD.c.job_id == sa.bindparam("job_id")).subquery()
    started = sa.func.nullif(pods.c.started_ns, 0)
    return sa.select(
        pods.c.kind,
        sa.func.count(),
        sa.func.min(started),
        sa.func.max(pods.c.completed_ns),
        sa.func.min(pods.c.due_ns),
        sa.func.sum(pods.c.run_seconds),
        sa.func.max(pods.c.first_run),
    ).group_by(pods.c.kind)


_COUNTING = _counting()
"""Built once: to build it takes longer than to run it on a small job."""


def count_pods(conn: sa.Connection, job: JobRecord, now_ns: int) -> Look:
    values = {"job_id": job.job_id, "p_now_ns": now_ns, "members": job.gang_size if job.gang_size > 1 else 0}
    seen = Look(job, Counter(), 0, 0, 0, 0, 0.0, None, [], [], [], [], [], [])
    for number, count, first_start, last_end, first_due, seconds, run in conn.execute(_COUNTING, values):
        kind = _unpacked(number)
        seen.first_run = max(seen.first_run, run)
        seen.kinds[kind] += count
        seen.run_seconds += seconds
        seen.last_end_ns = max(seen.last_end_ns, last_end)
        seen.first_start_ns = earlier(seen.first_start_ns, first_start or 0)
        if kind.meets(TIMED):
            seen.oldest_start_ns = earlier(seen.oldest_start_ns, first_start or 0)
        if kind.meets(WAITS):
            seen.next_due_ns = earlier(seen.next_due_ns, first_due)
    return seen


def _unpacked(number: int) -> Kind:
    flags = frozenset(flag for at, flag in enumerate(FLAGS, 1) if number & 1 << at)
    return Kind(POD_STATES[number // _STATE], bool(number & 1), flags)


def earlier(a_ns: int, b_ns: int) -> int:
    return min(a_ns, b_ns) if a_ns and b_ns else a_ns or b_ns


def controller_state(conn: sa.Connection, job_id: str) -> PodState | None:
    query = sa.select(POD.c.state).where(POD.c.job_id == job_id, POD.c.instance_id == 0)
    number = conn.execute(query).scalar()
    return None if number is None else POD_STATES[number]


def _find_work(conn: sa.Connection, seen: Look, now_ns: int) -> None:
    """Instances that this settle changes. Queries only for what the count says is there."""
    job, room = seen.job, SETTLE_PODS_MAX
    cutoff_ns = deadline.cutoff_ns(job, now_ns)
    overdue = cutoff_ns is not None and 0 < seen.oldest_start_ns < cutoff_ns
    tasks: list[tuple[bool, list[int], Condition]] = [
        (seen.has(DUE), seen.due, DUE),
        (seen.has(UNQUEUED_END), seen.unqueued_kills, UNQUEUED_END),
        (seen.has(GONE), seen.gone, GONE),
        (is_ending(job) and seen.has(MISSED), seen.unmarked_kills, MISSED),
        (overdue, seen.overdue, TIMED),
        (seen.has(WAITS), seen.throttled, UNTHROTTLED),
    ]
    for needed, found, condition in tasks:
        if not needed:
            continue
        query = sa.select(POD.c.instance_id).where(POD.c.job_id == job.job_id, where(condition))
        if found is seen.overdue:
            query = query.where(POD.c.started_ns < cutoff_ns)
        query = query.order_by(POD.c.instance_id).limit(room + 1)
        found += conn.execute(query, {"p_now_ns": now_ns}).scalars()
        if len(found) > room:
            found.pop()
            seen.more = True
        room -= len(found)
    if overdue and job.gang_size > 1:
        seen.more = True  # the others of a gang end with those that are overdue, in the next settle
    seen.gang = find_gang_work(conn, job, max(room, 1))
    if seen.gang is not None:
        seen.more |= seen.gang.more
        seen.due = [instance for instance in seen.due if instance not in set(seen.gang.ending)]
