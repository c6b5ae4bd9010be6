"""Creation, growth, reads, goals, settling and deletion of jobs.

A method is one transaction, or a sequence of bounded ones that can be interrupted anywhere and repeated; the
neighbouring modules hold the steps within a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_STATES
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound, Reason
from peloton.lifecycle import rollout
from peloton.lifecycle.external import owner_refusal
from peloton.lifecycle.goal import default_pod_goal
from peloton.lifecycle.job_machine import TO_BE_DELETED, JobEvent, next_job
from peloton.lifecycle.settle import STOP_MESSAGE
from peloton.lifecycle.wake import next_due_ns
from peloton.model.by_hand import name_person
from peloton.model.ids import EntityVersion, JobId, RespoolId
from peloton.model.job import JOB_TERMINAL, JobProgress, JobRecord, JobState, JobType, RolledUp
from peloton.model.pod import PodState
from peloton.model.secret import Secret
from peloton.ports import PERSON, SecretStore
from services.storage.codec import job_record
from services.storage.engine import Database, Repository, lock_job, read_job_row, reading
from services.storage.jobs.configs import OverrideRows, insert_config, read_config
from services.storage.jobs.deletion import forget_instances, forget_jobs
from services.storage.jobs.launching import LaunchingJobs
from services.storage.jobs.rows import grown_config, hold_job, insert_alone, store_growth
from services.storage.jobs.secrets import Sent, carry_secrets, forget_elsewhere
from services.storage.jobs.settling import apply, create_and_apply, read_pending, roll_up_part, take_back
from services.storage.jobs.steering import START_MESSAGE, steer_job, steer_pods, write_steering
from services.storage.jobs.wakes import IS_UPDATING, mark_seen
from services.storage.ranges import CHUNK_PODS, pod_spans
from services.storage.tables import (
    FINISHED_STATES,
    IS_ACTIVE,
    JOB,
    POD_EVENT,
)
from services.storage.updates.rows import hold_version, read_update, write_update
from services.storage.watch_log import note_job

ROLLED_UP_JOBS_MAX = 500
"""Maximum number of jobs counted in one transaction: 100,000 may have changed while Temporal was unreachable."""
SETTLE_ATTEMPTS_MAX = 5
"""Attempts of a settle that conflicts with other writers."""
_IDS_PER_QUERY = 1_000
_DELETED = JOB_STATE_NUMBERS[JobState.DELETED]
_ADDED_INSTANCES_VERSION = "operation aborted due to unexpected version"
_READING_JOBS = (
    sa.select(JOB)
    .where(JOB.c.job_id.in_(sa.bindparam("of_jobs", expanding=True)), JOB.c.state != _DELETED)
    .order_by(JOB.c.job_id)
)
_SERVICE_EVENTS = {
    JobState.RUNNING: JobEvent.START_SERVICE,
    JobState.KILLED: JobEvent.STOP_SERVICE,
    JobState.DELETED: JobEvent.DELETE_SERVICE,
}


class Jobs(Repository):
    def __init__(self, db: Database, store: SecretStore) -> None:
        super().__init__(db)
        self._store, self._launching = store, LaunchingJobs()

    # -- reading

    def get(self, job_id: JobId) -> JobRecord | None:
        """Return a job; None if it does not exist or is being deleted."""
        row = self._db.read(partial(read_job_row, job_id=job_id))
        return None if row is None or row.state == _DELETED else job_record(row)

    @reading
    def get_many(self, conn: sa.Connection, job_ids: Iterable[JobId]) -> list[JobRecord]:
        """Return the existing jobs, by id."""
        wanted = sorted(set(job_ids))
        rows: list[sa.Row[Any]] = []
        for begin in range(0, len(wanted), _IDS_PER_QUERY):
            rows += conn.execute(_READING_JOBS, {"of_jobs": wanted[begin : begin + _IDS_PER_QUERY]})
        return [job_record(row) for row in rows]

    @reading
    def pools_of(self, conn: sa.Connection, job_ids: Collection[JobId]) -> dict[JobId, RespoolId]:
        """Return the pools of the jobs that exist, also of those that are being deleted."""
        wanted, found = sorted(set(job_ids)), {}
        for begin in range(0, len(wanted), _IDS_PER_QUERY):
            query = sa.select(JOB.c.job_id, JOB.c.respool_id)
            some = conn.execute(query.where(JOB.c.job_id.in_(wanted[begin : begin + _IDS_PER_QUERY])))
            found.update({JobId(job_id): RespoolId(pool_id) for job_id, pool_id in some})
        return found

    def active_ids(self) -> list[JobId]:
        """Return jobs that have not ended, and services with an active update."""
        active = sa.or_(IS_ACTIVE, IS_UPDATING)
        query = sa.select(JOB.c.job_id).where(active, JOB.c.state != _DELETED).order_by(JOB.c.job_id)
        return self._db.read(lambda conn: [JobId(job_id) for job_id in conn.execute(query).scalars()])

    def active_in_pool(self, respool_id: str, limit: int) -> list[JobId]:
        """Return the first jobs of a pool, by id, that have not ended."""
        mine = sa.and_(JOB.c.respool_id == respool_id, IS_ACTIVE)
        query = sa.select(JOB.c.job_id).where(mine).order_by(JOB.c.job_id).limit(limit)
        return self._db.read(lambda conn: [JobId(job_id) for job_id in conn.execute(query).scalars()])

    def half_deleted(self) -> list[JobId]:
        """Return jobs whose deletion has begun and is under way or was interrupted."""
        query = sa.select(JOB.c.job_id).where(JOB.c.state == _DELETED).order_by(JOB.c.job_id)
        return self._db.read(lambda conn: [JobId(job_id) for job_id in conn.execute(query).scalars()])

    # -- creation and growth

    def create(self, job: JobRecord, config: job_pb2.JobConfig, now_ns: int, secrets: Sequence[Secret] = ()) -> None:
        """Store a new job with version 1 of its configuration, rewritten to refer to its secrets.

        Raises AlreadyExists, InvalidArgument.
        """
        job = replace(job, created_ns=job.created_ns or now_ns, updated_ns=job.updated_ns or now_ns)
        rows = OverrideRows(job.job_id, job.config_version, config).of(config.instanceConfig)
        sent = Sent.of(self._db, self._store, job.job_id, config, secrets)

        def work(conn: sa.Connection) -> None:
            carry_secrets(conn, job.job_id, 0, config, sent)
            insert_alone(conn, job, config)
            insert_config(conn, job.job_id, job.config_version, config, rows, now_ns)

        try:
            self._db.write(work)
        except IntegrityError as error:
            raise AlreadyExists(f"job {job.job_id} already exists").because(
                Reason.JOB_EXISTS, job=job.job_id
            ) from error

    def add_instances(
        self,
        job_id: JobId,
        config: job_pb2.JobConfig,
        new_count: int,
        expected_version: int,
        now_ns: int,
        secrets: Sequence[Secret] = (),
    ) -> int:
        """Grow a job to ``new_count`` instances under a new configuration version, which is returned.

        ``secrets`` at new paths are for the new instances; the others replace their data in place. Overrides in
        ``config`` of existing instances are ignored. Raises NotFound, InvalidArgument for a job that has ended or would
        shrink, and Aborted when the version is no longer ``expected_version``.
        """
        sent = Sent.of(self._db, self._store, job_id, config, secrets)

        def work(conn: sa.Connection) -> int:
            job = hold_job(conn, job_id)
            if job is None:
                raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
            if job.state in JOB_TERMINAL:
                raise InvalidArgument(f"Job is in a terminal state:{job.state}")
            carry_secrets(conn, job_id, job.config_version, config, sent, in_place=True)
            if job.config_version == expected_version + 1 and job.instance_count == new_count:
                stored = read_config(conn, job_id, job.config_version)
                if stored == grown_config(config, new_count):
                    return job.config_version  # an earlier call grew the job
            if job.config_version != expected_version:
                raise Aborted(_ADDED_INSTANCES_VERSION).because(Reason.VERSION_CONFLICT)
            if new_count < job.instance_count:
                raise InvalidArgument(f"new instance count can't be less: {new_count} < {job.instance_count}")
            store_growth(conn, job, grown_config(config, new_count), config, now_ns)
            return expected_version + 1

        return self._db.write(work)

    # -- goals

    def set_goal(self, job_id: JobId, goal: JobState, now_ns: int) -> JobRecord | None:
        """Steer a job and all its pods towards ``goal`` (KILLED, or its type's own); None when unknown.

        A batch job that has ended stays as it is, and so does a job that is to be deleted. Repeated calls are safe and
        complete what an interrupted call left.
        """
        job = self._db.write(lambda conn: steer_job(conn, job_id, goal, now_ns))
        if job is None or job.goal is not goal or (job.state in JOB_TERMINAL and job.type is JobType.BATCH):
            return job
        self._steer_all_pods(job, PodState.KILLED if goal is JobState.KILLED else default_pod_goal(job.type), now_ns)
        return job

    def set_service_goal(
        self, job_id: JobId, version: EntityVersion | None, goal: JobState, force: bool, now_ns: int
    ) -> JobRecord:
        """Start (RUNNING), stop (KILLED) or delete (DELETED) a service. Raises NotFound, Aborted, InvalidArgument.

        A service is deleted when it is KILLED, or with ``force``, which stops it first; its records are deleted once
        all pods have ended. The deletion aborts an update that is under way.
        """

        def work(conn: sa.Connection) -> JobRecord:
            job = hold_version(conn, job_id, version)
            if job.goal is JobState.DELETED and goal is not JobState.DELETED:
                raise InvalidArgument(TO_BE_DELETED)
            update = read_update(conn, job.update_id)
            if goal is JobState.KILLED and update is not None and update.is_active and update.spec.start_pods:
                raise Aborted("job has active update with start_pods set, cannot stop the job now")
            if goal is JobState.DELETED and job.state is not JobState.KILLED and not force:
                raise Aborted("job is not stopped")
            job = next_job(job, _SERVICE_EVENTS[goal], now_ns)
            write_steering(conn, job)
            if goal is JobState.DELETED and update is not None:
                write_update(conn, update, rollout.abort(update), now_ns)
            note_job(conn, job)
            return job

        job = self._db.write(work)
        self._steer_all_pods(job, PodState.RUNNING if goal is JobState.RUNNING else PodState.KILLED, now_ns)
        return job

    def stop(self, job_id: JobId, now_ns: int) -> JobRecord:
        """Stop a job unless it has ended: a service by ``set_service_goal``, any other by ``set_goal``.

        Raises NotFound, Aborted, InvalidArgument.
        """
        job = self.get(job_id)
        if job is None:
            raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
        if why := owner_refusal(job):
            raise InvalidArgument(why)
        if job.type is JobType.SERVICE:
            return self.set_service_goal(job_id, None, JobState.KILLED, False, now_ns)
        if not job.is_active:
            return job
        return self.set_goal(job_id, JobState.KILLED, now_ns) or job

    def _steer_all_pods(self, job: JobRecord, goal: PodState, now_ns: int) -> None:
        message = name_person(STOP_MESSAGE if goal is PodState.KILLED else START_MESSAGE, PERSON.get())
        for span in self._db.read(lambda conn: pod_spans(conn, job.job_id)):
            self._db.write(partial(steer_pods, job=job, span=span, goal=goal, now_ns=now_ns, message=message))

    # -- settling

    def settle(self, job_id: JobId, now_ns: int, created_max: int = 0, batch_max: int = 0) -> JobProgress:
        """Settle a job, changing at most SETTLE_PODS_MAX pods; ``settle_again`` when more remain. Raises NotFound.

        The instances of a new service are created, too, when they are at most ``created_max``. ``deadline_s`` is the
        time to the next moment at which settling changes something by itself: the end of a pod's longest running time,
        or of a service's wait before its next run. An ended job is not touched. With ``batch_max``, a big job is not
        counted again while more of its pods than that wait for a host (``launching``).
        """
        if batch_max and (launching := self._launching.find(self._db, job_id, now_ns, batch_max)) is not None:
            return launching
        job, progress = self._settle(job_id, now_ns, created_max)
        if job is not None:
            self._launching.note(job, progress, now_ns)
        return progress

    def _settle(self, job_id: JobId, now_ns: int, created_max: int) -> tuple[JobRecord | None, JobProgress]:
        """Return the progress, and the job if it has not ended."""
        for attempt in range(1, SETTLE_ATTEMPTS_MAX + 1):
            read = partial(read_pending, job_id=job_id, now_ns=now_ns, created_max=created_max)
            found, wake = self._db.read(read)
            if isinstance(found, JobProgress):
                due_ns = next_due_ns(wake, found, now_ns)
                if wake is not None and due_ns is not None:
                    self._db.write(partial(mark_seen, job_id=job_id, wake=wake, due_ns=due_ns))
                return None, found
            job = found.view.job
            if not found.must_write and not found.creates:
                if found.new_due_ns(now_ns) is not None:
                    self._db.write(partial(take_back, found=found, now_ns=now_ns))
                return job, replace(found.plan.progress, settle_again=found.work.more)
            write = create_and_apply if found.creates else apply
            settled = self._db.write(partial(write, found=found, now_ns=now_ns))
            if settled is not None:
                return job, settled
            if attempt == SETTLE_ATTEMPTS_MAX:
                return job, replace(found.plan.progress, settle_again=True)
        raise AssertionError("unreachable")

    def roll_up(self, job_ids: Sequence[JobId], now_ns: int) -> RolledUp:
        """Count and write small batch jobs that require no other work together, also their ends, ROLLED_UP_JOBS_MAX at
        a time.
        """
        wanted = sorted(set(job_ids))
        parts = [wanted[at : at + ROLLED_UP_JOBS_MAX] for at in range(0, len(wanted), ROLLED_UP_JOBS_MAX)]
        done = [roll_up_part(self._db, part, now_ns) for part in parts]
        return RolledUp(
            needs_work=[job for one in done for job in one.needs_work],
            display_only=[job for one in done for job in one.display_only],
            ended={job: end for one in done for job, end in one.ended.items()},
        )

    # -- deletion

    def delete(self, job_id: JobId, on_chunk: Callable[[int], None] = lambda instances: None) -> None:
        """Delete an ended job with all its records. Raises Aborted when it has not ended."""

        def mark(conn: sa.Connection) -> int:
            row = lock_job(conn, job_id)
            if row is None:
                return 0
            if row.state not in FINISHED_STATES:
                raise Aborted(f"Job is not in a terminal state: {JOB_STATES[row.state]}")
            write_steering(conn, next_job(job_record(row), JobEvent.FORGET, self._db.clock_ns()))
            last = sa.select(sa.func.max(POD_EVENT.c.instance_id)).where(POD_EVENT.c.job_id == job_id)
            return max(int(row.instance_count), (conn.execute(last).scalar() or 0) + 1)  # a service may have shrunk

        def forget_chunk(conn: sa.Connection, start: int) -> bool:
            is_there = _hold_deleted(conn, job_id)
            if is_there:
                forget_instances(conn, [job_id], start, CHUNK_PODS)
            return is_there

        instance_count = self._db.write(mark)
        for start in range(0, instance_count, CHUNK_PODS):
            if not self._db.write(partial(forget_chunk, start=start)):
                return
            on_chunk(start + CHUNK_PODS)

        def forget(conn: sa.Connection) -> None:
            if _hold_deleted(conn, job_id):
                forget_jobs(conn, [job_id])

        self._db.write(forget)
        forget_elsewhere(self._store, job_id)


def _hold_deleted(conn: sa.Connection, job_id: str) -> bool:
    """Lock a job in deletion; False when another call has deleted it, since its id may be reused by now."""
    row = lock_job(conn, job_id)
    return row is not None and row.state == _DELETED
