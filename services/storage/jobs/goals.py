"""Intent: the goals of jobs and pods, and the wish for a new run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS
from peloton.lifecycle.goal import default_pod_goal
from peloton.lifecycle.job_machine import JobEvent, next_job
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import NEWER, ON_REQUEST, REVIVABLE, STAYS
from peloton.lifecycle.settle import STOP_MESSAGE
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobRecord, JobState, JobType
from peloton.model.pod import PodState, Termination, TerminationReason
from services.storage.codec import job_record
from services.storage.engine import lock_job
from services.storage.pods.writes import Span, fire, instances_of
from services.storage.repository import Store, chunks, pod_spans
from services.storage.tables import JOB

START_MESSAGE = "Task start API request"


class Goals(Store):
    def set_job_goal(self, job_id: JobId, goal: JobState, now_ns: int) -> JobRecord | None:
        """Steer a job, and with it all its pods, towards ``goal`` (KILLED, or its type's own); None when unknown.

        A batch job that has ended stays as it is, and so does a job that is to be deleted. Safe to repeat: what an
        interrupted call left is completed.
        """
        job = self.db.write(lambda conn: _steer_job(conn, job_id, goal, now_ns))
        if job is None or job.goal is not goal or (job.state in JOB_TERMINAL and job.type is JobType.BATCH):
            return job
        pod_goal = PodState.KILLED if goal is JobState.KILLED else default_pod_goal(job.type)
        message = STOP_MESSAGE if goal is JobState.KILLED else START_MESSAGE
        for start, count in self.db.read(lambda conn: pod_spans(conn, job_id)):
            steer = partial(steer_pods, job=job, span=(start, count), goal=pod_goal, now_ns=now_ns, message=message)
            self.db.write(steer)
        return job

    def set_pod_goals(
        self, job_id: JobId, ranges: Sequence[tuple[int, int]], goal: PodState, now_ns: int, message: str
    ) -> list[int]:
        """Stop (goal KILLED) or start instances in ``(start, count)`` ranges; returns those whose goal changed.

        Who touches a member of the gang touches all of it. Started pods that have ended or are being killed get a new
        run. Nothing changes in an ended batch job.
        """
        changed: list[int] = []

        def work(conn: sa.Connection, start: int, count: int) -> list[int]:
            row = lock_job(conn, job_id)
            if row is None:
                return []
            job = job_record(row)
            if job.state in JOB_TERMINAL and job.type is JobType.BATCH:
                return []
            if goal is not PodState.KILLED:
                _revive_job(conn, job, now_ns)
            _touch_job(conn, job_id)
            return steer_pods(conn, job, (start, count), goal, now_ns, message)

        for start, count in chunks(self._with_gang(job_id, ranges)):
            changed += self.db.write(partial(work, start=start, count=count))
        return changed

    def want_new_runs(
        self,
        job_id: JobId,
        ranges: Sequence[tuple[int, int]],
        *,
        message: str = "",
        reason: str = "",
        termination: TerminationReason | None = None,
    ) -> list[int]:
        """Restart: each instance is to have a run newer than its current one; returns those that now await it.

        Who touches a member of the gang touches all of it. Pods on hosts are to be killed first; those that wait take
        the new run id when they launch. Instances whose goal is KILLED are passed over. The texts, when given, tell in
        the pod's record why.
        """
        waiting: list[int] = []
        why = None if termination is None else Termination(termination)

        def work(conn: sa.Connection, start: int, count: int) -> list[int]:
            row = lock_job(conn, job_id)
            if row is None or job_record(row).state in JOB_TERMINAL:
                return []
            _touch_job(conn, job_id)
            span = Span(job_id, start, count)
            fire(conn, span, Event.RESTART, self.clock_ns(), message=message or None, reason=reason or None, why=why)
            return instances_of(conn, span, STAYS & NEWER)

        for start, count in chunks(self._with_gang(job_id, ranges)):
            waiting += self.db.write(partial(work, start=start, count=count))
        return waiting

    def _with_gang(self, job_id: JobId, ranges: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """The same ranges, with the whole gang when they touch a part of it."""
        row = self.db.read(lambda conn: conn.execute(sa.select(JOB).where(JOB.c.job_id == job_id)).one_or_none())
        size = 1 if row is None else job_record(row).gang_size
        if size == 1 or all(start >= size for start, _ in ranges):
            return ranges
        rest = [(max(start, size), start + count - max(start, size)) for start, count in ranges]
        return [(0, size), *((start, count) for start, count in rest if count > 0)]


def _steer_job(conn: sa.Connection, job_id: str, goal: JobState, now_ns: int) -> JobRecord | None:
    row = lock_job(conn, job_id)
    if row is None or row.state == JOB_STATE_NUMBERS[JobState.DELETED]:
        return None
    job = job_record(row)
    after = next_job(job, JobEvent.STOP if goal is JobState.KILLED else JobEvent.START, now_ns)
    if after is not job:
        write_steering(conn, after)
    return after


def _revive_job(conn: sa.Connection, job: JobRecord, now_ns: int) -> None:
    """A job with a pod to run steers for its type's own goal."""
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


def _touch_job(conn: sa.Connection, job_id: str) -> None:
    """A settle that looked at the job before this is to look again."""
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job_id).values(revision=JOB.c.revision + 1))


def steer_pods(
    conn: sa.Connection, job: JobRecord, span: tuple[int, int], goal: PodState, now_ns: int, message: str
) -> list[int]:
    """Nothing changes when somebody has steered the job elsewhere since ``job`` was read."""
    row = lock_job(conn, job.job_id)
    if row is None or row.desired_state_version != job.desired_state_version:
        return []
    scope = Span(job.job_id, *span)
    changed = instances_of(conn, scope, STAYS if goal is PodState.KILLED else REVIVABLE)
    if not changed:
        return []
    _touch_job(conn, job.job_id)
    if goal is PodState.KILLED:
        fire(conn, scope, Event.STOP, now_ns, message=message, reason="", why=ON_REQUEST)
    else:
        fire(conn, scope, Event.START, now_ns, message=message, goal=goal)
    return changed
