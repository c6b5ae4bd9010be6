"""The resource manager's part: what may be queued, what is queued and admitted, and a snapshot of it all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig
from peloton.lifecycle.job import is_ending, scheduled_count
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import ENDS, STALE, state
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobRecord
from peloton.model.pod import ALLOCATED, PodState, ShapeRange
from peloton.model.respool import PoolSpec
from services.storage.admission.evictions import JOBS_PER_QUERY, is_evicted, runs_of
from services.storage.admission.snapshot import AllocatedRange, JobSnapshot, PendingRange, ResmgrSnapshot
from services.storage.codec import job_record, pack, pool_from_text, pool_to_text, unpack
from services.storage.engine import lock_job, lock_jobs
from services.storage.jobs.configs import shape_runs
from services.storage.pods.sql import STAYS
from services.storage.pods.writes import Span, fire, instances_of
from services.storage.repository import (
    INITIALIZED,
    ON_HOST_NUMBERS,
    PENDING,
    Store,
    as_ranges,
    in_range,
    numbers,
    pod_spans,
)
from services.storage.tables import COUNTER, FINISHED_STATES, JOB, POD, RESPOOL, STATUS_LOG

STATUS_SEQ = "status_log"
_ALLOCATED_NUMBERS = numbers(ALLOCATED)
_READY, _ON_HOST, _EVICTED, _KINDS = 1, 2, 3, 4
"""What a pod that holds resources counts as in a snapshot; multiples of _KINDS are places in the queue."""


class Admission(Store):
    def queueable(self, job_id: JobId, limit: int) -> list[tuple[int, int]]:
        """INITIALIZED instances that may be queued now, as ``(start, count)`` ranges by instance, at most ``limit``.

        A gang that waits whole is a range of its own, comes first, and comes whole: alone when it is larger than
        ``limit``, not at all when the maximum of running instances has no room for it. Until all its members are here
        they wait for each other. The maximum is kept here, so that asking twice never queues too much.
        """
        return self.db.read(partial(_queueable, job_id=job_id, limit=limit))

    def waiting_shapes(self, job_id: JobId, start: int, count: int) -> list[ShapeRange]:
        """Shapes of the INITIALIZED and PENDING pods among ``start .. start+count-1``, each of the configuration that
        it is to run: while an update rolls, pods of one job differ in that. Those that are PENDING keep theirs."""

        def work(conn: sa.Connection) -> list[ShapeRange]:
            waits = sa.and_(in_range(job_id, start, count), POD.c.state.in_([INITIALIZED, PENDING]))
            runs = conn.execute(runs_of(POD.c.job_id == job_id, waits, sa.literal(0)).order_by("start")).all()
            return [
                shape
                for _, first, length, version, _ in runs
                for shape in shape_runs(conn, job_id, version, first, length)
            ]

        return self.db.read(work)

    def mark_pending(
        self, job_id: JobId, ranges: Sequence[tuple[int, int]], queue_seq: int
    ) -> list[tuple[int, int, int]]:
        """INITIALIZED -> PENDING for ``(start, count)`` ranges, in one transaction; returns what has become PENDING, as
        ``(queue_seq, start, count)`` by queue_seq.

        Pods that have a place in the queue from an earlier run take it again; the others get ``queue_seq``. A gang has
        one place: its old one if no member has lost it.
        """
        return self.db.write(
            partial(_mark_pending, job_id=job_id, ranges=ranges, queue_seq=queue_seq, now_ns=self.clock_ns())
        )

    def mark_ready(self, items: Sequence[tuple[JobId, int, int]]) -> int:
        """PENDING -> READY for ``(job, start, count)``, in one transaction; returns how many."""

        def work(conn: sa.Connection) -> int:
            lock_jobs(conn, [job_id for job_id, _, _ in items])
            now_ns = self.clock_ns()
            return sum(fire(conn, Span(*item), Event.ADMIT, now_ns) for item in _joined(items))

        return self.db.write(work) if items else 0

    def kill_queued(self, job_id: JobId, now_ns: int) -> list[tuple[int, int, PodState]]:
        """PENDING and READY pods leave their queue: those that are to end do, those that are to have another
        configuration are INITIALIZED with it. Returns ``(start, count, state they were in)``."""
        killed: list[tuple[int, int, PodState]] = []
        for span in self.db.read(lambda conn: pod_spans(conn, job_id)):
            killed += self.db.write(partial(_kill_queued, job_id=job_id, span=span, now_ns=now_ns))
        return killed

    def status_log(self, after_seq: int, limit: int) -> list[tuple[int, JobId, int, int, PodState]]:
        """Ended runs ``(seq, job, instance, run, state)`` in the order of their commits."""
        query = sa.select(STATUS_LOG).where(STATUS_LOG.c.seq > after_seq).order_by(STATUS_LOG.c.seq).limit(limit)

        def work(conn: sa.Connection) -> list[tuple[int, JobId, int, int, PodState]]:
            return [
                (row.seq, JobId(row.job_id), row.instance_id, row.run_id, POD_STATES[row.state])
                for row in conn.execute(query)
            ]

        return self.db.read(work)

    def prune_status_log(self, upto: int) -> int:
        statement = sa.delete(STATUS_LOG).where(STATUS_LOG.c.seq <= upto)
        return self.db.write(lambda conn: conn.execute(statement).rowcount)

    def snapshot(self) -> ResmgrSnapshot:
        """Everything at one moment; pods only as ranges, found by the database."""
        return self.db.read(_snapshot)

    # -- pools

    def put_pool(self, pool: PoolSpec, config: ResourcePoolConfig) -> None:
        values = {
            "spec": pool_to_text(pool),
            "config": pack(config.SerializeToString()),
            "updated_ns": self.clock_ns(),
        }
        insert = self.db.upsert(RESPOOL).values(respool_id=pool.respool_id, **values)
        statement = insert.on_conflict_do_update(index_elements=["respool_id"], set_=values)
        self.db.write(lambda conn: conn.execute(statement))

    def delete_pool(self, respool_id: str) -> bool:
        statement = sa.delete(RESPOOL).where(RESPOOL.c.respool_id == respool_id)
        return self.db.write(lambda conn: conn.execute(statement).rowcount) > 0

    def active_jobs(self, respool_id: str, limit: int) -> list[JobId]:
        """Jobs of a pool that have not ended, the first by id."""
        mine = sa.and_(JOB.c.respool_id == respool_id, JOB.c.state.not_in(FINISHED_STATES))
        query = sa.select(JOB.c.job_id).where(mine).order_by(JOB.c.job_id).limit(limit)
        return self.db.read(lambda conn: [JobId(job_id) for job_id in conn.execute(query).scalars()])

    def pools(self) -> list[tuple[PoolSpec, ResourcePoolConfig]]:
        """By pool id."""
        query = sa.select(RESPOOL).order_by(RESPOOL.c.respool_id)

        def work(conn: sa.Connection) -> list[tuple[PoolSpec, ResourcePoolConfig]]:
            return [
                (pool_from_text(row.spec), ResourcePoolConfig.FromString(unpack(row.config)))
                for row in conn.execute(query)
            ]

        return self.db.read(work)


def _joined(items: Iterable[tuple[JobId, int, int]]) -> list[tuple[JobId, int, int]]:
    """``(job, start, count)`` that touch become one: a statement writes a run of unlike pods as quickly as of like."""
    joined: list[tuple[JobId, int, int]] = []
    for job_id, start, count in sorted(items):
        last_id, first, length = joined[-1] if joined else ("", 0, 0)
        if (last_id, first + length) == (job_id, start):
            joined[-1] = (job_id, first, length + count)
        else:
            joined.append((job_id, start, count))
    return joined


def _queueable(conn: sa.Connection, job_id: str, limit: int) -> list[tuple[int, int]]:
    row = conn.execute(sa.select(JOB).where(JOB.c.job_id == job_id)).one_or_none()
    if row is None or limit <= 0:
        return []
    job = job_record(row)
    if job.state in JOB_TERMINAL or is_ending(job):
        return []
    room = _room(conn, job)
    waits = sa.and_(POD.c.job_id == job_id, POD.c.state == INITIALIZED, STAYS)
    gang: list[tuple[int, int]] = []
    if job.gang_size > 1:
        in_gang = sa.select(sa.func.count()).select_from(POD).where(waits, POD.c.instance_id < job.gang_size)
        if conn.execute(in_gang).scalar_one() == job.gang_size:
            if room is not None and room < job.gang_size:
                return []
            gang = [(0, job.gang_size)]
            limit -= job.gang_size
            room = None if room is None else room - job.gang_size
        waits = sa.and_(waits, POD.c.instance_id >= job.gang_size)
    limit = limit if room is None else min(limit, room)
    if limit <= 0:
        return gang
    query = sa.select(POD.c.instance_id).where(waits).order_by(POD.c.instance_id).limit(limit)
    return gang + as_ranges(conn.execute(query).scalars())


def _mark_pending(
    conn: sa.Connection, job_id: str, ranges: Sequence[tuple[int, int]], queue_seq: int, now_ns: int
) -> list[tuple[int, int, int]]:
    row = lock_job(conn, job_id)
    job = None if row is None else job_record(row)
    if job is None or job.state in JOB_TERMINAL:
        return []
    waits = sa.and_(POD.c.state == INITIALIZED, STAYS)
    marked: dict[int, list[int]] = {}
    for start, count in ranges:
        scope = in_range(job_id, start, count)
        event, seq = Event.ENQUEUE, queue_seq
        place: sa.ColumnElement[int] = sa.case((POD.c.queue_seq > 0, POD.c.queue_seq), else_=queue_seq)
        if job.gang_size > 1 and (start, count) == (0, job.gang_size):
            query = sa.select(sa.func.count(), sa.func.min(POD.c.queue_seq), sa.func.max(POD.c.queue_seq))
            here, first, last = conn.execute(query.where(scope, waits)).one()
            if here < job.gang_size:
                continue
            event, seq = Event.ENQUEUE_GANG, last if first else queue_seq
            place = sa.literal(seq)
        for key, begin, length, *_ in conn.execute(runs_of(POD.c.job_id == job_id, sa.and_(scope, waits), place)):
            marked.setdefault(key, []).extend(range(begin, begin + length))
        fire(conn, Span(job_id, start, count), event, now_ns, queue_seq=seq)
    return [(seq, *span) for seq in sorted(marked) for span in as_ranges(sorted(marked[seq]))]


def _room(conn: sa.Connection, job: JobRecord) -> int | None:
    """How many more pods may be scheduled; None when there is no bound."""
    maximum = job.sla.maximum_running_instances
    if maximum == 0:
        return None
    query = sa.select(POD.c.state, sa.func.count()).where(POD.c.job_id == job.job_id).group_by(POD.c.state)
    counts = {POD_STATES[state]: count for state, count in conn.execute(query)}
    return max(maximum - scheduled_count(counts), 0)


def _kill_queued(
    conn: sa.Connection, job_id: str, span: tuple[int, int], now_ns: int
) -> list[tuple[int, int, PodState]]:
    lock_job(conn, job_id)
    killed: list[tuple[int, int, PodState]] = []
    scope = Span(job_id, *span)
    for was in (PodState.PENDING, PodState.READY):
        leaving = instances_of(conn, scope, state(was) & (ENDS | STALE))
        killed += [(start, count, was) for start, count in as_ranges(leaving)]
    if killed:
        fire(conn, scope, Event.LEAVE_QUEUE, now_ns)
    return killed


def _snapshot(conn: sa.Connection) -> ResmgrSnapshot:
    pools = conn.execute(sa.select(RESPOOL.c.spec).order_by(RESPOOL.c.respool_id)).scalars()
    cursor = conn.execute(sa.select(COUNTER.c.value).where(COUNTER.c.name == STATUS_SEQ)).scalar_one()
    active = sa.select(JOB).where(JOB.c.state.not_in(FINISHED_STATES)).order_by(JOB.c.job_id)
    jobs = [job_record(row) for row in conn.execute(active).all()]
    found: list[JobSnapshot] = []
    last = 0
    for at in range(0, len(jobs), JOBS_PER_QUERY):
        some = jobs[at : at + JOBS_PER_QUERY]
        ids = [job.job_id for job in some]
        found += _job_snapshots(conn, some, ids)
        places = sa.select(sa.func.max(POD.c.queue_seq)).where(POD.c.job_id.in_(ids))
        last = max(last, conn.execute(places).scalar() or 0)
    return ResmgrSnapshot(tuple(pool_from_text(spec) for spec in pools), tuple(found), cursor, last)


def _job_snapshots(conn: sa.Connection, jobs: Sequence[JobRecord], ids: Sequence[JobId]) -> list[JobSnapshot]:
    """One statement for many jobs: what a database is asked job by job it answers job by job, over a network."""
    pending: dict[str, list[PendingRange]] = {job_id: [] for job_id in ids}
    allocated: dict[str, list[AllocatedRange]] = {job_id: [] for job_id in ids}
    on_host = POD.c.state.in_(ON_HOST_NUMBERS)
    key = sa.case(
        (POD.c.state == PENDING, POD.c.queue_seq * _KINDS),
        (sa.and_(on_host, is_evicted()), _EVICTED),
        (on_host, _ON_HOST),
        else_=_READY,
    )
    counts = POD.c.state.in_([PENDING, *_ALLOCATED_NUMBERS])
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
