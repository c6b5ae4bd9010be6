"""Reads of queued and admitted pods as ranges of like instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_TYPE_NUMBERS, TERMINATION_NUMBERS
from peloton.model.admission import AdmissionSnapshot, AllocatedRange, HeldRange, JobSnapshot, PendingRange
from peloton.model.ids import JobId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import TerminationReason
from services.storage.codec import job_record
from services.storage.pods.scope import ALLOCATED_NUMBERS, KILLING, ON_HOST_NUMBERS, PENDING
from services.storage.pods.sql import GOAL_ENDED, RUN_SUPERSEDED
from services.storage.pools import read_pools
from services.storage.tables import COUNTER, IS_ACTIVE, JOB, POD

STATUS_SEQ = "status_log"
JOBS_PER_QUERY = 200
_READY, _ON_HOST, _EVICTED, _KINDS = 1, 2, 3, 4
"""Kinds of pods that hold resources in a snapshot; multiples of _KINDS encode the place in the queue."""


_DAEMON = JOB_TYPE_NUMBERS[JobType.DAEMON]
"""Daemons are left out: their resources are not part of the capacity that is distributed."""
_ON_HOST_NOW = POD.c.state.in_(ON_HOST_NUMBERS)
_IS_EVICTED = sa.and_(
    POD.c.termination == TERMINATION_NUMBERS[TerminationReason.PREEMPTED_RESOURCES], sa.or_(GOAL_ENDED, RUN_SUPERSEDED)
)
"""Condition of a pod on a host that is being evicted."""


def read_snapshot(conn: sa.Connection) -> AdmissionSnapshot:
    cursor = conn.execute(sa.select(COUNTER.c.value).where(COUNTER.c.name == STATUS_SEQ)).scalar_one()
    active = sa.select(JOB).where(IS_ACTIVE, JOB.c.type != _DAEMON).order_by(JOB.c.job_id)
    jobs = [job_record(row) for row in conn.execute(active).all()]
    found: list[JobSnapshot] = []
    last = 0
    for at in range(0, len(jobs), JOBS_PER_QUERY):
        some = jobs[at : at + JOBS_PER_QUERY]
        ids = [job.job_id for job in some]
        found += _job_snapshots(conn, some, ids)
        places = sa.select(sa.func.max(POD.c.queue_seq)).where(POD.c.job_id.in_(ids))
        last = max(last, conn.execute(places).scalar() or 0)
    return AdmissionSnapshot(read_pools(conn), tuple(found), cursor, last)


def _job_snapshots(conn: sa.Connection, jobs: Sequence[JobRecord], ids: Sequence[JobId]) -> list[JobSnapshot]:
    """Read many jobs with one statement, since each statement is a round trip to the database."""
    pending: dict[str, list[PendingRange]] = {job_id: [] for job_id in ids}
    allocated: dict[str, list[AllocatedRange]] = {job_id: [] for job_id in ids}
    key = sa.case(
        (POD.c.state == PENDING, POD.c.queue_seq * _KINDS),
        (sa.and_(_ON_HOST_NOW, _IS_EVICTED), _EVICTED),
        (_ON_HOST_NOW, _ON_HOST),
        else_=_READY,
    )
    counts = POD.c.state.in_([PENDING, *ALLOCATED_NUMBERS])
    held_until_ns = sa.case((POD.c.state == PENDING, POD.c.held_until_ns), else_=0)
    query = runs_of(POD.c.job_id.in_(ids), counts, key, held_until_ns).order_by("key", "start")
    for number, start, count, version, job_id, until_ns in conn.execute(query):
        kind = number % _KINDS
        if kind:
            allocated[job_id].append(AllocatedRange(start, count, version, kind != _READY, kind == _EVICTED))
        else:
            pending[job_id].append(PendingRange(number // _KINDS, start, count, version, until_ns))
    return [
        JobSnapshot(job, tuple(pending[job.job_id]), tuple(sorted(allocated[job.job_id], key=lambda one: one.start)))
        for job in jobs
    ]


def read_held(conn: sa.Connection, job_ids: Sequence[JobId]) -> dict[JobId, list[HeldRange]]:
    leaves = sa.or_(GOAL_ENDED, POD.c.state == KILLING, sa.and_(_ON_HOST_NOW, RUN_SUPERSEDED))
    key = POD.c.queue_seq * 4 + sa.case((_ON_HOST_NOW, 2), else_=0) + sa.case((leaves, 1), else_=0)
    found: dict[JobId, list[HeldRange]] = {job_id: [] for job_id in job_ids}
    for at in range(0, len(job_ids), JOBS_PER_QUERY):
        some = POD.c.job_id.in_(job_ids[at : at + JOBS_PER_QUERY])
        query = runs_of(some, POD.c.state.in_(ALLOCATED_NUMBERS), key).order_by("start")
        for number, start, count, version, job_id in conn.execute(query):
            found[job_id].append(HeldRange(number // 4, start, count, version, bool(number & 2), bool(number & 1)))
    return found


def runs_of(
    jobs: sa.ColumnElement[bool],
    condition: sa.ColumnElement[bool],
    key: sa.ColumnElement[Any],
    *more: sa.ColumnElement[Any],
) -> sa.Select[Any]:
    """Select runs of instances that are equal in job, ``key``, configuration and the columns ``more``.

    Each row is (key, start, count, config version, job, more ...). Within a run instance ids and row numbers rise
    together, so their difference identifies the run.
    """
    others = [column.label(f"also{number}") for number, column in enumerate(more)]
    labelled = (
        sa.select(key.label("key"), POD.c.job_id, POD.c.instance_id, POD.c.config_version, *others)
        .where(jobs, condition)
        .subquery()
    )
    also = [labelled.c[column.name] for column in others]
    alike = (labelled.c.job_id, labelled.c.key, labelled.c.config_version, *also)
    order = sa.func.row_number().over(partition_by=alike, order_by=labelled.c.instance_id)
    pods = sa.select(labelled, (labelled.c.instance_id - order).label("run")).subquery()
    also = [pods.c[column.name] for column in others]
    return sa.select(
        pods.c.key,
        sa.func.min(pods.c.instance_id).label("start"),
        sa.func.count(),
        pods.c.config_version,
        pods.c.job_id,
        *also,
    ).group_by(pods.c.job_id, pods.c.key, pods.c.config_version, pods.c.run, *also)
