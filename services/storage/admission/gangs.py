"""Gangs in storage: how far a launch is, a launch that is given up, and what one member's end makes of the others."""

from __future__ import annotations

from collections import Counter
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.lifecycle.gang import HOLD, Member, Stage, Step, judge, member_of, progress_of, stage
from peloton.lifecycle.gang_fate import SharedFate, fate, is_affected, shared_fate
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.reason_text import requeue_text
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, GangProgress, JobRecord
from peloton.model.pod import NextRun, PodRecord, Termination, TerminationReason
from peloton.model.reason import RequeueReason
from services.storage.admission.snapshot import EvictionResult
from services.storage.codec import job_record, pod_record
from services.storage.engine import lock_job
from services.storage.pods.sql import ENDS, NEWER
from services.storage.pods.writes import Span, fire, forget_earlier_tries
from services.storage.repository import Store, as_ranges, in_range
from services.storage.tables import JOB, POD

REQUEUE_REASON = "REASON_GANG_REQUEUED"
FOR_RESTART = Termination(TerminationReason.KILLED_FOR_RESTART)


class Gangs(Store):
    def gang(self, job_id: JobId) -> GangProgress:
        """The members of the job's gang by stage; of size 0 when it has none, or has ended."""
        return self.db.read(partial(_gang, job_id=job_id))

    def requeue_gang(self, job_id: JobId, reason: RequeueReason, least_hold_s: int = 0) -> EvictionResult:
        """A launch was in vain: READY members are PENDING again, in their old place, members on hosts are to end and
        run anew, and the gang is held back for a while, longer each time, ``least_hold_s`` at least.

        Nothing changes when all members run by now, or somebody else ends the gang or runs it anew. When some members
        have left already, READY ones wait for them, INITIALIZED. Safe to repeat: within the time that it is held back
        a gang is not held back longer.
        """
        least_ns = least_hold_s * 10**9
        return self.db.write(partial(_requeue, job_id=job_id, reason=reason, least_ns=least_ns, now_ns=self.clock_ns()))


def members_of(conn: sa.Connection, job: JobRecord) -> Counter[Member]:
    kind = (POD.c.state, ENDS, NEWER, POD.c.next_run)
    query = sa.select(*kind, sa.func.count()).where(in_range(job.job_id, 0, job.gang_size)).group_by(*kind)
    members: Counter[Member] = Counter()
    for *found, count in conn.execute(query):
        state, is_to_end, wants_newer, next_run = found
        members[Member(POD_STATES[state], bool(is_to_end), bool(wants_newer), NextRun(next_run))] += count
    return members


def _pods(conn: sa.Connection, job: JobRecord) -> list[PodRecord]:
    query = sa.select(POD).where(in_range(job.job_id, 0, job.gang_size)).order_by(POD.c.instance_id)
    return [pod_record(row) for row in conn.execute(query)]


def _gang(conn: sa.Connection, job_id: str) -> GangProgress:
    row = conn.execute(sa.select(JOB).where(JOB.c.job_id == job_id)).one_or_none()
    job = None if row is None else job_record(row)
    if job is None or job.state in JOB_TERMINAL or job.gang_size == 1:
        return GangProgress(0)
    return progress_of(job.gang_size, members_of(conn, job), job.gang_requeue_count)


# -- a launch in vain ----------------------------------------------------------------------------------------------


def _requeue(conn: sa.Connection, job_id: JobId, reason: RequeueReason, least_ns: int, now_ns: int) -> EvictionResult:
    result = EvictionResult(job_id)
    row = lock_job(conn, job_id)
    job = None if row is None else job_record(row)
    if job is None or job.state in JOB_TERMINAL or job.gang_size == 1:
        return result
    pods = _pods(conn, job)
    if judge(progress_of(job.gang_size, Counter(map(member_of, pods)))).step in (Step.RUNNING, Step.SUPERSEDED):
        return result
    ready = [pod for pod in pods if stage(member_of(pod)) is Stage.READY]
    is_whole = len(ready) == job.gang_size
    since_ns = min((pod.updated_ns for pod in ready), default=now_ns)
    _hold_back(conn, job, now_ns - since_ns, least_ns, now_ns, result)
    words = {"message": f"queued again: {requeue_text(reason)}", "reason": REQUEUE_REASON}
    everybody = Span(job_id, 0, job.gang_size)
    fire(conn, everybody, Event.REQUEUE_GANG, now_ns, gathers=not is_whole, why=FOR_RESTART, **words)
    ranges = as_ranges(pod.instance_id for pod in ready)
    if is_whole:
        if result.requeue_count > 1:
            forget_earlier_tries(conn, job_id, [pod.instance_id for pod in ready], REQUEUE_REASON)
        result.queued += [(ready[0].queue_seq, start, count) for start, count in ranges]
    else:
        result.unqueued += ranges
    return result


def _hold_back(
    conn: sa.Connection, job: JobRecord, took_ns: int, least_ns: int, now_ns: int, result: EvictionResult
) -> None:
    result.requeue_count, result.held_until_ns = job.gang_requeue_count, job.gang_due_ns
    if job.gang_due_ns <= now_ns:
        result.requeue_count += 1
        result.held_until_ns = now_ns + max(HOLD.delay_after_ns(result.requeue_count, took_ns), least_ns)
    held = {"gang_requeue_count": result.requeue_count, "gang_due_ns": result.held_until_ns}
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job.job_id).values(**held, revision=JOB.c.revision + 1))


# -- one for all ---------------------------------------------------------------------------------------------------


def find_shared_fate(conn: sa.Connection, job: JobRecord, room: int) -> SharedFate | None:
    """At most ``room`` instances; None when every member goes its way already. The count says whether to read them."""
    if job.gang_size == 1:
        return None
    members = members_of(conn, job)
    what = fate(members)
    if not any(is_affected(member, what) for member in members):
        return None
    return shared_fate(_pods(conn, job), room)
