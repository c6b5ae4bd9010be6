"""Pods of a job, as used by clients and workflows: creation, reads, goals and READY pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import POD_STATE_NUMBERS, POD_STATES
from peloton.errors import NotFound, Reason
from peloton.lifecycle.discovery import GangView, Peer
from peloton.lifecycle.gang import progress_of
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import GOAL_ALIVE, RUN_SUPERSEDED, WAITS_ON_HOST
from peloton.model.host import ReadyGang
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JOB_TERMINAL, GangProgress, JobRecord, JobState, JobType
from peloton.model.pod import PodEvent, PodRecord, PodState, Termination, TerminationReason
from services.storage.codec import pod_event, pod_record
from services.storage.engine import Database, Repository, reading
from services.storage.jobs.rows import hold_job, read_job
from services.storage.jobs.steering import revive_job, steer_pods, touch_job
from services.storage.pods.containers import Containers, read_containers
from services.storage.pods.creation import insert_batch_pods
from services.storage.pods.gangs import members_of, read_gang, read_lead
from services.storage.pods.preferred_hosts import read_preferred_hosts
from services.storage.pods.ready import FirstReady, ready_gang, ready_gangs
from services.storage.pods.scope import KILLED, ON_HOST_NUMBERS, TERMINAL_NUMBERS, Span, numbers
from services.storage.pods.sql import where
from services.storage.pods.writes import fire, instances_of
from services.storage.ranges import CHUNK_PODS, chunks, with_gang
from services.storage.tables import POD, POD_EVENT

_PUBLIC = bytes(POD_STATE_NUMBERS[POD_STATES[n].public] if n in POD_STATES else n for n in range(256))
"""Translation table from numbers of states to numbers of public states."""
_FAILED = numbers({PodState.FAILED, PodState.LOST})


class Pods(Repository):
    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self._first_ready = FirstReady()

    # -- reading

    def get(self, job_id: JobId, instance_id: int) -> PodRecord | None:
        return next(iter(self.page(job_id, instance_id, instance_id + 1)), None)

    def page(self, job_id: JobId, start: int = 0, stop: int | None = None, limit: int = 1_000) -> list[PodRecord]:
        """Return instances from ``start`` on, below ``stop``, by instance id. The next page starts after the last
        one."""
        query = sa.select(POD).where(POD.c.job_id == job_id, POD.c.instance_id >= start)
        if stop is not None:
            query = query.where(POD.c.instance_id < stop)
        query = query.order_by(POD.c.instance_id).limit(limit)
        return self._db.read(lambda conn: [pod_record(row) for row in conn.execute(query)])

    def counts(self, job_id: JobId) -> dict[PodState, int]:
        """Count the pods of a job by state now; the counts in the job's record may be one settle behind."""
        query = sa.select(POD.c.state, sa.func.count()).where(POD.c.job_id == job_id).group_by(POD.c.state)
        return self._db.read(lambda conn: {POD_STATES[state]: count for state, count in conn.execute(query)})

    def counts_by_version(self, job_id: JobId) -> dict[int, dict[PodState, int]]:
        """Count the pods of a job now, by configuration version and state."""
        query = sa.select(POD.c.config_version, POD.c.state, sa.func.count()).where(POD.c.job_id == job_id)
        query = query.group_by(POD.c.config_version, POD.c.state)
        counts: dict[int, dict[PodState, int]] = {}
        for version, state, count in self._db.read(lambda conn: list(conn.execute(query))):
            counts.setdefault(version, {})[POD_STATES[state]] = count
        return counts

    @reading
    def states(self, conn: sa.Connection, job_id: JobId, start: int, limit: int) -> tuple[bytes, int]:
        """Return one byte for each instance from ``start`` on, at most ``limit``, and the number of instances.

        A byte is the number of the public state, 0 without a pod. The number of instances includes pods beyond the
        job's count. Raises NotFound.
        """
        last = sa.select(sa.func.max(POD.c.instance_id)).where(POD.c.job_id == job_id)
        mine = sa.and_(POD.c.job_id == job_id, POD.c.instance_id.between(start, start + limit - 1))
        query = sa.select(POD.c.instance_id, POD.c.state).where(mine)
        job = read_job(conn, job_id)
        if job is None or job.state is JobState.DELETED:
            raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
        count = max(job.instance_count, (conn.execute(last).scalar() or 0) + 1)
        states = bytearray(max(min(limit, count - start), 0))
        for instance_id, state in conn.execute(query):
            states[instance_id - start] = state
        return bytes(states).translate(_PUBLIC), count

    def preferred_hosts(self, job_id: JobId, cluster: str, without: Collection[int] = ()) -> dict[Hostname, int]:
        """Count the job's pods in the cluster by preferred host, which is the current host or the one to return to."""
        return self._db.read(partial(read_preferred_hosts, job_id=job_id, cluster=cluster, without=without))

    def hosts(self, job_id: JobId) -> dict[Hostname, int]:
        """Count the job's pods by current host."""
        query = sa.select(POD.c.host, sa.func.count()).where(POD.c.job_id == job_id, POD.c.state.in_(ON_HOST_NUMBERS))
        rows = self._db.read(lambda conn: list(conn.execute(query.group_by(POD.c.host))))
        return {Hostname(host): count for host, count in rows}

    def list_failed(self, job_id: JobId, limit: int, only_waiting: bool = False) -> list[PodRecord]:
        """Return the first pods, by instance, that failed or wait for a retry (``only_waiting``: only these).

        Failed pods ended FAILED or LOST, or KILLED without a request.
        """
        waits = sa.and_(POD.c.state.in_(TERMINAL_NUMBERS), POD.c.next_run != 0, POD.c.due_ns > 0)
        ended = sa.or_(POD.c.state.in_(_FAILED), sa.and_(POD.c.state == KILLED, where(GOAL_ALIVE)), waits)
        query = sa.select(POD).where(POD.c.job_id == job_id, waits if only_waiting else ended)
        query = query.order_by(POD.c.instance_id).limit(limit)
        return self._db.read(lambda conn: [pod_record(row) for row in conn.execute(query)])

    @reading
    def waiting_on_hosts(self, conn: sa.Connection, job_id: JobId, limit: int) -> tuple[list[PodRecord], int]:
        """Return the first pods, by instance, whose containers cannot start yet, and the total number."""
        mine = sa.and_(POD.c.job_id == job_id, where(WAITS_ON_HOST))
        query = sa.select(POD).where(mine).order_by(POD.c.instance_id).limit(limit)
        found = [pod_record(row) for row in conn.execute(query)]
        if len(found) < limit:
            return found, len(found)
        return found, conn.execute(sa.select(sa.func.count()).select_from(POD).where(mine)).scalar_one()

    def events(self, job_id: JobId, instance_id: int, run_id: int | None = None, run_limit: int = 1) -> list[PodEvent]:
        """Return events of one run, or of the newest ``run_limit`` runs (0: all), newest first."""
        mine = sa.and_(POD_EVENT.c.job_id == job_id, POD_EVENT.c.instance_id == instance_id)
        query = sa.select(POD_EVENT).where(mine)
        if run_id is not None:
            query = query.where(POD_EVENT.c.run_id == run_id)
        elif run_limit:
            runs = sa.select(POD_EVENT.c.run_id).where(mine).distinct()
            newest = runs.order_by(POD_EVENT.c.run_id.desc()).limit(run_limit).subquery()
            query = query.where(POD_EVENT.c.run_id.in_(sa.select(newest.c.run_id)))
        query = query.order_by(POD_EVENT.c.revision.desc())
        return self._db.read(lambda conn: [pod_event(row) for row in conn.execute(query)])

    def delete_events(self, job_id: JobId, instance_id: int, upto_run: int, from_run: int = 0) -> int:
        """Delete the events of runs ``from_run .. upto_run``; returns their number."""
        statement = sa.delete(POD_EVENT).where(
            POD_EVENT.c.job_id == job_id,
            POD_EVENT.c.instance_id == instance_id,
            POD_EVENT.c.run_id.between(from_run, upto_run),
        )
        return self._db.write(lambda conn: conn.execute(statement).rowcount)

    def containers(self, job_id: JobId, start: int, stop: int) -> dict[tuple[int, int], Containers]:
        """Return the containers of instances ``start .. stop-1`` that have several, by instance and run."""
        return self._db.read(lambda conn: read_containers(conn, job_id, start, stop))

    # -- creation

    def create(self, job_id: JobId, on_chunk: Callable[[int], None]) -> int:
        """Create the missing pods of ``0 .. instance_count-1``, in chunks; returns how many exist.

        ``on_chunk`` receives the count after each chunk. Pods of a job whose goal is KILLED are created KILLED.
        """
        while True:
            before, count, wanted = self._db.write(lambda conn: _create_chunk(conn, job_id, self._db.clock_ns()))
            if count > before:
                on_chunk(count)
            if count >= wanted or count == before:
                return count

    # -- goals

    def set_goals(
        self, job_id: JobId, ranges: Sequence[tuple[int, int]], goal: PodState, now_ns: int, message: str
    ) -> list[int]:
        """Stop (goal KILLED) or start instances in ``(start, count)`` ranges; returns the instances whose goal changed.

        A range that overlaps the gang is extended to all of it. Started pods that have ended or are being killed get a
        new run. Nothing changes in an ended batch job.
        """
        changed: list[int] = []

        def work(conn: sa.Connection, start: int, count: int) -> list[int]:
            job = hold_job(conn, job_id)
            if job is None or (job.state in JOB_TERMINAL and job.type is JobType.BATCH):
                return []
            if goal is not PodState.KILLED:
                revive_job(conn, job, now_ns)
            touch_job(conn, job_id, now_ns)
            return steer_pods(conn, job, (start, count), goal, now_ns, message)

        for start, count in chunks(self._with_gang(job_id, ranges)):
            changed += self._db.write(partial(work, start=start, count=count))
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
        """Restart instances, so that each has a run newer than its current one; returns the instances that await it.

        A range that overlaps the gang is extended to all of it. Pods on hosts are killed first; waiting pods take the
        new run id when they launch. Instances whose goal is KILLED are skipped. The texts, if given, become the texts
        of the pods.
        """
        waiting: list[int] = []
        why = None if termination is None else Termination(termination)

        def work(conn: sa.Connection, start: int, count: int) -> list[int]:
            job = hold_job(conn, job_id)
            if job is None or job.state in JOB_TERMINAL:
                return []
            now_ns = self._db.clock_ns()
            touch_job(conn, job_id, now_ns)
            span = Span(job_id, start, count)
            fire(conn, span, Event.RESTART, now_ns, message=message or None, reason=reason or None, why=why)
            return instances_of(conn, span, GOAL_ALIVE & RUN_SUPERSEDED)

        for start, count in chunks(self._with_gang(job_id, ranges)):
            waiting += self._db.write(partial(work, start=start, count=count))
        return waiting

    def _with_gang(self, job_id: JobId, ranges: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        job = self._db.read(lambda conn: read_job(conn, job_id))
        return with_gang(1 if job is None else job.gang_size, ranges)

    # -- READY pods

    def ready_gangs(self, job_id: JobId, limit: int) -> list[ReadyGang]:
        """Return READY pods outside gangs, by instance, at most ``limit``. The run of each is the one it launches
        as."""
        now_ns, first_ready = self._db.clock_ns(), self._first_ready
        return self._db.read(partial(ready_gangs, job_id=job_id, limit=limit, now_ns=now_ns, first_ready=first_ready))

    def ready_gang(self, job_id: JobId) -> ReadyGang | None:
        """Return the job's gang when all of it is READY; if its members differ, with a shape that fits each of them."""
        return self._db.read(partial(ready_gang, job_id=job_id))

    def gang(self, job_id: JobId) -> GangProgress:
        """Return the members of the job's gang by stage; size 0 without a gang, or when the job has ended."""
        return self._db.read(partial(_gang, job_id=job_id))

    def gang_view(self, job: JobRecord, count_max: int) -> GangView:
        """Return the gang of a job and its extras on hosts, at most ``count_max`` pods, by instance."""
        return self._db.read(partial(read_gang, job=job, count_max=count_max))

    def gang_lead(self, job: JobRecord) -> tuple[int, Peer]:
        """Return the generation of a job's gang, and its coordinator, which is NOWHERE while it is on no host."""
        return self._db.read(partial(read_lead, job=job))


_LAST_INSTANCE = sa.select(sa.func.max(POD.c.instance_id)).where(POD.c.job_id == sa.bindparam("of_job"))


def _create_chunk(conn: sa.Connection, job_id: str, now_ns: int) -> tuple[int, int, int]:
    """Create the next pods; returns the counts of pods before and after, and the target count."""
    job = hold_job(conn, job_id)
    if job is None:
        raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
    last = conn.execute(_LAST_INSTANCE, {"of_job": job_id}).scalar()
    start = 0 if last is None else last + 1  # chunks are created in order, each as a whole or not at all
    count = min(CHUNK_PODS, job.instance_count - start)
    if count <= 0 or job.state in JOB_TERMINAL:
        return start, start, job.instance_count
    insert_batch_pods(conn, job, start, count, now_ns)
    return start, start + count, job.instance_count


def _gang(conn: sa.Connection, job_id: str) -> GangProgress:
    job = read_job(conn, job_id)
    if job is None or job.state in JOB_TERMINAL or job.gang_size == 1:
        return GangProgress(0)
    return progress_of(job.gang_size, members_of(conn, job), job.gang_requeue_count)
