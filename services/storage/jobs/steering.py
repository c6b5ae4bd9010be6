"""Goals set by users for a job and its pods."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS
from peloton.lifecycle.job_machine import JobEvent, next_job
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import GOAL_ALIVE, ON_REQUEST, REVIVABLE
from peloton.model.by_hand import name_person
from peloton.model.job import JobRecord, JobState
from peloton.model.pod import PodState
from peloton.ports import PERSON
from services.storage.codec import job_record
from services.storage.engine import lock_job
from services.storage.jobs.wakes import note_wakes
from services.storage.pods.scope import Span
from services.storage.pods.writes import fire, instances_of
from services.storage.tables import JOB

START_MESSAGE = "Task start API request"


def steer_job(conn: sa.Connection, job_id: str, goal: JobState, now_ns: int) -> JobRecord | None:
    row = lock_job(conn, job_id)
    if row is None or row.state == JOB_STATE_NUMBERS[JobState.DELETED]:
        return None
    job = job_record(row)
    after = next_job(job, JobEvent.STOP if goal is JobState.KILLED else JobEvent.START, now_ns)
    if after is not job:
        write_steering(conn, after)
    return after


def revive_job(conn: sa.Connection, job: JobRecord, now_ns: int) -> None:
    """Set the goal of a job with a pod to run back to its type's own."""
    after = next_job(job, JobEvent.START_POD, now_ns)
    if after is not job:
        write_steering(conn, after)


def write_steering(conn: sa.Connection, job: JobRecord) -> None:
    conn.execute(
        sa.update(JOB)
        .where(JOB.c.job_id == job.job_id)
        .values(
            goal=JOB_STATE_NUMBERS[job.goal],
            state=JOB_STATE_NUMBERS[job.state],
            desired_state_version=job.desired_state_version,
            completed_ns=job.completed_ns,
            updated_ns=job.updated_ns,
            revision=job.revision,
        )
    )
    note_wakes(conn, [job.job_id], job.updated_ns)


def touch_job(conn: sa.Connection, job_id: str, now_ns: int) -> None:
    """Invalidate settles that read the job before this, and wake its workflow."""
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job_id).values(revision=JOB.c.revision + 1))
    note_wakes(conn, [job_id], now_ns)


def steer_pods(
    conn: sa.Connection, job: JobRecord, span: tuple[int, int], goal: PodState, now_ns: int, message: str
) -> list[int]:
    """Set the goal of pods; does nothing when the goal of the job has changed since ``job`` was read."""
    row = lock_job(conn, job.job_id)
    if row is None or row.desired_state_version != job.desired_state_version:
        return []
    scope = Span(job.job_id, *span)
    changed = instances_of(conn, scope, GOAL_ALIVE if goal is PodState.KILLED else REVIVABLE)
    if not changed:
        return []
    touch_job(conn, job.job_id, now_ns)
    if goal is PodState.KILLED:
        by = name_person("", PERSON.get())
        fire(conn, scope, Event.STOP, now_ns, message=message, reason="", why=ON_REQUEST, by=by)
    else:
        fire(conn, scope, Event.START, now_ns, message=message, goal=goal)
    return changed
