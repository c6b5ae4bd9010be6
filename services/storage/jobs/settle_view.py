"""Reads the input of a settle: the job with counts of its pods, taken by one statement, and the pods that the plan
selects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.lifecycle import rollout
from peloton.lifecycle.creation import is_plain_creation
from peloton.lifecycle.guards import Condition
from peloton.lifecycle.pod_terms import GOAL_DELETED
from peloton.lifecycle.settle import (
    FLAGS,
    Counted,
    Kind,
    PodAction,
    PodCounts,
    SettlePlan,
    SettleView,
    SettleWork,
    UpdateView,
    end_progress,
    find_work,
    plan_settle,
)
from peloton.lifecycle.wake import Wake, next_due_ns
from peloton.model.job import JOB_TERMINAL, JobProgress, JobRecord, JobType
from peloton.model.pod import PodState
from services.storage.pods.gangs import find_shared_fate
from services.storage.pods.sql import where
from services.storage.tables import POD
from services.storage.updates.rows import read_update
from services.storage.updates.update_pods import StoredPods

_STATE = 1 << len(FLAGS) + 1


@dataclass(frozen=True, slots=True)
class PendingSettle:
    """Job that has not ended, with the plan of its settle."""

    view: SettleView
    plan: SettlePlan
    work: SettleWork
    wake: Wake | None  # wake of the job as stored when the job was read
    created_max: int = 0

    @property
    def creates(self) -> bool:
        """True if the update that creates the service can take a step."""
        return self.view.update.is_creation and self.view.update.moves

    @property
    def must_write(self) -> bool:
        return bool(self.work.changes) or self.plan.job != self.view.job

    def new_due_ns(self, now_ns: int) -> int | None:
        """Return the new ``due_ns`` of the wake, see ``lifecycle.wake``."""
        return None if self.work.more else next_due_ns(self.wake, self.plan.progress, now_ns)


def plan_for(
    conn: sa.Connection, job: JobRecord, now_ns: int, wake: Wake | None, created_max: int = 0
) -> PendingSettle | JobProgress:
    if job.state in JOB_TERMINAL and not _has_leftover_pods(conn, job):
        return end_progress(job, read_update_view(conn, job, now_ns))
    view = read_view(conn, job, now_ns, created_max)
    plan = plan_settle(view, now_ns)
    work = find_work(plan, partial(_find_instances, conn, job.job_id, now_ns), partial(find_shared_fate, conn, job))
    return PendingSettle(view, plan, work, wake, created_max)


def _has_leftover_pods(conn: sa.Connection, job: JobRecord) -> bool:
    """Return whether an update has left pods of an ended service that must be deleted or counted."""
    if job.type is JobType.BATCH:
        return False
    counting = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_flag(where(GOAL_DELETED))), 0))
    count, deleted = conn.execute(counting.where(POD.c.job_id == job.job_id)).one()
    return bool(deleted) or count != sum(job.pod_counts.values())


def read_view(conn: sa.Connection, job: JobRecord, now_ns: int, created_max: int = 0) -> SettleView:
    return SettleView(job, _count_pods(conn, job, now_ns), read_update_view(conn, job, now_ns, created_max))


def read_update_view(conn: sa.Connection, job: JobRecord, now_ns: int, created_max: int = 0) -> UpdateView:
    update = read_update(conn, job.update_id)
    if update is None or not update.is_active:
        return UpdateView()

    pods = StoredPods(conn, job.job_id)
    moves = rollout.may_move(update, pods.count, rollout.sla_maximum(job), now_ns)
    is_creation = is_plain_creation(job, update, created_max, now_ns)
    return UpdateView(update.update_id, job.workflow_version, moves, is_creation)


# -- counting ------------------------------------------------------------------------------------------------------


def _flag(condition: sa.ColumnElement[bool]) -> sa.Case[int]:
    return sa.case((condition, 1), else_=0)


def _select_counts() -> sa.Select[Any]:
    """Build the statement that counts all pods in one pass, grouped by a number into which the properties of their kind
    are packed."""
    packed = POD.c.state * _STATE + _flag(POD.c.instance_id < sa.bindparam("members", type_=sa.BigInteger))
    for at, flag in enumerate(FLAGS, 1):
        packed += _flag(where(flag)) * (1 << at)
    first_run = sa.case((POD.c.instance_id == 0, POD.c.run_id), else_=0).label("first_run")
    columns = (POD.c.started_ns, POD.c.completed_ns, POD.c.due_ns, POD.c.run_seconds)
    pods = sa.select(packed.label("kind"), first_run, *columns).where(POD.c.job_id == sa.bindparam("job_id")).subquery()
    return sa.select(
        pods.c.kind,
        sa.func.count(),
        sa.func.coalesce(sa.func.min(sa.func.nullif(pods.c.started_ns, 0)), 0),
        sa.func.max(pods.c.completed_ns),
        sa.func.min(pods.c.due_ns),
        sa.func.sum(pods.c.run_seconds),
        sa.func.max(pods.c.first_run),
    ).group_by(pods.c.kind)


_COUNTING = _select_counts()
"""The statement is built once, since building it takes longer than executing it on a small job."""


def _count_pods(conn: sa.Connection, job: JobRecord, now_ns: int) -> PodCounts:
    values = {"job_id": job.job_id, "p_now_ns": now_ns, "members": job.gang_size if job.gang_size > 1 else 0}
    rows = [Counted(_unpack_kind(number), *counted) for number, *counted in conn.execute(_COUNTING, values)]
    return PodCounts.of(rows, _controller_state(conn, job.job_id) if job.has_controller else None)


def _unpack_kind(number: int) -> Kind:
    flags = frozenset(flag for at, flag in enumerate(FLAGS, 1) if number & 1 << at)
    return Kind(POD_STATES[number // _STATE], bool(number & 1), flags)


def _controller_state(conn: sa.Connection, job_id: str) -> PodState | None:
    query = sa.select(POD.c.state).where(POD.c.job_id == job_id, POD.c.instance_id == 0)
    number = conn.execute(query).scalar()
    return None if number is None else POD_STATES[number]


# -- finding -------------------------------------------------------------------------------------------------------


def _find_instances(conn: sa.Connection, job_id: str, now_ns: int, action: PodAction, limit: int) -> list[int]:
    parameters = {"job_id": job_id, "p_now_ns": now_ns, "at_most": limit}
    if action.started_before_ns:
        parameters["cutoff_ns"] = action.started_before_ns
    return list(conn.execute(_select_instances(action.condition, bool(action.started_before_ns)), parameters).scalars())


@cache
def _select_instances(condition: Condition, has_cutoff: bool) -> sa.Select[Any]:
    """Build the statement that selects the pods for an action, once for each condition."""
    query = sa.select(POD.c.instance_id).where(POD.c.job_id == sa.bindparam("job_id"), where(condition))
    if has_cutoff:
        query = query.where(POD.c.started_ns < sa.bindparam("cutoff_ns"))
    return query.order_by(POD.c.instance_id).limit(sa.bindparam("at_most", type_=sa.Integer))
