"""Requeueing of gangs whose launch failed: members return to their old place in the queue, or end and restart."""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa

from peloton.lifecycle.gang import REQUEUE_BACKOFF, Stage, Step, evaluate, member_of, progress_of, stage
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.reason_text import requeue_text
from peloton.model.admission import EvictionResult
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobRecord
from peloton.model.pod import Termination, TerminationReason
from peloton.model.ranges import as_ranges
from peloton.model.reason import RequeueReason
from services.storage.jobs.rows import hold_job
from services.storage.jobs.wakes import note_wakes
from services.storage.pods.gangs import read_members
from services.storage.pods.scope import Span
from services.storage.pods.writes import fire, forget_earlier_tries
from services.storage.tables import JOB

REQUEUE_REASON = "REASON_GANG_REQUEUED"
FOR_RESTART = Termination(TerminationReason.KILLED_FOR_RESTART)


def requeue_gang(
    conn: sa.Connection, job_id: JobId, reason: RequeueReason, least_ns: int, now_ns: int
) -> EvictionResult:
    result = EvictionResult(job_id)
    job = hold_job(conn, job_id)
    if job is None or job.state in JOB_TERMINAL or job.gang_size == 1:
        return result
    pods = read_members(conn, job)
    if evaluate(progress_of(job.gang_size, Counter(map(member_of, pods)))).step in (Step.RUNNING, Step.SUPERSEDED):
        return result
    ready = [pod for pod in pods if stage(member_of(pod)) is Stage.READY]
    is_whole = len(ready) == job.gang_size
    since_ns = min((pod.updated_ns for pod in ready), default=now_ns)
    _start_backoff(conn, job, now_ns - since_ns, least_ns, now_ns, result)
    words = {"message": f"queued again: {requeue_text(reason)}", "reason": REQUEUE_REASON}
    members = Span(job_id, 0, job.gang_size)
    fire(conn, members, Event.REQUEUE_GANG, now_ns, gang_incomplete=not is_whole, why=FOR_RESTART, **words)
    note_wakes(conn, [job_id], now_ns)
    ranges = as_ranges(pod.instance_id for pod in ready)
    if is_whole:
        if result.requeue_count > 1:
            forget_earlier_tries(conn, job_id, [pod.instance_id for pod in ready], REQUEUE_REASON)
        result.queued += [(ready[0].queue_seq, start, count) for start, count in ranges]
    else:
        result.unqueued += ranges
    return result


def _start_backoff(
    conn: sa.Connection, job: JobRecord, took_ns: int, least_ns: int, now_ns: int, result: EvictionResult
) -> None:
    result.requeue_count, result.held_until_ns = job.gang_requeue_count, job.gang_due_ns
    if job.gang_due_ns <= now_ns:
        result.requeue_count += 1
        result.held_until_ns = now_ns + max(REQUEUE_BACKOFF.delay_after_ns(result.requeue_count, took_ns), least_ns)
    held = {"gang_requeue_count": result.requeue_count, "gang_due_ns": result.held_until_ns}
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job.job_id).values(**held, revision=JOB.c.revision + 1))
